"""What the log relies on, on the real disk and on the fake one alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.broker.log.filesystem import FileSystem, OsFileSystem
from tests.fakes.memory_filesystem import MemoryFileSystem


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    return (OsFileSystem(), tmp_path) if request.param == "disk" else (MemoryFileSystem(), Path("/data"))


def test_appending_reading_and_truncating(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "f")
    file.append([b"ab", bytearray(b"cd"), b"", memoryview(b"ef")])
    assert (file.size, file.read(1, 3), file.read(4, 100), file.read(9, 1)) == (6, b"bcd", b"ef", b"")
    file.truncate(2)
    file.append([b"X"])
    file.flush()
    assert (file.size, file.read(0, 10)) == (3, b"abX")
    file.close()
    file.close()
    again = filesystem.open(directory / "f")
    assert (again.size, again.read(0, 10)) == (3, b"abX")
    again.close()


def test_many_buffers_go_in_as_one_append(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "f")
    pieces = [b"%d," % number for number in range(3000)]
    file.append(pieces)
    assert file.read(0, 1 << 20) == b"".join(pieces)
    file.close()


def test_small_files(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    path = directory / "small"
    assert filesystem.read_file(path) is None
    filesystem.replace_file(path, b"one")
    filesystem.replace_file(path, b"two")
    assert filesystem.read_file(path) == b"two"
    assert filesystem.list_directory(directory) == ["small"]
    filesystem.remove_file(path)
    filesystem.remove_file(path)
    assert filesystem.read_file(path) is None


def test_directories(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    filesystem.make_directories(directory / "a" / "b")
    filesystem.replace_file(directory / "a" / "b" / "f", b"x")
    assert filesystem.list_directory(directory / "nowhere") == []
    filesystem.rename(directory / "a", directory / "c")
    assert filesystem.list_directory(directory) == ["c"]
    assert filesystem.read_file(directory / "c" / "b" / "f") == b"x"
    filesystem.remove_tree(directory / "c")
    filesystem.remove_tree(directory / "c")
    assert filesystem.list_directory(directory) == []
