"""What the log relies on, on the real disk and on the fake one alike."""

from __future__ import annotations

import gc
import os
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


def test_a_closed_file_refuses_everything(place: tuple[FileSystem, Path]) -> None:
    filesystem, directory = place
    file = filesystem.open(directory / "f")
    file.append([b"ab"])
    file.close()
    for use in (file.flush, lambda: file.read(0, 1), lambda: file.append([b"c"]), lambda: file.truncate(0)):
        with pytest.raises(OSError, match="is closed"):
            use()


def test_a_file_that_is_being_flushed_is_closed_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OsFileSystem().open(tmp_path / "f")
    file.append([b"ab"])

    def flush(fd: int) -> None:
        file.close()
        with (tmp_path / "another").open("wb") as another:
            assert another.fileno() != fd
        os.fsync(fd)

    monkeypatch.setattr("kafka_sink.broker.log.filesystem.flush_to_disk", flush)
    file.flush()
    with pytest.raises(OSError, match="is closed"):
        file.flush()


@pytest.mark.behaviour("Log", "Data that is removed with its cluster does not wait for the disk")
def test_temporary_data_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[object] = []
    monkeypatch.setattr("kafka_sink.broker.log.filesystem.flush_to_disk", flushed.append)
    monkeypatch.setattr("kafka_sink.broker.log.filesystem.flush_directory", flushed.append)
    for flushes, number in ((False, 0), (True, 6)):
        place, filesystem = tmp_path / str(flushes), OsFileSystem(flushes=flushes)
        filesystem.make_directories(place)
        file = filesystem.open(place / "f")
        file.append([b"ab"])
        file.flush()
        file.close()
        filesystem.replace_file(place / "small", b"c")
        filesystem.rename(place / "small", place / "renamed")
        assert len(flushed) == number
        assert filesystem.read_file(place / "renamed") == b"c"


def test_no_more_files_are_open_than_may_be(tmp_path: Path) -> None:
    filesystem = OsFileSystem(open_files=3)
    # What other tests have left open must not go in between.
    gc.collect()
    before = open_descriptors()
    files = [filesystem.open(tmp_path / str(number)) for number in range(10)]
    for number in (0, 5, 9, 0):
        for file in files:
            file.append([b"%d" % number])
    assert open_descriptors() - before == 3
    assert [file.read(0, 10) for file in files] == [b"0590"] * 10
    files[4].flush()
    # Gone from its place while it was not open: it must not be made anew.
    (tmp_path / "0").unlink()
    with pytest.raises(FileNotFoundError):
        files[0].read(0, 1)
    for file in files:
        file.close()
    assert open_descriptors() == before


@pytest.mark.behaviour("Compaction", "A file takes the place of another one, and is found under its name")
@pytest.mark.parametrize("flushes", [False, True])
def test_a_file_takes_the_place_of_another(tmp_path: Path, flushes: bool) -> None:
    filesystem = OsFileSystem(open_files=1, flushes=flushes)
    old, new = filesystem.open(tmp_path / "old"), filesystem.open(tmp_path / "new")
    old.append([b"old"])
    new.append([b"new"])
    new.move_to(tmp_path / "old")
    old.close()
    # It is closed for the sake of another one, and opened again by its new name.
    other = filesystem.open(tmp_path / "other")
    other.append([b"other"])
    assert new.read(0, 10) == b"new"
    assert filesystem.list_directory(tmp_path) == ["old", "other"]
    new.close()
    other.close()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


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


@pytest.mark.behaviour("Log", "A file that is larger than any of its kind is refused, and not read into memory")
def test_a_small_file_is_not_large(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=r"cluster\.json has 1099511627776 bytes, expected 268435456 at most"):
        OsFileSystem().read_file(path)
    with pytest.raises(OSError, match="expected 268435456 at most"):
        OsFileSystem().replace_file(path, bytes((256 << 20) + 1))
    assert path.stat().st_size == 1 << 40
