"""The vectorised encoder against the plain one, the reader against both, and the reader against damage."""

from __future__ import annotations

import base64
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk, HeadersColumn
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode
from kafka_sink.producer.plugins.partitioner import murmur2, murmur2_array
from kafka_sink.records import layout
from kafka_sink.records.batch import write_header
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.message_sets import read_all_formats
from kafka_sink.records.reader import Looking, read_batches
from kafka_sink.records.reference import record_size, write_record
from kafka_sink.records.vectorized import content_sizes, encode_records, partition_order, sizes_from_content
from tests.fakes.record_batches import validated
from tests.support.amounts import examples
from tests.support.unpacked import decompress

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GOLDEN = Path(__file__).parents[1] / "golden" / "records"
DECOMPRESSED_BYTES = 1 << 20

Rows = list[bytes | None]
Entries = list[tuple[str, bytes | None]]


@st.composite
def byte_columns(draw: st.DrawFn, rows: int) -> Rows:
    """Rows of one length or of many, with or without nulls, short ones and ones that cross the lengths of varints."""
    longest = draw(st.sampled_from([0, 1, 4, 7, 8, 9, 12, 13, 30, 64, 65, 200, 8200]))
    if longest > 200:
        # Repeats a pattern: only the length matters, and hypothesis would take long to draw so many bytes.
        sizes = draw(st.lists(st.integers(0, longest), min_size=rows, max_size=rows))
        return [b"0123456789"[: 1 + size % 10] * (size // (1 + size % 10)) for size in sizes]
    shortest = draw(st.sampled_from([0, longest]))
    row = st.binary(min_size=shortest, max_size=longest)
    if draw(st.booleans()):
        row = st.none() | row  # type: ignore[assignment]
    return draw(st.lists(row, min_size=rows, max_size=rows))


@st.composite
def deltas(draw: st.DrawFn, rows: int, limit: int) -> list[int]:
    """Numbers of all magnitudes below *limit*, of either sign, or all equal."""
    bits = draw(st.sampled_from([0, 3, 6, 7, 13, 14, 31, 56, limit]))
    edge = min(1 << bits, (1 << limit) - 1)
    if draw(st.booleans()):
        return [draw(st.integers(-edge, edge))] * rows
    return draw(st.lists(st.integers(-edge, edge), min_size=rows, max_size=rows))


header_entries = st.none() | st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=3)
LAYOUTS = {
    "binary": lambda array: array,
    "large_binary": lambda array: array.cast(pa.large_binary()),
    "binary_view": lambda array: array.cast(pa.binary_view()),
    "dictionary": lambda array: array.dictionary_encode(),
    "slice": lambda array: pa.concat_arrays([pa.array([b"before", None], pa.binary()), array, pa.array([b"z"])])[2:-1],
}


@st.composite
def arrow_columns(draw: st.DrawFn, rows: Rows) -> pa.Array:
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](pa.array(rows, pa.binary()))


def headers_array(headers: list[Entries | None]) -> pa.Array:
    rows = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in headers]
    return pa.array(rows, HEADERS)


def plain(keys: Rows, values: Rows, headers: list[Entries | None], places: list[int], times: list[int]) -> list[bytes]:
    found = []
    for place, time, key, value, entries in zip(places, times, keys, values, headers, strict=True):
        target = bytearray()
        write_record(target, place, time, key, value, entries or ())
        assert record_size(place, time, key, value, entries or ()) == len(target)
        found.append(bytes(target))
    return found


@pytest.mark.behaviour("Record format", "Columns are encoded like single records")
@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.integers(1, 24))
def test_columns_are_encoded_like_single_records(data: st.DataObject, rows: int) -> None:
    values = data.draw(byte_columns(rows))
    keys = data.draw(st.none() | byte_columns(rows))
    headers = data.draw(st.none() | st.lists(header_entries, min_size=rows, max_size=rows))
    first = data.draw(st.sampled_from([0, 1, 55, 8185, (1 << 20) - 9, (1 << 27) - 9, (1 << 31) - 30]))
    places = list(range(first, first + rows))
    times = data.draw(deltas(rows, 62))
    chunk = ColumnChunk(
        BinaryColumn.from_arrow(data.draw(arrow_columns(values))),
        None if keys is None else BinaryColumn.from_arrow(data.draw(arrow_columns(keys))),
        None if headers is None else HeadersColumn.from_arrow(headers_array(headers)),
    )
    expected = plain(keys or [None] * rows, values, headers or [None] * rows, places, times)

    found = encode_records(chunk, np.array(places), np.array(times, dtype=np.int64))

    assert [bytes(found.data[start:end]) for start, end in pairwise(found.offsets.tolist())] == expected
    assert len(found.data) == found.offsets[-1]
    sizes = sizes_from_content(content_sizes(chunk), np.array(places), np.array(times, dtype=np.int64))
    assert sizes.tolist() == [len(record) for record in expected]


