"""Variable-length integers, one at a time: zig-zag ones, and unsigned ones.

The encoders call it on the task's thread, and the reader on any thread. It never accepts more bytes than the type
allows: a longer varint is damaged.

Source: https://kafka.apache.org/documentation/#recordbatch, KIP-98 (Protocol Buffers' ``sint32`` and ``sint64``).
"""

from __future__ import annotations

from typing import Final

from kafka_sink.common.errors import CorruptRecordError

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10
NULL_LENGTH: Final = b"\x01"

_UINT64: Final = 0xFFFF_FFFF_FFFF_FFFF


def encode_unsigned_varint(value: int) -> bytes:
    """The bytes of *value*, an unsigned 64-bit number, without zig-zag."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _encode(value: int) -> bytes:
    return encode_unsigned_varint(((value << 1) ^ (value >> 63)) & _UINT64)


# Lengths and deltas are nearly always small and never negative, so a lookup replaces the loop. Two bytes hold these.
_SMALL_LIMIT: Final = 1 << 13
_SMALL: Final = tuple(_encode(value) for value in range(_SMALL_LIMIT))


def encode_varint(value: int) -> bytes:
    """The bytes of *value* (any signed 64-bit number; a 32-bit one takes at most five)."""
    return _SMALL[value] if 0 <= value < _SMALL_LIMIT else _encode(value)


def varint_size(value: int) -> int:
    """The number of bytes of :func:`encode_varint` for *value*."""
    if 0 <= value < _SMALL_LIMIT:
        return 1 if value < 64 else 2
    return unsigned_varint_size(((value << 1) ^ (value >> 63)) & _UINT64)


def unsigned_varint_size(value: int) -> int:
    """The number of bytes of :func:`encode_unsigned_varint` for *value*."""
    return max(1, -(-value.bit_length() // 7))


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The 32-bit number at *position*, and the position after it.

    :raises CorruptRecordError: if the data ends within the number, or the number is longer than five bytes.
    """
    if position < len(data) and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(data, position, MAX_VARINT_BYTES)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """The 64-bit number at *position*, and the position after it.

    :raises CorruptRecordError: if the data ends within the number, or the number is longer than ten bytes.
    """
    if position < len(data) and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read(data, position, MAX_VARLONG_BYTES)


def _read(data: bytes, position: int, limit: int) -> tuple[int, int]:
    start = position
    try:
        byte = data[position]
        raw = byte & 0x7F
        shift = 0
        while byte > 0x7F:
            position += 1
            if position - start == limit:
                raise CorruptRecordError(f"varint at byte {start} is longer than {limit} bytes")
            byte = data[position]
            shift += 7
            raw |= (byte & 0x7F) << shift
    except IndexError:
        raise CorruptRecordError(f"data ends within the varint at byte {start}") from None
    raw &= _UINT64
    return (raw >> 1) ^ -(raw & 1), position + 1
