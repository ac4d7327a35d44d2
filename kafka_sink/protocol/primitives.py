"""The encodings of lengths, strings, bytes and tags, in their classic and their compact (KIP-482) form.

Encoder and decoder build their closures from these functions; any thread, no state. They must not allocate memory by a
length before comparing it with the remaining data, and must not copy ``records``.

Source: Kafka protocol guide, "Protocol primitive types".
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ProtocolError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")

#: The length that represents null.
NULL: Final = -1

#: Kafka's limit on the size of a string, also in the compact form, whose length field allows more.
MAX_STRING_BYTES: Final = 0x7FFF


class ByteWriter(bytearray):
    """The bytes of a message while it is encoded, and the positions at which other buffers are inserted."""

    __slots__ = ("_splices",)

    def __init__(self) -> None:
        super().__init__()
        self._splices: list[tuple[int, Buffer]] = []

    def splice(self, buffer: Buffer) -> None:
        """Insert *buffer* after the bytes written so far, without copying it."""
        self._splices.append((len(self), buffer))

    def segments(self) -> list[Buffer]:
        """All bytes and buffers in order; nothing may be written to the writer afterwards."""
        if not self._splices:
            return [self]
        view = memoryview(self)
        segments: list[Buffer] = []
        start = 0
        for end, buffer in self._splices:
            if end > start:
                segments.append(view[start:end])
            segments.append(buffer)
            start = end
        if start < len(self):
            segments.append(view[start:])
        return segments


def read_uvarint(data: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits at *pos*, and the next position."""
    byte = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, pos + 1
    raise ProtocolError("varint is longer than 32 bits")


def write_uvarint(out: ByteWriter, value: int) -> None:
    """Append *value* (0 to 2**32 - 1) as an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_int16_length(data: memoryview, pos: int) -> tuple[int, int]:
    """The length of a classic string; :data:`NULL` for null."""
    (length,) = _INT16.unpack_from(data, pos)
    if length < NULL:
        raise ProtocolError(f"negative length {length}")
    return length, pos + 2


def read_int32_length(data: memoryview, pos: int) -> tuple[int, int]:
    """The length of classic bytes or of a classic array; :data:`NULL` for null."""
    (length,) = _INT32.unpack_from(data, pos)
    if length < NULL:
        raise ProtocolError(f"negative length {length}")
    return length, pos + 4


def read_compact_length(data: memoryview, pos: int) -> tuple[int, int]:
    """A compact length, which is encoded as length + 1 so that 0 represents null."""
    byte = data[pos]
    if byte < 0x80:
        return byte - 1, pos + 1
    value, pos = read_uvarint(data, pos)
    return value - 1, pos


def write_int16_length(out: ByteWriter, length: int) -> None:
    """Append the length of a classic string; :data:`NULL` for null."""
    out += _INT16.pack(length)


def write_int32_length(out: ByteWriter, length: int) -> None:
    """Append the length of classic bytes or of a classic array; :data:`NULL` for null."""
    out += _INT32.pack(length)


def write_compact_length(out: ByteWriter, length: int) -> None:
    """Append a compact length; :data:`NULL` for null."""
    if length < 0x7F:
        out.append(length + 1)
    else:
        write_uvarint(out, length + 1)


def end_of(data: memoryview, pos: int, length: int) -> int:
    """The end of *length* bytes at *pos*. :raises ProtocolError: if the data ends before."""
    end = pos + length
    if end > len(data):
        raise ProtocolError(f"length {length} exceeds the {len(data) - pos} bytes that are left")
    return end


def skip_tags(data: memoryview, pos: int) -> int:
    """The position after a block of tagged fields, all of which are ignored."""
    count, pos = read_uvarint(data, pos)
    for _ in range(count):
        _, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        pos = end_of(data, pos, size)
    return pos
