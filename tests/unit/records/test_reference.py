from __future__ import annotations

import pytest

from kafka_sink.common.model import Header
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size, record_size_upper_bound, write_record


@pytest.mark.behaviour("Record format", "Records have the exact bytes of Kafka's format, version 2")
def test_a_record_byte_by_byte() -> None:
    target = bytearray(b"before")
    write_record(target, 3, -1, b"key", b"value", [("h", b"x"), ("n", None)])
    assert target.hex(" ") == " ".join(
        (
            b"before".hex(" "),
            "2a",  # 21 bytes follow
            "00",  # attributes
            "01",  # timestamp delta -1
            "06",  # offset delta 3
            "06 6b 65 79",
            "0a 76 61 6c 75 65",
            "04",  # two headers
            "02 68 02 78",
            "02 6e 01",  # null value
        )
    )


def test_nulls_are_not_empty() -> None:
    null, empty = bytearray(), bytearray()
    write_record(null, 0, 0, None, None)
    write_record(empty, 0, 0, b"", b"")
    assert null.hex() == "0c000000010100"
    assert empty.hex() == "0c000000000000"


@pytest.mark.parametrize(
    ("offset_delta", "timestamp_delta", "key", "value", "headers"),
    [
        (0, 0, None, None, []),
        (64, -(1 << 40), b"k" * 63, b"v" * 64, [("ß" * 40, b"x" * 8192), ("", None)]),
        ((1 << 31) - 1, (1 << 62), b"", b"v" * 70_000, []),
    ],
)
def test_sizes(offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes, headers: list[Header]) -> None:
    target = bytearray()
    write_record(target, offset_delta, timestamp_delta, key, value, headers)
    assert record_size(offset_delta, timestamp_delta, key, value, headers) == len(target)
    assert record_size_upper_bound(key, value, headers) >= HEADER_BYTES + len(target)


def test_upper_bound_of_a_size() -> None:
    """The header of a batch, 61 bytes, and Kafka's bound for length, attributes and deltas, 5 + 1 + 10 + 5."""
    assert record_size_upper_bound(None, None) == 61 + 21 + 1 + 1 + 1
    assert record_size_upper_bound(b"k", b"v" * 64, [("h", None)]) == 61 + 21 + 2 + 66 + (1 + 2 + 1)
