"""The seam between the log and the disk: everything the log does to files goes through :class:`FileSystem`.

Called under a partition's lock by handler threads, and by the housekeeping thread. Must never interpret the bytes it
moves, and must never report an append as done before the operating system has all of it: what was handed to
``write()`` survives the death of the process, and acknowledgements stand on that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from kafka_sink.broker.log.descriptors import Descriptors, allowed_descriptors
from kafka_sink.common.buffers import Buffer

# Linux's limit on the number of buffers of one writev.
_IOV_MAX: Final = 1024
# macOS has no fdatasync.
_flush_to_disk: Final = getattr(os, "fdatasync", os.fsync)


class LogFile(Protocol):
    """One append-only file that is read at any position; once it is closed, OSError is all it answers."""

    @property
    def size(self) -> int:
        """Bytes in the file, as far as appends through this object went."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all *buffers* at the end.

        :raises OSError: not everything was written; what arrived is still in the file, call :meth:`truncate`.
        """
        ...

    def read(self, position: int, length: int) -> bytes:
        """At most *length* bytes from *position*; fewer at the end of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to *size* bytes."""
        ...

    def flush(self) -> None:
        """Return when everything appended is on the disk itself, and the file's name with it."""
        ...

    def close(self) -> None:
        """Give the file back to the operating system. A second call does nothing."""
        ...


class FileSystem(Protocol):
    """What the log needs from a disk."""

    def open(self, path: Path) -> LogFile:
        """Open *path* for appending and reading; created when it does not exist."""
        ...

    def make_directories(self, path: Path) -> None: ...

    def list_directory(self, path: Path) -> list[str]:
        """Names in *path*, sorted; empty when there is no such directory."""
        ...

    def read_file(self, path: Path) -> bytes | None:
        """The whole of a small file, None when there is none."""
        ...

    def replace_file(self, path: Path, data: bytes) -> None:
        """Put *data* at *path* so that a crash at any time leaves either the old or the new content, whole."""
        ...

    def remove_file(self, path: Path) -> None:
        """Remove *path* if it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all it holds, if it exists."""
        ...


def flush_directory(path: Path) -> None:
    """Return when the names in *path* are on the disk: new ones and renamed ones are only certain then."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _OsLogFile:
    """A :class:`LogFile` on a file descriptor."""

    def __init__(self, path: Path, descriptors: Descriptors) -> None:
        self._path = path
        self._descriptor = descriptors.create(path)
        with self._descriptor as fd:
            self._size = os.fstat(fd).st_size
        # A file that was empty may be new, and its directory as well: their names are on the disk after a flush only.
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
        with self._descriptor as fd:
            _flush_to_disk(fd)
        if not self._name_flushed:
            flush_directory(self._path.parent)
            flush_directory(self._path.parent.parent)
            self._name_flushed = True

    def close(self) -> None:
        self._descriptor.close()


class OsFileSystem:
    """The real disk."""

    def __init__(self, open_files: int | None = None) -> None:
        """*open_files*: how many files of logs stay open at most; half of what the process may open by default."""
        self._descriptors = Descriptors(open_files or allowed_descriptors())

    def open(self, path: Path) -> LogFile:
        return _OsLogFile(path, self._descriptors)

    def make_directories(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def list_directory(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - names only, without a Path object for each
        except FileNotFoundError:
            return []

    def read_file(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace_file(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            _flush_to_disk(file.fileno())
        temporary.replace(path)
        flush_directory(path.parent)

    def remove_file(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)
        flush_directory(target.parent)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
