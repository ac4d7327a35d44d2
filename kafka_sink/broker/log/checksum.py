"""Small files whose damage is detected when they are read, by a checksum at their end.

Used by the code that stores or loads such a file, under that code's lock. A file that differs in any bit from what was
stored must be rejected; its content must not be interpreted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from crc32c import crc32c

from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.common.errors import ConfigError

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
