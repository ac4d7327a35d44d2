from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from kafka_sink.columns.gather import varint_sizes, zigzag_array
from kafka_sink.columns.varint import encode_varint, read_varint, read_varlong, varint_size
from kafka_sink.common.errors import CorruptRecordError
from tests.support.cases import with_each

Read: TypeAlias = Callable[[bytes, int], tuple[int, int]]

# The edges of the encoded size, and one number to either side.
EDGES = sorted(
    {
        sign * value
        for bits in range(0, 63)
        for value in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1)
        for sign in (1, -1)
    }
    | {(1 << 63) - 1, -(1 << 63)}
)


# From Kafka's ByteUtilsTest.
@with_each(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (-8193, "818001"),
        (1048575, "feff7f"),
        (1048576, "80808001"),
        (134217727, "feffff7f"),
        (134217728, "8080808001"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
        (17179869183, "feffffff7f"),
        (17179869184, "808080808001"),
        (9223372036854775807, "feffffffffffffffff01"),
        (-9223372036854775808, "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@with_each("value", EDGES)
def test_size_is_that_of_the_encoding(value: int) -> None:
    assert varint_size(value) == len(encode_varint(value))
    assert varint_sizes(value) == len(encode_varint(value))


def test_sizes_of_arrays_are_those_of_their_values() -> None:
    values = np.array(EDGES, dtype=np.int64)
    assert np.asarray(varint_sizes(values)).tolist() == [varint_size(value) for value in EDGES]


@with_each(("values", "size"), [([], 0), ([5, 5], 1), ([0, 63, -64], 1), ([64, 8191, 700], 2)])
def test_equal_sizes_are_one_number(values: list[int], size: int) -> None:
    assert varint_sizes(np.array(values, dtype=np.int64)) == size


def test_zigzag_interleaves_the_signs() -> None:
    found = zigzag_array(np.array([0, -1, 1, -2, (1 << 63) - 1, -(1 << 63)], dtype=np.int64))
    assert found.tolist() == [0, 1, 2, 3, (1 << 64) - 2, (1 << 64) - 1]


def test_reading_goes_on_where_the_number_ends() -> None:
    data = b"?" + encode_varint(-300) + encode_varint(7)
    value, position = read_varint(data, 1)
    assert (value, position) == (-300, 3)
    assert read_varint(data, position) == (7, 4)


@with_each("read", [read_varint, read_varlong])
@with_each("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
@with_each("before", [b"", b"\x01\x02\x03"])
def test_a_number_that_is_cut_off_is_damage(read: Read, data: bytes, before: bytes) -> None:
    with pytest.raises(CorruptRecordError, match=f"data ends within the varint at byte {len(before)}"):
        read(before + data, len(before))


# At any position, a number may have as many bytes as its type allows.
@with_each(("read", "limit"), [(read_varint, 5), (read_varlong, 10)])
@with_each("position", range(12))
def test_more_bytes_than_the_type_has_are_damage(read: Read, limit: int, position: int) -> None:
    most = bytes(position) + b"\x80" * (limit - 1) + b"\x01"
    assert read(most, position) == (1 << 7 * (limit - 1) - 1, position + limit)
    with pytest.raises(CorruptRecordError, match=f"varint at byte {position} is longer than {limit} bytes"):
        read(bytes(position) + b"\x80" * limit + b"\x01", position)
