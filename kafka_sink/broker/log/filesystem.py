"""The interface between the log and the disk: the log accesses files only through :class:`FileSystem`.

Called under a partition's lock by handler threads, and by the housekeeping thread. Implementations must not interpret
the bytes, and must not report an append as complete before the operating system has all bytes: data passed to
``write()`` survives the death of the process, and acknowledgements rely on that.

The number of open log files is limited, whatever the number of segments. A file is opened when it is used and stays
open until its descriptor is needed for another file: the least recently used file that is not in use is closed first. A
descriptor that is in use must not be closed, because the operating system may assign its number to another file at
once.

Small files that are stored as a whole have a checksum at their end (:class:`CheckedFile`): one that differs in any bit
from what was stored is rejected, and its content not interpreted.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from crc32c import crc32c

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.files import OWNER_ONLY, make_own_directory, make_own_file, most_log_files, require_own
from kafka_sink.common.threads import at_fork

#: Links are not followed, because another file would be truncated.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(slots=True, eq=False)
class Descriptor:
    """One file of :class:`Descriptors`. A ``with`` block opens it, receives its descriptor and keeps it open.

    :raises OSError: if it was closed (EBADF), or cannot be reopened.
    """

    path: Path
    _all: Descriptors
    fd: int = -1
    users: int = 0
    closed: bool = False

    def __enter__(self) -> int:
        return self._all.acquire(self)

    def __exit__(self, *raised: object) -> None:
        self._all.release(self)

    def close(self) -> None:
        """Close the file for new users; current users are not affected. May be called again."""
        self._all.close(self)


class Descriptors:
    """At most *limit* open files, not counting those in use."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        # Guarded by the lock: the open files, least recently used first.
        self._open: OrderedDict[Descriptor, None] = OrderedDict()
        at_fork(self, Descriptors._forked)

    def create(self, path: Path) -> Descriptor:
        """The file at *path*, created if it does not exist. :raises OSError: if it cannot be opened."""
        entry = Descriptor(path, self)
        with self._lock:
            self._make_room()
            entry.fd = os.open(path, _FLAGS | os.O_CREAT, OWNER_ONLY)
            self._open[entry] = None
        return entry

    def acquire(self, entry: Descriptor) -> int:
        """Open *entry* if necessary, and keep it open until :meth:`release`.

        :raises OSError: as :class:`Descriptor`.
        """
        with self._lock:
            if entry.closed:
                raise OSError(errno.EBADF, f"{entry.path} is closed")
            if entry.fd < 0:
                self._make_room()
                entry.fd = os.open(entry.path, _FLAGS)
                self._open[entry] = None
            else:
                self._open.move_to_end(entry)
            entry.users += 1
            return entry.fd

    def release(self, entry: Descriptor) -> None:
        with self._lock:
            entry.users -= 1
            if entry.closed and not entry.users:
                self._close(entry)

    def close(self, entry: Descriptor) -> None:
        """See :meth:`Descriptor.close`."""
        with self._lock:
            entry.closed = True
            if not entry.users:
                self._close(entry)

    def _make_room(self) -> None:
        surplus = len(self._open) - self._limit + 1
        if surplus <= 0:
            return
        for entry in tuple(itertools.islice((entry for entry in self._open if not entry.users), surplus)):
            self._close(entry)

    def _close(self, entry: Descriptor) -> None:
        if entry.fd >= 0:
            del self._open[entry]
            os.close(entry.fd)
            entry.fd = -1

    def _forked(self) -> None:
        # The logs belong to the parent: the child must neither write to them nor keep the space of deleted files.
        self._lock = threading.Lock()
        for entry in tuple(self._open):
            entry.closed = True
            self._close(entry)


#: The limit on a file that is read as a whole: an index of a segment of 1 GiB has 3 MiB.
MOST_SMALL_BYTES: Final = 256 << 20
# Linux's limit on the number of buffers of one writev.
_IOV_MAX: Final = 1024
# macOS has no fdatasync.
flush_to_disk: Final = getattr(os, "fdatasync", os.fsync)


class LogFile(Protocol):
    """One append-only file that can be read at any position; after it is closed, all methods raise OSError."""

    @property
    def size(self) -> int:
        """The number of bytes in the file, as of the appends through this object."""

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all *buffers* at the end.

        :raises OSError: if not everything was written; the written part is still in the file, call :meth:`truncate`.
        """

    def read(self, position: int, length: int) -> bytes:
        """At most *length* bytes from *position*; fewer at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to *size* bytes."""

    def flush(self) -> None:
        """Return when all appended bytes and the file's name are on disk."""

    def move_to(self, path: Path) -> None:
        """Give the flushed file the name *path* in the same directory; a file of that name is replaced atomically."""

    def close(self) -> None:
        """Close the file. A second call does nothing."""


