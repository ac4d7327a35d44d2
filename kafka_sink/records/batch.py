"""The header of a record batch: writes it in front of encoded records, parses it, and patches it in place.

The producer writes headers when it closes a batch; the broker parses, checks and patches them on a handler's thread.
This module never reads the records themselves, which may be compressed.

Source: https://kafka.apache.org/documentation/#recordbatch, KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

from crc32c import crc32c

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records import layout
from kafka_sink.records.compression import CompressionType


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The 61 bytes before a batch's records. Timestamps are ms since 1970; ``batch_length`` counts from byte 12 on."""

    base_offset: int
    batch_length: int = 0
    partition_leader_epoch: int = layout.NO_PARTITION_LEADER_EPOCH
    magic: int = layout.MAGIC
    crc: int = 0
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    producer_id: int = layout.NO_PRODUCER_ID
    producer_epoch: int = layout.NO_PRODUCER_EPOCH
    base_sequence: int = layout.NO_SEQUENCE
    record_count: int = 0

    @property
    def size_in_bytes(self) -> int:
        """Size of the whole batch in bytes: this header and its records."""
        return layout.LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> CompressionType:
        """The codec of the records. :raises CorruptRecordError: if the attributes name an unknown codec."""
        try:
            return CompressionType(self.attributes & layout.CODEC_MASK)
        except ValueError:
            raise CorruptRecordError(f"unknown compression codec {self.attributes & layout.CODEC_MASK}") from None

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock set the timestamps (``max_timestamp`` applies to every record)."""
        return bool(self.attributes & layout.TIMESTAMP_TYPE_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & layout.TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records, such as a transaction marker, instead of data."""
        return bool(self.attributes & layout.CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which a compaction may remove the tombstones or the marker of the batch, ms since 1970; None if
        no compaction has set it yet (KIP-534)."""
        return self.base_timestamp if self.attributes & layout.DELETE_HORIZON_BIT else None

    @property
    def is_gap(self) -> bool:
        """Whether it is a placeholder for batches that a compaction has removed."""
        return self.record_count == 0 and not self.has_producer_id

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > layout.NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequences wrap from 2³¹ − 1 to 0. −1 if the batch has no sequence."""
        if self.base_sequence == layout.NO_SEQUENCE:
            return layout.NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF


def write_header(
    target: bytearray | memoryview,
    records: Iterable[Buffer],
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    compression: CompressionType = CompressionType.NONE,
    is_transactional: bool = False,
    is_control: bool = False,
    base_offset: int = 0,
    partition_leader_epoch: int = layout.NO_PARTITION_LEADER_EPOCH,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = layout.NO_PRODUCER_EPOCH,
    base_sequence: int = layout.NO_SEQUENCE,
) -> None:
    """Write a batch header over the first 61 bytes of *target*.

    *records* are the pieces that follow the header on the wire (already compressed, if a codec is set). They are read
    once for the length and the CRC, and not copied.
    """
    # A function of this length only because the header has this many fields.
    pieces = [memoryview(piece) for piece in records]
    attributes = int(compression)
    if is_transactional:
        attributes |= layout.TRANSACTIONAL_BIT
    if is_control:
        attributes |= layout.CONTROL_BIT
    layout.HEADER.pack_into(
        target,
        0,
        base_offset,
        layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + sum(piece.nbytes for piece in pieces),
        partition_leader_epoch,
        layout.MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    crc = crc32c(memoryview(target)[layout.ATTRIBUTES_AT : layout.HEADER_BYTES])
    for piece in pieces:
        crc = crc32c(piece, crc)
    layout.UINT32.pack_into(target, layout.CRC_AT, crc)


def with_records(header: BatchHeader, records: Buffer) -> bytearray:
    """A batch with the fields of *header* and with *records*, whose length and CRC it has."""
    target = bytearray(layout.HEADER_BYTES)
    length = layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(records)
    layout.HEADER.pack_into(target, 0, *astuple(replace(header, batch_length=length)))
    target += records
    layout.UINT32.pack_into(target, layout.CRC_AT, crc32c(memoryview(target)[layout.ATTRIBUTES_AT :]))
    return target


def parse_header(data: Buffer, offset: int = 0) -> BatchHeader:
    """Parse the header at *offset*.

    :raises CorruptRecordError: if fewer than 61 bytes are left, or the format version or the length is invalid.
    """
    left = len(data) - offset
    if left < layout.HEADER_BYTES:
        raise CorruptRecordError(f"a batch header takes {layout.HEADER_BYTES} bytes, {left} are left")
    header = BatchHeader(*layout.HEADER.unpack_from(data, offset))
    if header.magic != layout.MAGIC:
        raise CorruptRecordError(f"batch at byte {offset} has format version {header.magic}, expected {layout.MAGIC}")
    if header.size_in_bytes < layout.HEADER_BYTES:
        raise CorruptRecordError(f"batch at byte {offset} announces a length of {header.batch_length} bytes")
    return header


def verify_crc(batch: Buffer) -> bool:
    """Whether *batch* (one whole batch, header included) matches the CRC-32C in its header."""
    (stored,) = layout.UINT32.unpack_from(batch, layout.CRC_AT)
    computed: int = crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :])
    return bool(computed == stored)


def is_transactional(batch: Buffer) -> bool:
    """Whether *batch*, which may be damaged or too short, claims to be part of a transaction."""
    if len(batch) < layout.HEADER_BYTES or batch[layout.MAGIC_AT] != layout.MAGIC:
        return False
    (attributes,) = layout.INT16.unpack_from(batch, layout.ATTRIBUTES_AT)
    return bool(attributes & layout.TRANSACTIONAL_BIT)


def set_log_append_time(batch: bytearray, timestamp: int) -> None:
    """Set *timestamp* (ms) for every record of *batch* (one whole batch), and compute the CRC again."""
    attributes = parse_header(batch).attributes | layout.TIMESTAMP_TYPE_BIT
    layout.INT16.pack_into(batch, layout.ATTRIBUTES_AT, attributes)
    layout.INT64.pack_into(batch, layout.MAX_TIMESTAMP_AT, timestamp)
    layout.UINT32.pack_into(batch, layout.CRC_AT, crc32c(memoryview(batch)[layout.ATTRIBUTES_AT :]))
