"""Decodes message sets, the record formats 0 and 1 of Kafka before 0.11, and record batches: old logs begin with
them, and brokers return them as they are stored.

Consumers call it with fetch responses on their own threads. Brokers of this project never store them. A compressed
message is decompressed as a whole, within the caller's limit, because its last message determines the offsets of all.

Source: https://kafka.apache.org/documentation/#messageset, KIP-31, KIP-32, apache/kafka ``AbstractLegacyRecordBatch``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import lz4.frame

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records import layout
from kafka_sink.records.batch import BatchHeader
from kafka_sink.records.compression import CompressionType, decompressed
from kafka_sink.records.reader import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Looking,
    Record,
    RecordBatchView,
    batch_at,
    damaged_record,
    ticking,
)

#: offset, size (of the rest), CRC-32 (of the rest), magic, attributes; in format 1 a timestamp follows.
_HEAD: Final = struct.Struct(">qiIBB")
_CRC_FROM: Final = 16
_KEY_AT: Final = {0: 18, 1: 26}
#: A message without key and value, in each format, without offset and size.
_LEAST_SIZE: Final = {0: 14, 1: 22}
#: The bits of the attributes that a format defines: the codec, and from format 1 on the kind of the timestamp.
_ATTRIBUTES: Final = {0: layout.CODEC_MASK, 1: layout.CODEC_MASK | layout.TIMESTAMP_TYPE_BIT}
#: An lz4 frame: its magic number with two bytes of flags, and the bits for 8 and 4 bytes more before the checksum.
_LZ4_HEAD_BYTES: Final = 6
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_DICTIONARY: Final = 0x01


def read_all_formats(data: Buffer) -> Iterator[RecordBatchView]:
    """The complete record batches and messages of *data*, in order, as :func:`~kafka_sink.records.reader.read_batches`
    returns record batches. A message is a batch whose base offset is its last one.

    :raises CorruptRecordError: if one has an unknown format, or an impossible length.
    """
    view, offset = memoryview(data), 0
    while len(view) - offset > layout.MAGIC_AT:
        is_message = view[offset + layout.MAGIC_AT] < layout.MAGIC
        batch = _message_at(view, offset) if is_message else batch_at(view, offset)
        if batch is None:
            return
        yield batch
        offset += batch.header.size_in_bytes


class MessageView(RecordBatchView):
    """A message within a larger buffer: a record, or the records that are compressed in its value."""

    __slots__ = ()

    def verify_crc(self) -> bool:
        """Whether the message matches its CRC-32."""
        return zlib.crc32(self.data[_CRC_FROM:]) == self.header.crc

    def records(
        self,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        *,
        start: int = 0,
        looking: Looking | None = None,
    ) -> Iterator[Record]:
        """The records from the offset *start* on.

        :raises CorruptRecordError: where a message is damaged, or holds more than *max_decompressed_bytes*; with
            *looking*, which also limits its decompressed size, a record with this problem is returned instead.
        """
        offset = self.last_offset
        try:
            if self.header.compression is CompressionType.NONE:
                messages: Iterator[Record] = iter([self._record()])
            else:
                messages = self._inner(max_decompressed_bytes, looking or Looking())
            for record in messages:
                if record.offset >= start:
                    yield record
        except CorruptRecordError as error:
            problem = f"the message of offset {offset}: {error}"
            if looking is None:
                raise CorruptRecordError(problem) from None
            yield damaged_record(self.header, offset, b"", problem)

    def _record(self, base_offset: int = 0) -> Record:
        key, position = self._field(_KEY_AT[self.header.magic])
        value, _ = self._field(position)
        return Record(base_offset + self.base_offset, self.header.max_timestamp, key, value, ())

    def _field(self, position: int) -> tuple[bytes | None, int]:
        first = position + layout.INT32.size
        (size,) = layout.INT32.unpack(self.data[position:first].tobytes().ljust(layout.INT32.size, b"\x80"))
        if size == -1:
            return None, first
        if not 0 <= size <= len(self.data) - first:
            raise CorruptRecordError(f"field of {size} bytes does not fit into {len(self.data) - first}")
        return bytes(self.data[first : first + size]), first + size

    def _inner(self, max_decompressed_bytes: int, looking: Looking) -> Iterator[Record]:
        """The records that are compressed in this message. In format 1 their offsets are relative to that of the first
        one, which the writer did not know. If this message has the log append time, they have it, too."""
        header = self.header
        packed = self._record().value
        if packed is None or header.compression is CompressionType.ZSTD:
            raise CorruptRecordError(f"a message of format {header.magic} cannot be {header.compression.config_name}")
        if header.magic == 0 and header.compression is CompressionType.LZ4:
            packed = _with_checksum(packed)
        most_bytes = min(max_decompressed_bytes, looking.most_record_bytes)
        plain = b"".join(ticking(decompressed(header.compression, packed, most_bytes), looking.tick))
        base_offset = 0
        if header.magic == 1:
            base_offset = self.last_offset - max(
                (message.last_offset for message in read_all_formats(plain)), default=0
            )
            if base_offset < 0:
                raise CorruptRecordError(f"its offset is less than those of its messages, by {-base_offset}")
        expected = 0
        for message in read_all_formats(plain):
            if message.header.magic != header.magic or message.header.compression is not CompressionType.NONE:
                raise CorruptRecordError(f"it holds a compressed message, or one of format {message.header.magic}")
            assert isinstance(message, MessageView)
            record = message._record(base_offset)
            if not expected <= record.offset <= self.last_offset:
                raise CorruptRecordError(f"its offset is {record.offset}, expected {expected} to {self.last_offset}")
            expected = record.offset + 1
            yield record._replace(timestamp=header.max_timestamp) if header.is_log_append_time else record
        if not expected:
            raise CorruptRecordError("it holds no message")


def _message_at(view: memoryview, offset: int) -> MessageView | None:
    """The message at *offset*; None if it is not complete."""
    if len(view) - offset < _HEAD.size:
        return None
    base_offset, size, crc, magic, attributes = _HEAD.unpack_from(view, offset)
    if size < _LEAST_SIZE[magic]:
        raise CorruptRecordError(f"message at byte {offset} announces a length of {size} bytes")
    end = offset + layout.LOG_OVERHEAD_BYTES + size
    if end > len(view):
        return None
    timestamp = NO_TIMESTAMP if magic == 0 else layout.INT64.unpack_from(view, offset + _HEAD.size)[0]
    header = BatchHeader(
        base_offset,
        size,
        magic=magic,
        crc=crc,
        attributes=attributes & _ATTRIBUTES[magic],
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=1,
    )
    return MessageView(header, view[offset:end])


def _with_checksum(frame: bytes) -> bytes:
    """*frame* with the correct header checksum: writers of format 0 computed it from other bytes, and readers ignored
    it (KAFKA-3160). The lz4 library verifies it, but cannot compute it for callers, so all 256 values are tried."""
    flags = frame[4] if len(frame) > _LZ4_HEAD_BYTES else 0
    at = _LZ4_HEAD_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    for checksum in range(256):
        repaired = frame[:at] + bytes([checksum]) + frame[at + 1 :]
        try:
            lz4.frame.get_frame_info(repaired)
        except RuntimeError:
            continue
        return repaired
    return frame