@settings(max_examples=examples(240), deadline=None)
@given(st.data(), st.integers(1, 30))
def test_rows_taken_in_any_order(data: st.DataObject, rows: int) -> None:
    values, keys = data.draw(byte_columns(rows)), data.draw(byte_columns(rows))
    headers = data.draw(st.lists(header_entries, min_size=rows, max_size=rows))
    order = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=40))
    start = data.draw(st.integers(0, len(order) - 1))
    chunk = ColumnChunk(
        BinaryColumn.from_arrow(pa.array(values, pa.binary())),
        BinaryColumn.from_arrow(pa.array(keys, pa.binary())),
        HeadersColumn.from_arrow(headers_array(headers)),
    )
    picked = order[start:]
    found = encode_records(chunk.take(np.array(order)).slice(start, len(picked)), np.arange(len(picked)), 7)
    expected = plain(
        [keys[row] for row in picked],
        [values[row] for row in picked],
        [headers[row] for row in picked],
        list(range(len(picked))),
        [7] * len(picked),
    )
    assert bytes(found.data) == b"".join(expected)


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.integers(1, 20), st.sampled_from(list(CompressionType)))
def test_what_is_encoded_is_read_back(data: st.DataObject, rows: int, kind: CompressionType) -> None:
    values, keys = data.draw(byte_columns(rows)), data.draw(byte_columns(rows))
    headers = data.draw(st.lists(header_entries, min_size=rows, max_size=rows))
    times = data.draw(deltas(rows, 40))
    body = b"".join(plain(keys, values, headers, list(range(rows)), times))
    packed = compress(kind, body)
    target = bytearray(layout.HEADER_BYTES)
    base = 1 << 41
    write_header(
        target,
        [packed],
        compression=kind,
        base_offset=50,
        last_offset_delta=rows - 1,
        base_timestamp=base,
        max_timestamp=base + max(times),
        record_count=rows,
    )
    (view,) = read_batches(bytes(target) + bytes(packed))
    validated(view.data)
    assert list(view.records(len(body))) == [
        (50 + row, base + times[row], keys[row], values[row], tuple(headers[row] or ()), "") for row in range(rows)
    ]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.none() | st.binary(max_size=150), max_size=20))
def test_hashes_of_a_column_are_those_of_its_rows(keys: Rows) -> None:
    found = murmur2_array(BinaryColumn.from_arrow(pa.array(keys, pa.binary())))
    for row, key in enumerate(keys):
        if key is not None:
            assert int(found[row]) & 0xFFFF_FFFF == murmur2(key)
            assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFF_FFFF


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 7, 255, 256, 70_000]), max_size=60))
def test_partition_order_is_stable(partitions: list[int]) -> None:
    order, runs, starts = partition_order(np.array(partitions, dtype=np.int32))
    picked = range(len(partitions)) if order is None else order.tolist()
    assert list(picked) == sorted(range(len(partitions)), key=lambda row: partitions[row])
    assert runs.tolist() == sorted(set(partitions))
    assert np.repeat(runs, np.diff(starts)).tolist() == sorted(partitions)


def golden_seeds() -> list[bytes]:
    names = ("kafka_clients", "kafka_python", "librdkafka")
    files = [json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    batches = [base64.b64decode(batch) for file in files for batch in file["batches"].values()]
    message_sets = json.loads((GOLDEN / "message_sets.json").read_text(encoding="utf-8"))
    return [*batches, base64.b64decode(message_sets["segment"])]


SEEDS = golden_seeds()


def read_all(data: bytes) -> None:
    """Return the records, or accept CorruptRecordError: any other error fails the test."""
    try:
        for view in read_all_formats(data):
            view.verify_crc()
            list(view.records(DECOMPRESSED_BYTES, looking=Looking()))
            list(view.records(DECOMPRESSED_BYTES))
    except CorruptRecordError:
        return


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_damage_is_told_as_damage(data: st.DataObject) -> None:
    batch = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        # Mostly near the front, where the lengths and the codecs' own headers are.
        at = data.draw(st.integers(0, min(len(batch), 140) - 1) | st.integers(0, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(batch)) | st.just(len(batch)))
    read_all(bytes(batch[:end]))


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.sampled_from(list(CompressionType)))
def test_damage_below_a_codec_is_told_as_damage(data: st.DataObject, kind: CompressionType) -> None:
    (view,) = read_batches(SEEDS[0])
    body = bytearray(view.data[layout.HEADER_BYTES :])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    packed = bytes(compress(kind, body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))]))
    batch = bytearray(view.data[: layout.HEADER_BYTES]) + packed
    layout.INT32.pack_into(batch, 8, len(batch) - layout.LOG_OVERHEAD_BYTES)
    batch[layout.ATTRIBUTES_AT + 1] = kind
    layout.UINT32.pack_into(batch, layout.CRC_AT, crc32c(bytes(batch[layout.ATTRIBUTES_AT :])))
    read_all(bytes(batch))
    try:
        validated(bytes(batch), max_decompressed_bytes=DECOMPRESSED_BYTES)
    except ApiError as error:
        assert error.code is ErrorCode.INVALID_RECORD


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(list(CompressionType)), st.binary(max_size=300), st.integers(0, 1000))
def test_any_bytes_decompress_within_the_limit_or_are_damage(kind: CompressionType, data: bytes, limit: int) -> None:
    prefixes = {CompressionType.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1", CompressionType.ZSTD: b"\x28\xb5\x2f\xfd"}
    for candidate in (data, prefixes.get(kind, b"") + data, bytes(compress(kind, data))):
        try:
            assert len(decompress(kind, candidate, limit)) <= limit
        except CorruptRecordError:
            continue


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(list(CompressionType)), st.data())
def test_damaged_compression_is_damage(kind: CompressionType, data: st.DataObject) -> None:
    packed = bytearray(compress(kind, b"a record like any other, " * 3000))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, min(len(packed), 60) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(kind, packed, DECOMPRESSED_BYTES)) <= DECOMPRESSED_BYTES
    except CorruptRecordError:
        return
