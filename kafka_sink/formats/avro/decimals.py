"""Decimals as two's complement numbers, big end first: of as few bytes as possible, or of a given number.

Called on the task's thread. Its input is Arrow's: 16 bytes for each value, little end first.

Source: https://avro.apache.org/docs/1.12.0/specification/#decimal, java.math.BigInteger.toByteArray.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.columns.gather import Field, UInt64s, Words, constant_field
from kafka_sink.formats.fields import decimal_halves

_WORD_BYTES: Final = 8
_BYTES: Final = 16


def decimal_fields(array: pa.Array) -> list[Field]:
    """For ``bytes``: the length, then the value in as few bytes as it needs."""
    low, high = decimal_halves(array)
    size, least, most = _sizes(low, high)
    length = Field(size << np.uint64(1), 1, 1, 1) if isinstance(size, np.ndarray) else constant_field(bytes([2 * size]))
    return [length, *_big_endian(low, high, size, least, most)]


def fixed_decimal_fields(array: pa.Array, size: int) -> list[Field]:
    """For ``fixed``: the value in *size* bytes, which it fits into."""
    low, high = decimal_halves(array)
    fields = _big_endian(low, high, min(size, _BYTES), min(size, _BYTES), min(size, _BYTES))
    sign = _sign(high)
    for taken in range(_BYTES, size, _WORD_BYTES):
        width = min(size - taken, _WORD_BYTES)
        fields.insert(0, Field(sign >> np.uint64(8 * (_WORD_BYTES - width)), width, width, width))
    return fields


def _sign(high: UInt64s) -> UInt64s:
    """All bits of a negative value, none of another."""
    return (high.view(np.int64) >> np.int64(63)).view(np.uint64) if high.flags.c_contiguous else _sign(high.copy())


def _sizes(low: UInt64s, high: UInt64s) -> tuple[Words, int, int]:
    """The fewest bytes of each value, and the bounds of them."""
    sign = _sign(high)
    # Of a negative value the bits that are 0 count: the sign is the bit before the highest of them.
    low, high = low ^ sign, high ^ sign
    most_high, most_low = int(high.max(initial=0)), int(low.max(initial=0))
    if most_high == 0:
        least, most = _bytes_of(int(low.min(initial=0))), _bytes_of(most_low)
    else:
        least, most = 1, _bytes_of(most_high << 64 | most_low)
    if least == most:
        return least, least, most
    size = np.full(len(low), least, dtype=np.uint64)
    for count in range(least, most):
        bits = 8 * count - 1
        if bits < 64:
            size += (low >= np.uint64(1 << bits)) | (high != 0)
        else:
            size += high >= np.uint64(1 << (bits - 64))
    return size, least, most


def _bytes_of(magnitude: int) -> int:
    return magnitude.bit_length() // 8 + 1


def _big_endian(low: UInt64s, high: UInt64s, size: Words, least: int, most: int) -> list[Field]:
    """The lowest *size* bytes of each value, the highest of them first."""
    fields = []
    if most > _WORD_BYTES:
        rest = _at_most(size, _WORD_BYTES, above=True)
        fields.append(_word(high, rest, max(least - _WORD_BYTES, 0), most - _WORD_BYTES))
    here = _at_most(size, _WORD_BYTES, above=False)
    fields.append(_word(low, here, min(least, _WORD_BYTES), min(most, _WORD_BYTES)))
    return fields


def _at_most(size: Words, limit: int, *, above: bool) -> Words:
    """What of *size* is within *limit*, or *above* it."""
    if isinstance(size, int):
        return max(size - limit, 0) if above else min(size, limit)
    within: NDArray[Any] = np.minimum(size, np.uint64(limit))
    return size - within if above else within


def _word(half: UInt64s, size: Words, least: int, most: int) -> Field:
    # Shifted to the top and reversed, the bytes that are asked for come first. numpy shifts by 64 bits to 0.
    shift = np.uint64(64) - (np.asarray(size, dtype=np.uint64) << np.uint64(3))
    shifted: UInt64s = half << shift
    return Field(shifted.byteswap(), size, least, most)
