"""A file system that fails when a fault is due: the disk is full in the middle of a write, or a flush fails.

It wraps the real file system of an embedded cluster. Called under a partition's lock by handler threads, and by the
housekeeping thread. Reads have no overhead; a write costs one check of an empty tuple. Operations that do not fail must
be passed on unchanged.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from kafka_sink.broker.faults.faults import DISK_FLUSH, DISK_WRITE, Faults
from kafka_sink.broker.log.filesystem import FileSystem, LogFile
from kafka_sink.common.buffers import Buffer


class FaultyFileSystem:
    """*disk*, with the faults of *faults* applied to the files to which logs append."""

    def __init__(self, disk: FileSystem, faults: Faults) -> None:
        self._disk = disk
        self._faults = faults
        # All methods except open() are those of *disk*.
        self.make_directories = disk.make_directories
        self.list_directory = disk.list_directory
        self.read_file = disk.read_file
        self.replace_file = disk.replace_file
        self.remove_file = disk.remove_file
        self.rename = disk.rename
        self.remove_tree = disk.remove_tree

    def open(self, path: Path) -> LogFile:
        topic, separator, partition = path.parent.name.rpartition("-")
        file = self._disk.open(path)
        if not separator or not partition.isdigit():
            return file
        return _FaultyFile(file, self._faults, topic, int(partition))


class _FaultyFile:
    """A file of one partition."""

    def __init__(self, file: LogFile, faults: Faults, topic: str, partition: int) -> None:
        self._file = file
        self._faults = faults
        self._topic = topic
        self._partition = partition
        self.read = file.read
        self.truncate = file.truncate
        self.move_to = file.move_to
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, buffers: Sequence[Buffer]) -> None:
        if self._faults.of_disk and self._faults.disk_fails(DISK_WRITE, self._topic, self._partition):
            data = b"".join(memoryview(buffer) for buffer in buffers)
            self._file.append([data[: len(data) // 2]])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._file.append(buffers)

    def flush(self) -> None:
        if self._faults.of_disk and self._faults.disk_fails(DISK_FLUSH, self._topic, self._partition):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._file.flush()
