"""Record batches for tests of the broker, written by the reference encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.common.buffers import Buffer
from kafka_sink.records.batch import BatchHeader, parse_header, write_header
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import write_record
from kafka_sink.records.validation import BatchRules, validate_batch

#: Rules that accept every valid batch.
ANY_BATCH = BatchRules(
    max_message_bytes=2**31 - 1,
    max_decompressed_bytes=256 << 20,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=2**63 - 1,
    log_append_time=False,
)
_NEWEST_PRODUCE = 13


def validated(data: Buffer, *, wall_ms: int = 0, produce_version: int = _NEWEST_PRODUCE, **rules: int) -> BatchHeader:
    """Return the header of *data* after the broker's checks, with *rules* in place of those of :data:`ANY_BATCH`."""
    return validate_batch(data, replace(ANY_BATCH, **rules), wall_ms, produce_version)[1]  # type: ignore[arg-type]


def make_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] = (),
    base_timestamp: int = 1000,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch; record i has timestamp *base_timestamp* + i, and no key if there are no *keys*."""
    records = bytearray()
    for index, (key, value) in enumerate(zip(keys or [None] * len(values), values, strict=True)):
        write_record(records, index, index, key, value, ())
    packed = compress(compression, records, None) if compression is not CompressionType.NONE else records
    header = bytearray(HEADER_BYTES)
    write_header(
        header,
        [packed],
        compression=compression,
        is_transactional=is_transactional,
        is_control=is_control,
        last_offset_delta=len(values) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp + len(values) - 1,
        record_count=len(values),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return header + bytearray(packed)


def with_header(values: Sequence[bytes | None], **options: Any) -> tuple[memoryview, BatchHeader]:
    """Return a batch and its header, as a log appends them."""
    batch = make_batch(values, **options)
    return memoryview(batch), parse_header(batch)