class FileSystem(Protocol):
    """The file operations that the log needs."""

    def open(self, path: Path) -> LogFile:
        """Open *path* for appending and reading; the file is created if it does not exist."""

    def make_directories(self, path: Path) -> None: ...

    def list_directory(self, path: Path) -> list[str]:
        """The names in *path*, sorted; empty if the directory does not exist."""

    def read_file(self, path: Path) -> bytes | None:
        """The content of a small file, None if it does not exist."""

    def replace_file(self, path: Path, data: bytes) -> None:
        """Replace the file at *path* atomically: after a crash it has the complete old or new content."""

    def remove_file(self, path: Path) -> None:
        """Remove *path* if it exists."""

    def rename(self, source: Path, target: Path) -> None: ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its content, if it exists."""


def flush_directory(path: Path) -> None:
    """Return when the names in *path* are on disk; new and changed names are durable only after this."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_small(path: Path, size: int) -> None:
    if size > MOST_SMALL_BYTES:
        text = f"{path} has {size} bytes, expected {MOST_SMALL_BYTES} at most: remove it, or restore it from a copy"
        raise OSError(errno.EFBIG, text)


class _OsLogFile:
    """A :class:`LogFile` on a file descriptor."""

    def __init__(self, path: Path, descriptors: Descriptors, *, flushes: bool) -> None:
        self._path = path
        self._flushes = flushes
        self._descriptor = descriptors.create(path)
        with self._descriptor as fd:
            self._size = os.fstat(fd).st_size
        # An empty file may be new, and so may its directory: their names are on disk only after a flush.
        self._name_flushed = self._size > 0

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> None:
        pending = [view for view in (memoryview(buffer).cast("B") for buffer in buffers) if view.nbytes]
        with self._descriptor as fd:
            while pending:
                written = os.writev(fd, pending[:_IOV_MAX])
                self._size += written
                while pending and written >= pending[0].nbytes:
                    written -= pending.pop(0).nbytes
                if written:
                    pending[0] = pending[0][written:]

    def read(self, position: int, length: int) -> bytes:
        with self._descriptor as fd:
            return os.pread(fd, length, position)

    def truncate(self, size: int) -> None:
        with self._descriptor as fd:
            os.ftruncate(fd, size)
        self._size = size

    def flush(self) -> None:
        if not self._flushes:
            return
        with self._descriptor as fd:
            flush_to_disk(fd)
        if not self._name_flushed:
            flush_directory(self._path.parent)
            flush_directory(self._path.parent.parent)
            self._name_flushed = True

    def move_to(self, path: Path) -> None:
        self._path.replace(path)
        self._path = self._descriptor.path = path
        if self._flushes:
            flush_directory(path.parent)

    def close(self) -> None:
        self._descriptor.close()


class OsFileSystem:
    """The real file system."""

    def __init__(self, open_files: int | None = None, *, flushes: bool = True) -> None:
        """
        :param open_files: the maximum number of open log files; by default half of the process's limit.
        :param flushes: False for data that is removed with the process: nothing waits for the disk."""
        self._descriptors = Descriptors(open_files or most_log_files())
        self._flushes = flushes

    def open(self, path: Path) -> LogFile:
        return _OsLogFile(path, self._descriptors, flushes=self._flushes)

    def make_directories(self, path: Path) -> None:
        make_own_directory(path)

    def list_directory(self, path: Path) -> list[str]:
        require_own(path)
        names = []
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            for entry in entries:
                # Their types come with the names.
                if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                    require_own(path / entry.name)
                names.append(entry.name)
        return sorted(names)

    def read_file(self, path: Path) -> bytes | None:
        require_own(path)
        try:
            _check_small(path, path.stat().st_size)
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace_file(self, path: Path, data: bytes) -> None:
        # A larger file could not be read again.
        _check_small(path, len(data))
        temporary = path.with_name(path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        make_own_file(temporary)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if self._flushes:
                flush_to_disk(file.fileno())
        temporary.replace(path)
        self._flush_directory(path.parent)

    def remove_file(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)
        self._flush_directory(target.parent)

    def _flush_directory(self, path: Path) -> None:
        if self._flushes:
            flush_directory(path)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)


#: A line break and eight hexadecimal digits.
_TRAILER_BYTES: Final = 9


def with_checksum(content: bytes) -> bytes:
    """*content* and its CRC-32C in hexadecimal digits, on a line of its own."""
    return content + b"\n%08x" % crc32c(content)


def without_checksum(data: bytes) -> bytes | None:
    """The content of a file that :func:`with_checksum` created, None if it is damaged."""
    content = data[:-_TRAILER_BYTES]
    return content if with_checksum(content) == data else None


class CheckedFile:
    """The file *name* in *directory*."""

    def __init__(self, directory: Path, filesystem: FileSystem, name: str = "cluster.json") -> None:
        self.path = directory / name
        self._filesystem = filesystem
        filesystem.make_directories(directory)

    def read(self) -> bytes | None:
        """The content, or None if there is no file yet.

        :raises ConfigError: if the file does not hold what was written.
        """
        stored = self._filesystem.read_file(self.path)
        if stored is None:
            return None
        content = without_checksum(stored)
        if content is None:
            raise ConfigError(
                f"{self.path} is damaged: its checksum does not match; restore it from a copy, or remove the data"
            )
        return content

    def write(self, data: bytes) -> None:
        """Replace the content; it is on disk when this returns."""
        self._filesystem.replace_file(self.path, with_checksum(data))
