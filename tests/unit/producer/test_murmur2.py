from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.columns.record_columns import BinaryColumn
from kafka_sink.producer.plugins.partitioner import murmur2, murmur2_array, positive_murmur2
from tests.support.cases import with_each

# From Kafka's UtilsTest.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.behaviour("Partitioner", "murmur2 gives the values of Kafka's own tests")
@with_each(("data", "expected"), VECTORS.items())
def test_kafkas_vectors(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFF_FFFF
    assert positive_murmur2(data) == expected & 0x7FFF_FFFF, "without the sign bit"


def test_kafkas_vectors_as_a_column() -> None:
    hashes = murmur2_array(BinaryColumn.from_arrow(pa.array(list(VECTORS))))
    assert hashes.dtype == np.int32
    assert hashes.tolist() == list(VECTORS.values())


def hashes_of(keys: Sequence[bytes | None]) -> list[int]:
    """The hashes as unsigned numbers."""
    hashes: list[int] = murmur2_array(BinaryColumn.from_arrow(pa.array(keys, pa.binary()))).view(np.uint32).tolist()
    return hashes


# Lengths around the word, the step in which long keys are mixed, and the widths by which lengths are sorted.
@with_each("length", [0, 1, 2, 3, 4, 5, 7, 8, 60, 63, 64, 65, 66, 67, 68, 127, 128, 130])
def test_keys_of_one_length(length: int) -> None:
    keys = [bytes((row * 7 + at) % 256 for at in range(length)) for row in range(9)]
    assert hashes_of(keys) == [murmur2(key) for key in keys]


@with_each("longest", [70, 255, 256, 65_535, 65_536])
def test_keys_of_many_lengths(longest: int) -> None:
    keys = [bytes([length % 251]) * length for length in (3, longest, 0, 64, longest - 1, 65, 8, longest - 5, 1)]
    assert hashes_of(keys) == [murmur2(key) for key in keys]


def test_keys_of_all_lengths_round_two_steps() -> None:
    keys = [bytes([length]) * length for length in range(140)]
    assert hashes_of(keys) == [murmur2(key) for key in keys]


def test_null_rows_do_not_disturb_others() -> None:
    keys = [b"a", None, b"bcdef", None]
    hashes = hashes_of(keys)
    assert (hashes[0], hashes[2]) == (murmur2(b"a"), murmur2(b"bcdef"))


def test_no_rows() -> None:
    assert murmur2_array(BinaryColumn.from_arrow(pa.array([], pa.binary()))).tolist() == []
