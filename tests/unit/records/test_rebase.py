"""Encoded records are split and written again for another position."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Header
from kafka_sink.records import reference
from kafka_sink.records.compacted import parse_records, write_content
from tests.support.cases import with_each

ROWS: list[tuple[int, bytes | None, bytes | None, list[Header]]] = [
    (0, b"key", b"value", [("h", b"x")]),
    (-5, None, None, []),
    (2**40, b"", b"v" * 300, [("h", None)]),
]


def encoded(first_offset: int, base: int) -> bytearray:
    target = bytearray()
    for number, (timestamp, key, value, headers) in enumerate(ROWS):
        reference.write_record(target, first_offset + number, timestamp - base, key, value, headers)
    return target


@with_each("first_offset", [0, 63, 8191, 1_000_000])
@with_each("base", [0, -5, 2**40])
def test_rebased_records_equal_those_encoded_at_the_new_place(first_offset: int, base: int) -> None:
    records = parse_records(encoded(100, 17))
    assert sum(record.size_bytes for record in records) == len(encoded(100, 17))
    target = bytearray()
    for number, record in enumerate(records):
        write_content(target, first_offset + number, record.timestamp_delta + 17 - base, record.content)
    assert target == encoded(first_offset, base)


@pytest.mark.parametrize("cut", [1, 3, 8])
def test_a_record_that_is_cut_off_is_damage(cut: int) -> None:
    with pytest.raises(CorruptRecordError):
        parse_records(encoded(0, 0)[:-cut])
