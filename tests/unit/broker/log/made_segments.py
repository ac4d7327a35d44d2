"""Batches as a log stores them, written by the reference encoder, and a segment of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kafka_sink.broker.log.filesystem import FileSystem
from kafka_sink.broker.log.segment import Segment
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header, with_records
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import TIMESTAMP_TYPE_BIT
from kafka_sink.records.reference import write_record
from tests.fakes.compacted_log import DIRECTORY

BASE_MS = 1000
#: (offset delta, timestamp delta) of a record.
Deltas = tuple[int, int]


def batch_at(
    base: int,
    records: Sequence[Deltas] = ((0, 0),),
    *,
    value: bytes = b"",
    last: int | None = None,
    most_ms: int | None = None,
    epoch: int = 0,
    codec: CompressionType = CompressionType.NONE,
    is_stamped: bool = False,
    producer: int = -1,
) -> bytes:
    """A batch with *records*; its header has their last offset and largest timestamp, or *last* and *most_ms*."""
    plain = bytearray()
    for offset_delta, timestamp_delta in records:
        write_record(plain, offset_delta, timestamp_delta, None, value)
    header = BatchHeader(
        base,
        partition_leader_epoch=epoch,
        attributes=int(codec) | (TIMESTAMP_TYPE_BIT if is_stamped else 0),
        last_offset_delta=records[-1][0] if last is None else last,
        base_timestamp=BASE_MS,
        max_timestamp=BASE_MS + max(delta for _, delta in records) if most_ms is None else most_ms,
        producer_id=producer,
        record_count=len(records),
    )
    return bytes(with_records(header, compress(codec, plain)))


def gap_at(base: int, last: int, *, most_ms: int = NO_TIMESTAMP, epoch: int = 0, producer: int = -1) -> bytes:
    """A batch without records, as a compaction leaves it: only a header."""
    return batch_at(base, (), last=last, most_ms=most_ms, epoch=epoch, producer=producer)


def filled(filesystem: FileSystem, batches: Sequence[bytes], *, interval: int = 0, base: int | None = None) -> Segment:
    """A segment of *batches*, with base offset *base* or that of the first batch."""
    first = parse_header(batches[0]).base_offset if base is None else base
    segment = Segment(DIRECTORY, first, filesystem, interval)
    for data in batches:
        header = parse_header(data)
        segment.append(header, header.base_offset, header.partition_leader_epoch, (data[:7], data[7:]))
    return segment


def positions(batches: Sequence[bytes]) -> list[int]:
    """The position of each of *batches*."""
    return [0, *accumulate(map(len, batches))][:-1]
