from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Header
from kafka_sink.records import batch, layout
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.reader import Looking, RecordBatchView, read_batches
from kafka_sink.records.reference import write_record
from tests.support.cases import with_each

Row = tuple[int, bytes | None, bytes | None, list[Header]]
ROWS: list[Row] = [(1000, b"key", b"value", []), (990, None, b"", [("h", b"x"), ("ß", None)]), (1010, b"", None, [])]


def body_of(rows: list[Row]) -> bytes:
    body = bytearray()
    for index, (timestamp, key, value, headers) in enumerate(rows):
        write_record(body, index, timestamp - 1000, key, value, headers)
    return bytes(body)


def wrap(body: bytes, count: int, kind: CompressionType = CompressionType.NONE, **fields: Any) -> bytes:
    """A batch around records, with a valid CRC whatever they are."""
    packed = compress(kind, body)
    header = bytearray(layout.HEADER_BYTES)
    known = {"last_offset_delta": count - 1, "base_timestamp": 1000, "max_timestamp": 1010, "record_count": count}
    batch.write_header(header, [packed], compression=kind, **{**known, **fields})
    return bytes(header + bytes(packed))


GOOD = wrap(body_of(ROWS), len(ROWS))
EDGE = 1 << 63


def test_the_brokers_time_goes_over_the_records_own() -> None:
    data = bytearray(GOOD)
    batch.set_log_append_time(data, 5555)
    (view,) = read_batches(data)
    assert [record.timestamp for record in view.records()] == [5555] * 3


@with_each("cut", [1, 10, len(GOOD) - 61, len(GOOD) - 20])
def test_a_last_batch_that_is_cut_off_is_left_out(cut: int) -> None:
    data = memoryview(wrap(body_of(ROWS), 3, base_offset=0) + wrap(body_of(ROWS), 3, base_offset=3) + GOOD[:-cut])
    assert [view.base_offset for view in read_batches(data)] == [0, 3]


def test_no_data_no_batches() -> None:
    assert list(read_batches(b"")) == []


def test_a_batch_of_another_format_ends_the_walk_with_an_error() -> None:
    with pytest.raises(CorruptRecordError, match="format version 0"):
        list(read_batches(GOOD + GOOD[:16] + b"\0" + GOOD[17:]))


def test_limit_of_a_batch() -> None:
    for kind in CompressionType:
        (view,) = read_batches(wrap(body_of([(1000, None, bytes(10_000), [])]), 1, kind))
        assert len(list(view.records(10_100))) == 1
        with pytest.raises(CorruptRecordError, match="limit of 10000"):
            list(view.records(10_000))


def record(fields: bytes) -> bytes:
    return encode_varint(len(fields)) + fields


@with_each(
    ("body", "message"),
    [
        (b"", "announces 1 records but holds 0"),
        (encode_varint(-5), "record 0 has an impossible length of -5 bytes"),
        (encode_varint(100) + b"\0\0\0", "record 0 of 102 bytes does not fit into 5"),
        (record(b"\0\0\0\1\1\0") + b"?", "1 bytes follow the last of 1 records"),
        (record(b"\0\0\0\1\1\0?"), "record ends at byte"),
        (record(b"\0\0\0\3\1\0"), "field has a length of -2"),
        (record(b"\0\0\0\x14ab\0"), "field of 10 bytes does not fit"),
        (record(b"\0\0\0\1\1\x14"), "announces 10 headers in 0 bytes"),
        (record(b"\0\0\0\1\1\1"), "announces -1 headers"),
        (record(b"\0\0\0\1\1\2\1\1"), "a header has no key"),
        (record(b"\0\0\0\1\1\2\2\xff\1"), "a header key is not UTF-8"),
        (record(b"\0\0\0\1\1\2\2h\1??"), "record ends at byte"),
        (record(b"\0\0\0"), "impossible length of 3 bytes"),
        (record(b"\0\0\0\1\1\xff"), "data ends within the varint"),
        (record(b"\0" + b"\xff" * 11 + b"\0\0\0\0"), "longer than 10 bytes"),
        (record(b"\0\0\0\4ab"), "data ends within the varint at byte 7"),
        (record(b"\0\0\0\1\1\4\0\1\0"), "announces 2 headers in 3 bytes"),
    ],
)
def test_damaged_records(body: bytes, message: str) -> None:
    data = wrap(body, 1)
    (view,) = read_batches(data)
    with pytest.raises(CorruptRecordError, match=message):
        list(view.records())


def test_a_record_does_not_read_on_into_the_next() -> None:
    body = record(b"\0\0\0\1\1\2") + record(b"\0\0\2\1\1\0")
    (view,) = read_batches(wrap(body, 2))
    with pytest.raises(CorruptRecordError):
        list(view.records())


