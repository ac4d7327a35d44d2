"""A checksum at the end of a small file, with which damage is detected when the file is read.

Called by the code that stores or loads such a file, under that code's lock; pure. A file that differs in any bit from
what was stored must be rejected.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

#: A line break and eight hexadecimal digits.
_TRAILER_BYTES: Final = 9


def with_checksum(content: bytes) -> bytes:
    """*content* and its CRC-32C in hexadecimal digits, on a line of its own."""
    return content + b"\n%08x" % crc32c(content)


def without_checksum(data: bytes) -> bytes | None:
    """The content of a file that :func:`with_checksum` created, None if it is damaged."""
    content = data[:-_TRAILER_BYTES]
    return content if with_checksum(content) == data else None
