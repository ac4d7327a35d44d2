"""A disk in memory that can crash at any step, be full, or forget what was not flushed."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from kafka_sink.common.buffers import Buffer


class Crash(BaseException):
    """The process died here. Not an Exception: nothing in the code under test may catch it."""


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.flushed = b""
        #: Whether a power failure leaves its name: after the first flush it does.
        self.named = False


class MemoryFileSystem:
    """Counts every step that changes something; dies at step *crash_at*, after *crash_bytes* of it when it appends."""

    def __init__(self) -> None:
        self.files: dict[Path, _File] = {}
        self.steps = 0
        self.crash_at: int | None = None
        self.crash_bytes = 0
        self.full_after_bytes: int | None = None
        self.fail_truncate = False
        self.fail_flush = False
        #: Everything that would change the disk fails.
        self.read_only = False
        #: The step whose change fails with an error, once.
        self.fail_at: int | None = None

    # --- what a test does to it --------------------------------------------------------------------------------------

    def lose_unflushed(self) -> None:
        """The power went: files are what they were when they were last flushed, if they ever were."""
        self.files = {path: file for path, file in self.files.items() if file.named}
        for file in self.files.values():
            file.data = bytearray(file.flushed)

    def clone(self) -> MemoryFileSystem:
        """Another disk with the same content and no faults."""
        copy = MemoryFileSystem()
        for path, file in self.files.items():
            copy.files[path] = _File()
            copy.files[path].data = bytearray(file.data)
            copy.files[path].flushed = file.flushed
            copy.files[path].named = file.named
        return copy

    def step(self) -> None:
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at:
            raise Crash
        if self.read_only:
            raise OSError(errno.EROFS, "Read-only file system")
        if self.steps == self.fail_at:
            raise OSError(errno.EIO, "Input/output error")

    # --- FileSystem --------------------------------------------------------------------------------------------------

    def open(self, path: Path) -> MemoryLogFile:
        if path not in self.files:
            self.step()
            self.files[path] = _File()
        return MemoryLogFile(self, self.files[path])

    def make_directories(self, path: Path) -> None:
        """Directories exist as soon as something is in them."""

    def list_directory(self, path: Path) -> list[str]:
        depth = len(path.parts)
        inside = {file.parts[depth] for file in self.files if file.parts[:depth] == path.parts}
        return sorted(inside)

    def read_file(self, path: Path) -> bytes | None:
        file = self.files.get(path)
        return bytes(file.data) if file is not None else None

    def replace_file(self, path: Path, data: bytes) -> None:
        self.step()
        self.take(len(data))
        file = self.files[path] = _File()
        file.data = bytearray(data)
        file.flushed = bytes(data)
        file.named = True

    def remove_file(self, path: Path) -> None:
        self.step()
        self.files.pop(path, None)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        depth = len(source.parts)
        for path in [path for path in self.files if path.parts[:depth] == source.parts]:
            self.files[target.joinpath(*path.parts[depth:])] = self.files.pop(path)

    def remove_tree(self, path: Path) -> None:
        self.step()
        for file in [file for file in self.files if file.parts[: len(path.parts)] == path.parts]:
            del self.files[file]

    def take(self, size: int) -> int:
        """How many of *size* bytes there is room for. :raises OSError: none at all."""
        if self.full_after_bytes is None:
            return size
        taken = min(size, self.full_after_bytes)
        self.full_after_bytes -= taken
        if taken == 0 and size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return taken


class MemoryLogFile:
    """A file of a :class:`MemoryFileSystem`."""

    def __init__(self, disk: MemoryFileSystem, file: _File) -> None:
        self._disk = disk
        self._file = file
        self.closed = False

    @property
    def size(self) -> int:
        return len(self._file.data)

    def _use(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "the file is closed")

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._use()
        data = b"".join(bytes(buffer) for buffer in buffers)
        try:
            self._disk.step()
        except Crash:
            self._file.data += data[: self._disk.crash_bytes]
            raise
        taken = self._disk.take(len(data))
        self._file.data += data[:taken]
        if taken < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def read(self, position: int, length: int) -> bytes:
        self._use()
        return bytes(self._file.data[position : position + length])

    def truncate(self, size: int) -> None:
        self._use()
        self._disk.step()
        if self._disk.fail_truncate:
            raise OSError(errno.EIO, "Input/output error")
        del self._file.data[size:]

    def flush(self) -> None:
        self._use()
        self._disk.step()
        if self._disk.fail_flush:
            raise OSError(errno.EIO, "Input/output error")
        self._file.flushed = bytes(self._file.data)
        self._file.named = True

    def move_to(self, path: Path) -> None:
        self._use()
        (source,) = (name for name, file in self._disk.files.items() if file is self._file)
        self._disk.rename(source, path)

    def close(self) -> None:
        self.closed = True
