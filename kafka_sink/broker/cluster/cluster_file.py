"""The file that stores the cluster's state, and that of the schema registry beside it.

Whoever owns the state uses it under a lock of its own. This module must not interpret the content.
"""

from __future__ import annotations

from pathlib import Path

from kafka_sink.broker.log.checksum import with_checksum, without_checksum
from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.common.errors import ConfigError


class ClusterFile:
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
