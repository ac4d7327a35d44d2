"""Encoded records at another position: the second half of a batch that a broker finds too large, and batches without
some of their records, as a compaction leaves them. Only the deltas and the length in front of a record depend on its
position; keys, values and headers are copied without decoding.

The broker's compaction calls it on its own thread; pure functions over bytes. Offsets, sequences and the codec of a
batch stay as they are, so that readers and the state of producers see no difference but the missing records. The bytes
of a record are copied; only a new base timestamp changes the delta in front of them.

Source: apache/kafka ``MemoryRecords.filterTo``, ``DefaultRecordBatch``; KIP-534 (delete horizon).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from kafka_sink.columns.varint import encode_varint, read_varint, read_varlong
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records import layout
from kafka_sink.records.batch import BatchHeader, with_records
from kafka_sink.records.compression import compress, decompressed
from kafka_sink.records.reader import DEFAULT_MAX_DECOMPRESSED_BYTES, RecordBatchView
from kafka_sink.records.spans import Span, record_spans


class PlacedRecord(NamedTuple):
    """One encoded record of *size_bytes* bytes; *content* is the part after its deltas."""

    timestamp_delta: int
    content: bytes
    size_bytes: int


def parse_records(data: Buffer) -> list[PlacedRecord]:
    """The uncompressed records of a batch, in order. :raises CorruptRecordError: if a length or a delta is damaged."""
    plain = bytes(data)
    records: list[PlacedRecord] = []
    position = 0
    while position < len(plain):
        start = position
        size, position = read_varint(plain, position)
        end = position + size
        if size < 0 or end > len(plain):
            raise CorruptRecordError(f"record {len(records)} of {size} bytes does not fit into {len(plain) - position}")
        timestamp_delta, position = read_varlong(plain, position + 1)
        _, position = read_varint(plain, position)
        records.append(PlacedRecord(timestamp_delta, plain[position:end], end - start))
        position = end
    return records


def write_content(target: bytearray, offset_delta: int, timestamp_delta: int, content: bytes) -> None:
    """Append a record with *content* and new deltas."""
    deltas = encode_varint(timestamp_delta) + encode_varint(offset_delta)
    target += encode_varint(1 + len(deltas) + len(content))
    target += b"\x00"
    target += deltas
    target += content


#: Attributes that a batch keeps when all its records are gone.
_ATTRIBUTES_OF_EMPTY: Final = layout.TIMESTAMP_TYPE_BIT | layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT

_INT64: Final = 1 << 63


class KeyedRecord(NamedTuple):
    """The parts of a record that a compaction needs. *content_at* is the position of its key, after the deltas."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool
    content_at: int


def read_keyed(span: Span) -> KeyedRecord:
    """The key of the record at *span*, and whether it has a value.

    :raises CorruptRecordError: if one of them extends beyond the record.
    """
    data, start, end = span
    timestamp_delta, at = read_varlong(data, start + 1)
    offset_delta, content_at = read_varint(data, at)
    size, at = read_varint(data, content_at)
    key = data[at : at + size] if size >= 0 else None
    value_size, at = read_varint(data, at + max(size, 0))
    if at + max(value_size, 0) > end:
        raise CorruptRecordError(f"a key of {size} bytes and a value of {value_size} go beyond their record")
    return KeyedRecord(timestamp_delta, offset_delta, key, value_size >= 0, content_at)


def keyed_records(batch: RecordBatchView) -> Iterator[tuple[Span, KeyedRecord]]:
    """The records of *batch* with their keys, as they are taken.

    :raises CorruptRecordError: at a record that is damaged, or beyond the offsets of the batch.
    """
    header = batch.header
    pieces = decompressed(header.compression, batch.data[layout.HEADER_BYTES :], DEFAULT_MAX_DECOMPRESSED_BYTES)
    for span in record_spans(pieces, header.record_count):
        record = read_keyed(span)
        if not 0 <= record.offset_delta <= header.last_offset_delta:
            raise CorruptRecordError(f"a record has the offset delta {record.offset_delta} in {header}")
        yield span, record


def filtered(
    batch: RecordBatchView, keeps: Callable[[KeyedRecord], bool], horizon_ms: int, *, dated: bool = False
) -> Buffer | None:
    """*batch* with the records that *keeps* accepts, None if it accepts none.

    If a tombstone remains, or with *dated*, *horizon_ms* becomes the delete horizon of a batch that has none yet.

    :raises CorruptRecordError: where its records are damaged.
    """
    header = batch.header
    # A byte for each record, of which a batch may have millions.
    kept = bytearray()
    newest, has_tombstones = -_INT64, False
    for _, record in keyed_records(batch):
        is_kept = keeps(record)
        kept.append(is_kept)
        if is_kept:
            newest, has_tombstones = max(newest, record.timestamp_delta), has_tombstones or not record.has_value
    count = sum(kept)
    if not count:
        return None
    dates = header.delete_horizon_ms is None and (dated or has_tombstones)
    if count == header.record_count and not dates:
        return batch.data
    changed = replace(
        header,
        attributes=header.attributes | (layout.DELETE_HORIZON_BIT if dates else 0),
        base_timestamp=horizon_ms if dates else header.base_timestamp,
        max_timestamp=header.max_timestamp if header.is_log_append_time else header.base_timestamp + newest,
        record_count=count,
    )
    records = bytearray()
    shift = header.base_timestamp - changed.base_timestamp
    for (data, start, end), record in itertools.compress(keyed_records(batch), kept):
        if dates:
            content = data[record.content_at : end]
            write_content(records, record.offset_delta, record.timestamp_delta + shift, content)
        else:
            records += encode_varint(end - start)
            records += data[start:end]
    return with_records(changed, compress(header.compression, records))


def emptied(header: BatchHeader) -> Buffer:
    """The batch of *header* without records, which preserves epoch, sequences and offsets of its producer."""
    attributes = header.attributes & _ATTRIBUTES_OF_EMPTY
    return with_records(replace(header, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def gap(first_offset: int, last_offset: int, leader_epoch: int, max_timestamp: int) -> Buffer:
    """A batch without records and without a producer, in place of all batches from *first_offset* to *last_offset*."""
    header = BatchHeader(
        first_offset,
        partition_leader_epoch=leader_epoch,
        last_offset_delta=last_offset - first_offset,
        max_timestamp=max_timestamp,
    )
    return with_records(header, b"")
