"""A batch after a compaction, compared with the batch that an encoder makes of the same records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Header
from kafka_sink.records.batch import BatchHeader, parse_header, with_records
from kafka_sink.records.compacted import KeyedRecord, emptied, filtered, gap, keyed_records, parse_records, read_keyed
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.reader import RecordBatchView, read_batches
from kafka_sink.records.reference import write_record
from tests.support.cases import with_each

#: Offset delta, timestamp, key, value and headers; with offsets left out, as after an earlier compaction.
Row = tuple[int, int, bytes | None, bytes | None, list[Header]]
ROWS: list[Row] = [
    (0, 1005, b"a", b"1", [("h", b"x")]),
    (2, 990, b"b", None, []),
    (3, 980, b"c", b"v" * 300, []),
    (70, 1200, b"d", None, []),
    (71, 985, None, b"", []),
    (90, 1100, b"", b"2", []),
]
HEADER = BatchHeader(
    40,
    partition_leader_epoch=3,
    last_offset_delta=99,
    base_timestamp=1000,
    max_timestamp=1200,
    producer_id=5,
    producer_epoch=2,
    base_sequence=7,
)
HORIZON_BIT = 0x40
HORIZON_MS = 900_000


def batch_of(rows: list[Row], **fields: Any) -> RecordBatchView:
    header = replace(HEADER, record_count=len(rows), **fields)
    body = bytearray()
    for offset_delta, timestamp, key, value, headers in rows:
        write_record(body, offset_delta, timestamp - header.base_timestamp, key, value, headers)
    (view,) = read_batches(with_records(header, compress(header.compression, body)))
    return view


def only(*offset_deltas: int) -> list[Row]:
    return [row for row in ROWS if row[0] in offset_deltas]


def cut(batch: RecordBatchView, *offset_deltas: int, dated: bool = False) -> bytes | None:
    found = filtered(batch, lambda record: record.offset_delta in offset_deltas, HORIZON_MS, dated=dated)
    return None if found is None else bytes(found)


def test_records_with_their_keys() -> None:
    found = [record for _, record in keyed_records(batch_of(ROWS))]
    assert [record[:4] for record in found] == [
        (timestamp - 1000, delta, key, value is not None) for delta, timestamp, key, value, _ in ROWS
    ]
    for (data, start, end), record in keyed_records(batch_of(ROWS)):
        whole = bytearray()
        write_record(whole, record.offset_delta, record.timestamp_delta, None, None)
        # Attributes and deltas, without the length before them, and the three bytes after them.
        assert data[start : record.content_at] == whole[1:-3]
        assert 0 < end <= len(data)


# Also with nothing after the value, where the number of headers should be.
@with_each("key", [None, b"", b"key"])
@with_each("value", [None, b"", b"value"])
@with_each("cut", [0, 1])
def test_the_key_of_a_record_among_others(key: bytes | None, value: bytes | None, cut: int) -> None:
    data = bytearray(b"before")
    write_record(data, 3, -70, key, value)
    start, end = len(b"before") + 1, len(data) - cut
    found = read_keyed((bytes(data) + b"behind", start, end))
    assert found == KeyedRecord(-70, 3, key, value is not None, start + 1 + 2 + 1)


@with_each(("field", "said"), [(b"\x08k\x01\0", (4, 0)), (b"\x02k\x06v\0", (1, 3)), (b"\x01\x0a\0\0\0", (-1, 5))])
def test_a_field_that_goes_beyond_its_record(field: bytes, said: tuple[int, int]) -> None:
    record = b"\0\0\0" + field
    with pytest.raises(CorruptRecordError, match=f"a key of {said[0]} bytes and a value of {said[1]} go beyond"):
        read_keyed((record + bytes(20), 0, len(record)))


@with_each(("offset_delta", "is_within"), [(-1, False), (0, True), (99, True), (100, False)])
def test_offsets_beyond_the_batch(offset_delta: int, is_within: bool) -> None:
    batch = batch_of([(offset_delta, 1000, b"k", b"v", [])])
    if is_within:
        assert [record.offset_delta for _, record in keyed_records(batch)] == [offset_delta]
        return
    with pytest.raises(CorruptRecordError, match=f"a record has the offset delta {offset_delta} in"):
        list(keyed_records(batch))


KINDS = [CompressionType.NONE, CompressionType.ZSTD]


# The attribute bits: log append time, transactional, both.
@with_each("kind", KINDS)
@with_each("bits", [0x00, 0x08, 0x10, 0x18])
def test_what_is_kept_is_copied(kind: CompressionType, bits: int) -> None:
    attributes = kind | bits
    batch = batch_of(ROWS, attributes=attributes)
    for kept, newest in (((0, 3, 90), 1100), ((3, 71), 985), ((71,), 985), ((0,), 1005)):
        expected = batch_of(only(*kept), attributes=attributes, max_timestamp=1200 if bits & 0x08 else newest)
        assert cut(batch, *kept) == expected.data
    assert cut(batch) is None


@with_each("kind", KINDS)
@with_each("bits", [0x00, 0x08, 0x10])
def test_the_first_tombstone_that_is_kept_dates_a_batch(kind: CompressionType, bits: int) -> None:
    batch = batch_of(ROWS, attributes=kind | bits)
    dated = {"attributes": kind | bits | HORIZON_BIT, "base_timestamp": HORIZON_MS}
    for kept, newest in (((0, 2, 3, 70, 71, 90), 1200), ((2, 3), 990), ((0, 70), 1200), ((0, 2, 90), 1100)):
        expected = batch_of(only(*kept), **dated, max_timestamp=1200 if bits & 0x08 else newest)
        assert cut(batch, *kept) == expected.data
    # And without a tombstone.
    expected = batch_of(only(0, 3), **dated, max_timestamp=1200 if bits & 0x08 else 1005)
    assert cut(batch, 0, 3, dated=True) == expected.data
    assert cut(batch, dated=True) is None


def test_a_batch_is_dated_once() -> None:
    batch = batch_of(ROWS, attributes=HORIZON_BIT)
    for dated in (False, True):
        assert filtered(batch, lambda _: True, HORIZON_MS, dated=dated) is batch.data
        expected = batch_of(only(2, 71), attributes=HORIZON_BIT, max_timestamp=990)
        assert cut(batch, 2, 71, dated=dated) == expected.data


def test_a_batch_with_nothing_to_remove_stays_as_it_is() -> None:
    batch = batch_of(only(0, 3, 90), attributes=CompressionType.GZIP)
    assert filtered(batch, lambda _: True, HORIZON_MS) is batch.data


def test_bytes_that_no_encoder_writes_are_copied_too() -> None:
    """A record with attributes, and with deltas in more bytes than necessary."""
    strange = b"\x10\x05\x82\0\x82\0\1\0\0"
    body = bytearray(strange)
    write_record(body, 2, 0, b"k", b"v")
    (view,) = read_batches(with_records(replace(HEADER, record_count=2), body))
    assert cut(view, 1) == with_records(replace(HEADER, max_timestamp=1001, record_count=1), strange)


def test_a_batch_without_its_records_keeps_its_producer() -> None:
    data = emptied(replace(HEADER, record_count=6, attributes=0x7F))
    assert parse_header(data) == replace(
        HEADER,
        batch_length=49,
        crc=parse_header(data).crc,
        attributes=0x08 | 0x10 | 0x20,
        base_timestamp=-1,
        record_count=0,
    )
    assert len(data) == 61


def test_a_gap_byte_by_byte() -> None:
    data = gap(40, 139, 3, 1200)
    header = BatchHeader(
        40, 49, partition_leader_epoch=3, crc=parse_header(data).crc, last_offset_delta=99, max_timestamp=1200
    )
    assert parse_header(data) == header and header.is_gap
    assert len(data) == 61


@with_each(
    ("data", "message"),
    [
        (b"\x09", "record 0 of -5 bytes does not fit into 0"),
        (b"\x0c" + bytes(5), "record 0 of 6 bytes does not fit into 5"),
        (b"\x0c" + bytes(6) + b"\x01", "record 1 of -1 bytes does not fit into 0"),
        (b"\0", "data ends within the varint"),
    ],
)
def test_lengths_that_cannot_be(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        parse_records(data)