def test_a_null_value_behind_the_end_of_its_record() -> None:
    """The next byte, which is an invalid length, would be read as null, and the one after it as no headers."""
    (view,) = read_batches(wrap(record(b"\0\0\0\4ab") + b"\1\0" + bytes(10), 2))
    with pytest.raises(CorruptRecordError, match="the record of offset 0: record announces 0 headers in -2 bytes"):
        list(view.records())


@with_each(("base", "delta", "fits"), [(EDGE - 1, 0, 1), (EDGE - 1, 1, 0), (-EDGE, 0, 1), (-EDGE, -1, 0)])
def test_timestamps_have_64_bits(base: int, delta: int, fits: int) -> None:
    body = bytearray()
    write_record(body, 0, delta, b"k", b"v")
    (view,) = read_batches(wrap(bytes(body), 1, base_timestamp=base))
    if fits:
        assert [each.timestamp for each in view.records()] == [base]
        return
    with pytest.raises(CorruptRecordError, match=f"its timestamp, {base + delta} ms, is beyond 64 bits"):
        list(view.records())


def test_a_record_has_131072_headers_at_most() -> None:
    def of(count: int) -> bytes:
        return wrap(record(b"\0\0\0\1\1" + encode_varint(count) + b"\0\1" * count), 1)

    (view,) = read_batches(of(1 << 17))
    assert [each.headers for each in view.records()] == [(("", None),) * (1 << 17)]
    (view,) = read_batches(of((1 << 17) + 1))
    with pytest.raises(CorruptRecordError, match="record has 131073 headers, more than 131072 are not read"):
        list(view.records())


def test_a_batch_has_256_mib_at_most_by_default() -> None:
    """The zeros use no memory until they are read, and then a MiB of them does."""
    zeros = memoryview(bytes(61 + (1 << 28) + 1))
    header = batch.parse_header(wrap(b"", 1))
    with pytest.raises(CorruptRecordError, match="268435457 bytes of records are more than the limit of 268435456"):
        next(RecordBatchView(header, zeros).records())
    with pytest.raises(CorruptRecordError, match="record 0 has an impossible length of 0 bytes"):
        next(RecordBatchView(header, zeros[:-1]).records())


@with_each("kind", CompressionType)
@with_each("deltas", [[0, 1, 2, 3, 4], [0, 2, 3, 7, 8], [3, 8]])
def test_records_from_any_offset_on(kind: CompressionType, deltas: list[int]) -> None:
    """Also in a batch with missing records, where a record's number does not give its offset."""
    body = bytearray()
    for delta in deltas:
        write_record(body, delta, 0, b"%d" % delta, None)
    (view,) = read_batches(wrap(bytes(body), len(deltas), kind, base_offset=40, last_offset_delta=deltas[-1]))
    for start in range(38, 51):
        found = [(each.offset, each.key) for each in view.records(start=start)]
        assert found == [(40 + delta, b"%d" % delta) for delta in deltas if 40 + delta >= start]


def test_damage_before_the_start_is_passed_over() -> None:
    body = bytearray(record(b"\0\0\0\1\1?"))
    write_record(body, 1, 0, None, b"sound")
    (view,) = read_batches(wrap(bytes(body), 2, base_offset=40))
    assert [each.value for each in view.records(start=41)] == [b"sound"]
    with pytest.raises(CorruptRecordError, match="the record of offset 40"):
        list(view.records(start=40))


def test_an_offset_before_the_batch_is_damage() -> None:
    body = bytearray()
    write_record(body, -1, 0, None, b"v")
    (view,) = read_batches(wrap(bytes(body), 1, base_offset=40))
    with pytest.raises(CorruptRecordError, match="its offset is 39, expected 40 to 40"):
        list(view.records(start=30))


def test_people_who_look_are_asked_and_have_limits() -> None:
    ticks: list[str] = []
    (view,) = read_batches(GOOD)
    found = list(view.records(looking=Looking(lambda: ticks.append("tick"))))
    assert (found, ticks) == (list(view.records()), ["tick"])
    (shown,) = view.records(looking=Looking(most_record_bytes=8))
    assert shown.problem.endswith("is larger than the limit of 8")
    for size, problem in ((2**31 - 1, "does not fit into"), (2**31, "is larger than the limit of 2147483647")):
        (view,) = read_batches(wrap(encode_varint(size) + bytes(10), 1))
        (shown,) = view.records(looking=Looking())
        assert problem in shown.problem


def test_a_thousand_damaged_records_of_a_batch_are_shown() -> None:
    body = record(b"\0\0\0\1\1\0") * 5000
    (view,) = read_batches(wrap(body, 5000, CompressionType.ZSTD))
    shown = list(view.records(looking=Looking()))
    assert len(shown) == 1 + 1000 + 1 and shown[0].problem == ""
    assert {each.problem.partition(",")[0] for each in shown[1:-1]} == {"its offset is 0"}
    assert shown[-1].problem == "from here on the batch cannot be read: 1,000 of its records are damaged"
