"""Batches of other producers are read and written again; another consumer reads the batches of this project.

The golden files name the programs that made them; run ``make_records_golden.py`` to make them again.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka.record.memory_records import MemoryRecords

from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk, HeadersColumn
from kafka_sink.common.model import Header, TopicPartition
from kafka_sink.consumer.fetched_partition import FetchedPartition
from kafka_sink.records.batch import BatchHeader, write_header
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import Record, read_batches
from kafka_sink.records.reference import write_record
from kafka_sink.records.vectorized import encode_records
from tests.fakes.record_batches import validated
from tests.support.cases import with_each
from tests.support.unpacked import decompress

FOLDER = Path(__file__).parent / "records"
MAKERS = ("kafka_clients", "kafka_python", "librdkafka")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Row = tuple[int, bytes | None, bytes | None, list[Header]]


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def golden_rows() -> list[Row]:
    return [
        (timestamp, as_bytes(key), as_bytes(value), [(name, as_bytes(data)) for name, data in headers])
        for timestamp, key, value, headers in load("records")
    ]


def golden_batches(maker: str, kind: CompressionType) -> bytes:
    return base64.b64decode(load(maker)["batches"][kind.config_name])


def encode_one_by_one(rows: list[Row], base_timestamp: int) -> bytes:
    body = bytearray()
    for index, (timestamp, key, value, headers) in enumerate(rows):
        write_record(body, index, timestamp - base_timestamp, key, value, headers)
    return bytes(body)


def encode_columns(rows: list[Row], base_timestamp: int) -> bytes:
    times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    named = [[{"key": name, "value": data} for name, data in entries] for entries in headers]
    chunk = ColumnChunk(
        BinaryColumn.from_arrow(pa.array(values, pa.binary())),
        BinaryColumn.from_arrow(pa.array(keys, pa.binary())),
        HeadersColumn.from_arrow(pa.array(named, HEADERS)),
    )
    deltas = np.array(times, dtype=np.int64) - base_timestamp
    return bytes(encode_records(chunk, np.arange(len(rows)), deltas).data)


def rewritten(header: BatchHeader, packed: bytes) -> bytes:
    target = bytearray(HEADER_BYTES)
    write_header(
        target,
        [packed],
        compression=header.compression,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        last_offset_delta=header.record_count - 1,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    return bytes(target) + packed


@with_each("maker", MAKERS)
@with_each("kind", CompressionType)
def test_foreign_batches_are_read(maker: str, kind: CompressionType) -> None:
    found: list[Record] = []
    for view in read_batches(golden_batches(maker, kind)):
        validated(view.data)
        assert view.base_offset == len(found)
        found += view.records()
    assert found == [
        Record(offset, timestamp, key, value, tuple(headers))
        for offset, (timestamp, key, value, headers) in enumerate(golden_rows())
    ]


@pytest.mark.behaviour("Log reader", "Logs that begin with the record formats 0 and 1 are read")
@with_each("start", [0, 7, 12, 36, 52, 60, 75])
def test_message_sets_are_read_as_java_reads_them(start: int) -> None:
    golden = load("message_sets")
    fetched = FetchedPartition(TopicPartition("t", 0), base64.b64decode(golden["segment"]), start)
    found = list(fetched)
    assert [
        [
            each.offset,
            each.timestamp,
            None if each.key is None else each.key.decode(),
            None if each.value is None else each.value[:8].decode(),
            -1 if each.value is None else len(each.value),
        ]
        for each in found
    ] == [row for row in golden["records"] if row[0] >= start]
    assert fetched.next_offset == golden["records"][-1][0] + 1
    assert {each.timestamp for each in found if each.is_log_append_time} <= {1_600_000_000_000}


@with_each("maker", MAKERS)
@with_each("kind", CompressionType)
@with_each("encode", [encode_one_by_one, encode_columns])
def test_foreign_batches_are_written_again(maker: str, kind: CompressionType, encode: Any) -> None:
    rows = golden_rows()
    for view in read_batches(golden_batches(maker, kind)):
        header = view.header
        packed = bytes(view.data[HEADER_BYTES:])
        part = rows[header.base_offset : header.last_offset + 1]
        assert bytes(decompress(header.compression, packed, 1 << 20)) == encode(part, header.base_timestamp)
        assert rewritten(header, packed) == view.data


def test_uncompressed_batches_are_those_of_java_byte_for_byte() -> None:
    (view,) = read_batches(golden_batches("kafka_clients", CompressionType.NONE))
    body = encode_columns(golden_rows(), view.header.base_timestamp)
    assert rewritten(view.header, body) == golden_batches("kafka_clients", CompressionType.NONE)


@with_each("kind", CompressionType)
@with_each("encode", [encode_one_by_one, encode_columns])
def test_kafka_python_reads_ours(kind: CompressionType, encode: Any) -> None:
    rows = golden_rows()
    header = bytearray(HEADER_BYTES)
    packed = bytes(compress(kind, encode(rows, rows[0][0])))
    write_header(
        header,
        [packed],
        compression=kind,
        last_offset_delta=len(rows) - 1,
        base_timestamp=rows[0][0],
        max_timestamp=max(row[0] for row in rows),
        record_count=len(rows),
    )
    batch = MemoryRecords(bytes(header) + packed).next_batch()
    assert batch.validate_crc()
    found = [(record.timestamp, record.key, record.value, list(record.headers)) for record in batch]
    assert found == rows
