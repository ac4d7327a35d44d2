"""The file operations that the log relies on, on the real disk and on the fake one alike."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.broker.log.filesystem import CheckedFile, Descriptors, FileSystem, OsFileSystem, flush_directory
from kafka_sink.common.errors import ConfigError
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


def test_a_file_is_closed_after_its_last_user(tmp_path: Path) -> None:
    file = Descriptors(2).create(tmp_path / "f")
    with file as fd:
        with file as again:
            file.close()
            assert again == fd
        os.fstat(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


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
    # Files that other tests have left open must not be closed in between.
    gc.collect()
    before = open_descriptors()
    files = [filesystem.open(tmp_path / str(number)) for number in range(10)]
    for number in (0, 5, 9, 0):
        for file in files:
            file.append([b"%d" % number])
    assert open_descriptors() - before == 3
    assert [file.read(0, 10) for file in files] == [b"0590"] * 10
    files[4].flush()
    # The file was removed while it was closed: it must not be created again.
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
    # The file is closed when another one is opened, and opened again by its new name.
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


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The flushes in their order: the path of a directory, or the descriptor of a file."""
    found: list[object] = []
    monkeypatch.setattr("kafka_sink.broker.log.filesystem.flush_to_disk", found.append)
    monkeypatch.setattr("kafka_sink.broker.log.filesystem.flush_directory", found.append)
    return found


def directories(flushed: list[object]) -> list[Path]:
    return [each for each in flushed if isinstance(each, Path)]


def test_names_are_flushed_once_with_the_first_bytes(tmp_path: Path, flushed: list[object]) -> None:
    place = tmp_path / "t-0"
    place.mkdir()
    filesystem = OsFileSystem()
    file = filesystem.open(place / "f")
    file.append([b"a"])
    for number in (3, 4, 5):
        file.flush()
        assert (len(flushed), directories(flushed)) == (number, [place, tmp_path])
    file.close()
    # A file with content existed before.
    again = filesystem.open(place / "f")
    again.flush()
    assert len(flushed) == 6
    again.close()


@pytest.mark.parametrize("flushes", [False, True])
def test_a_new_name_is_flushed_with_its_directory(tmp_path: Path, flushed: list[object], flushes: bool) -> None:
    file = OsFileSystem(flushes=flushes).open(tmp_path / "f")
    file.move_to(tmp_path / "g")
    assert flushed == ([tmp_path] if flushes else [])
    file.close()


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
def test_what_a_write_leaves_is_written_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    def write_some(fd: int, buffers: list[memoryview]) -> int:
        return os.write(fd, b"".join(buffers)[:most])

    monkeypatch.setattr(os, "writev", write_some)
    file = OsFileSystem().open(tmp_path / "f")
    file.append([b"ab", b"", b"cde", b"f", memoryview(b"ghijk")])
    file.append([b"l"])
    assert (file.size, file.read(0, 100)) == (12, b"abcdefghijkl")
    file.close()


def test_a_log_file_may_have_any_descriptor(tmp_path: Path) -> None:
    gc.collect()
    before = open_descriptors()
    standard_input = os.dup(0)
    os.close(0)
    try:
        file = OsFileSystem(open_files=2).open(tmp_path / "f")
        os.fstat(0)
        file.append([b"ab"])
        file.append([b"cd"])
        assert file.read(0, 10) == b"abcd"
        assert open_descriptors() == before + 1
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(0)
    finally:
        os.dup2(standard_input, 0)
        os.close(standard_input)
    assert open_descriptors() == before


def opened(path: Path) -> int:
    """Return the number of this process's descriptors of *path*: threads of earlier tests may close other ones."""
    found, stat = 0, path.stat()
    for descriptor in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.path.samestat(descriptor.stat(), stat)
    return found


def test_a_fork_has_no_log_files(tmp_path: Path) -> None:
    filesystem = OsFileSystem()
    file = filesystem.open(tmp_path / "f")
    file.append([b"ab"])
    assert opened(tmp_path / "f") == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 2 + (opened(tmp_path / "f") == 0)
            file.read(0, 1)
        except OSError as error:
            code += 10 * (str(error) == f"[Errno 9] {tmp_path / 'f'} is closed")
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 13
    assert file.read(0, 10) == b"ab"
    file.close()


def test_a_directory_with_a_link_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "file").touch()
    makes: list[Callable[[Path], object]] = [
        lambda path: path.symlink_to(tmp_path / "file"),
        lambda path: path.symlink_to(tmp_path / "files"),
        lambda path: path.symlink_to(tmp_path / "nowhere"),
        os.mkfifo,
    ]
    for number, make in enumerate(makes):
        place = tmp_path / str(number)
        (place / "directory").mkdir(parents=True)
        (place / "file").touch()
        assert OsFileSystem().list_directory(place) == ["directory", "file"]
        make(place / "other")
        with pytest.raises(OSError, match=f"{number}/other is a {'pipe' if number == 3 else 'link'}"):
            OsFileSystem().list_directory(place)


def test_the_largest_small_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_sink.broker.log.filesystem.MOST_SMALL_BYTES", 5)
    filesystem = OsFileSystem()
    filesystem.replace_file(tmp_path / "f", b"12345")
    assert filesystem.read_file(tmp_path / "f") == b"12345"
    with pytest.raises(OSError, match="has 6 bytes, expected 5 at most"):
        filesystem.replace_file(tmp_path / "f", b"123456")
    (tmp_path / "f").write_bytes(b"123456")
    with pytest.raises(OSError, match="has 6 bytes, expected 5 at most"):
        filesystem.read_file(tmp_path / "f")


def test_names_are_flushed_of_directories_alone(tmp_path: Path) -> None:
    flush_directory(tmp_path)
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        flush_directory(tmp_path / "f")


def test_a_checked_file_holds_what_was_written_or_is_refused(tmp_path: Path) -> None:
    file = CheckedFile(tmp_path / "data", OsFileSystem())
    assert file.read() is None
    for content in (b"", b"one", b"two"):
        file.write(content)
        assert CheckedFile(tmp_path / "data", OsFileSystem()).read() == content
    damaged = file.path.read_bytes().replace(b"two", b"twp")
    file.path.write_bytes(damaged)
    with pytest.raises(ConfigError, match=r"cluster\.json is damaged: its checksum does not match"):
        file.read()
