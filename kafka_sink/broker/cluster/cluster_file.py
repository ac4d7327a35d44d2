"""The file that stores the cluster's state, for one process or shared by several.

The cluster state uses it under its own lock. A process that shares the file changes it only while it holds
:meth:`exclusive`, and after it has read what other processes wrote. This module must not interpret the content.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path

from kafka_sink.broker.file_lock import FileLock
from kafka_sink.broker.log.checksum import with_checksum, without_checksum
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.common.errors import ConfigError

#: Identifies one version of the file; each write replaces the file and so changes the signature.
_Signature = tuple[int, int, int]


class ClusterFile:
    """``cluster.json`` in *directory*."""

    def __init__(self, directory: Path, filesystem: FileSystem, *, shared: bool) -> None:
        self.path = directory / "cluster.json"
        self.shared = shared
        self._lock_path = directory / ".cluster.lock"
        self._filesystem = filesystem
        self._seen: _Signature | None = None
        filesystem.make_directories(directory)

    def exclusive(self) -> AbstractContextManager[object]:
        """Prevent other processes from changing the file in the meantime; blocks until the lock is available."""
        return FileLock(self._lock_path, wait=True) if self.shared else contextlib.nullcontext()

    def read(self) -> bytes | None:
        """The content, or None if there is no file yet.

        :raises ConfigError: if the file does not hold what was written.
        """
        # Taken before reading: a file that is replaced in between is read once more, never missed.
        self._seen = self._signature()
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
        self._seen = self._signature()

    def changed(self) -> bool:
        """Whether another process has written since this one last read or wrote."""
        return self.shared and self._signature() != self._seen

    def _signature(self) -> _Signature | None:
        if not self.shared:
            return None
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
