"""Decodes record batches to records.

Consumers call it with fetch responses, and the broker when it searches for a timestamp, on their own threads. Batches
are decompressed piece by piece, and only records that the caller takes become objects. No length, count or size in the
data is trusted: damaged data raises CorruptRecordError, or is returned as a record with its problem, and never causes a
crash or an unbounded allocation.

Source: https://kafka.apache.org/documentation/#recordbatch, apache/kafka ``DefaultRecordBatch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_sink.columns.varint import read_varint, read_varlong
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Header
from kafka_sink.records import layout
from kafka_sink.records.batch import BatchHeader, parse_header, verify_crc
from kafka_sink.records.compression import decompressed
from kafka_sink.records.spans import Span, record_spans

#: The limit for one decompressed batch if the caller sets none: batches have a few MB, and a decompression bomb with a
#: ratio of 1000 in a usual request of 100 MB is refused.
DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024
#: The objects of a header take some 150 bytes of memory, its encoding may take only two.
_MOST_HEADERS: Final = 1 << 17
#: The maximum number of damaged records that are returned of a batch: a few hundred compressed bytes may hold millions.
_MOST_DAMAGED: Final = 1000
_INT64: Final = 1 << 63


class Record(NamedTuple):
    """A record as a consumer receives it; *timestamp* in ms since 1970, −1 if there is none. If it has a *problem*, it
    is damaged, and its *value* contains its encoded bytes in the batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Looking:
    """The mode of readers that display records: a damaged record is returned with its problem, and the next ones
    follow, until a thousand of a batch were damaged.

    *tick* is called before every piece of about a MiB, and may raise an error to stop. A record has at most
    *most_record_bytes*; a larger one ends its batch.
    """

    tick: Callable[[], None] = lambda: None
    most_record_bytes: int = 2**31 - 1


@dataclass(slots=True, eq=False)
class RecordBatchView:
    """A batch within a larger buffer; nothing is copied or decompressed before :meth:`records`."""

    header: BatchHeader
    #: The bytes of the batch, including the header.
    data: memoryview

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    def verify_crc(self) -> bool:
        """Whether the batch matches its CRC-32C."""
        return verify_crc(self.data)

    def records(
        self,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        *,
        start: int = 0,
        looking: Looking | None = None,
    ) -> Iterator[Record]:
        """The records from the offset *start* on, decompressed and decoded as they are taken.

        :raises CorruptRecordError: where the records are damaged, differ in number from the header, or decompress to
            more than *max_decompressed_bytes*; with *looking* a record with this problem is returned instead.
        """
        header, expected, damaged = self.header, self.header.base_offset, 0
        # Unless offsets are missing, as after a compaction, the index of a record gives its offset.
        if header.record_count == header.last_offset_delta + 1 and start > expected:
            expected = start
        try:
            for span in self._spans(max_decompressed_bytes, expected - header.base_offset, looking):
                try:
                    record = _read_record(header, span, expected)
                except CorruptRecordError as error:
                    if looking is None:
                        raise
                    damaged += 1
                    if damaged > _MOST_DAMAGED:
                        raise CorruptRecordError(f"{_MOST_DAMAGED:,} of its records are damaged") from error
                    data, first, end = span
                    record = damaged_record(header, expected, data[first:end], str(error))
                offset = record[0]
                if offset >= start:
                    yield record
                expected = offset + 1
        except CorruptRecordError as error:
            if looking is None:
                raise CorruptRecordError(f"the record of offset {expected}: {error}") from None
            yield damaged_record(header, expected, b"", f"from here on the batch cannot be read: {error}")

    def _spans(self, max_decompressed_bytes: int, first: int, looking: Looking | None) -> Iterator[Span]:
        header = self.header
        pieces = decompressed(header.compression, self.data[layout.HEADER_BYTES :], max_decompressed_bytes)
        if looking is None:
            return record_spans(pieces, header.record_count, first)
        return record_spans(ticking(pieces, looking.tick), header.record_count, first, looking.most_record_bytes)


def read_batches(data: Buffer) -> Iterator[RecordBatchView]:
    """The complete batches of *data*, in order; an incomplete last batch, which fetch responses may have, is omitted.

    :raises CorruptRecordError: if a batch has another format version, or an impossible length.
    """
    view, offset = memoryview(data), 0
    while (batch := batch_at(view, offset)) is not None:
        yield batch
        offset += batch.header.size_in_bytes


def batch_at(view: memoryview, offset: int) -> RecordBatchView | None:
    """The batch at *offset*; None if it is not complete. :raises CorruptRecordError: like :func:`read_batches`."""
    if len(view) - offset < layout.HEADER_BYTES:
        return None
    header = parse_header(view, offset)
    end = offset + header.size_in_bytes
    return RecordBatchView(header, view[offset:end]) if end <= len(view) else None


def ticking(pieces: Iterator[bytes], tick: Callable[[], None]) -> Iterator[bytes]:
    """*pieces*, with a call of *tick* before each is used."""
    for piece in pieces:
        tick()
        yield piece


def damaged_record(header: BatchHeader, offset: int, data: bytes, problem: str) -> Record:
    """The record that is returned instead of the damaged one at *offset*; *data* are its bytes."""
    return Record(min(offset, header.last_offset), header.max_timestamp, None, data, (), problem)


def _read_record(header: BatchHeader, span: Span, expected: int) -> Record:
    data, position, end = span
    # The byte at `position` holds the record's attributes; none is defined, and Kafka ignores them, too.
    timestamp_delta, position = read_varlong(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    headers = () if position + 1 == end and not data[position] else _read_headers(data, position, end)
    offset = header.base_offset + offset_delta
    if not expected <= offset <= header.last_offset:
        raise CorruptRecordError(f"its offset is {offset}, expected {expected} to {header.last_offset}")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    if not -_INT64 <= timestamp < _INT64:
        raise CorruptRecordError(f"its timestamp, {timestamp} ms, is beyond 64 bits")
    # Equivalent to Record(…), without the Python call that its names and defaults cost for each record.
    return tuple.__new__(Record, (offset, timestamp, key, value, headers, ""))


def _read_headers(data: bytes, position: int, end: int) -> tuple[Header, ...]:
    count, position = read_varint(data, position)
    # A header has at least two bytes, so this check bounds the loop for a wrong count.
    if not 0 <= count <= (end - position) // 2:
        raise CorruptRecordError(f"record announces {count} headers in {end - position} bytes")
    if count > _MOST_HEADERS:
        raise CorruptRecordError(f"record has {count} headers, more than {_MOST_HEADERS} are not read")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if name is None:
            raise CorruptRecordError("a header has no key")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"a header key is not UTF-8: {error.reason}") from None
    if position != end:
        raise CorruptRecordError(f"record ends at byte {position}, its length says {end}")
    return tuple(headers)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size = data[position] if position < end else 0x80
    if size < 0x80:
        size, position = (size >> 1) ^ -(size & 1), position + 1
    else:
        size, position = read_varint(data, position)
    if size < 0:
        if size == -1:
            return None, position
        raise CorruptRecordError(f"field has a length of {size}")
    after = position + size
    if after > end:
        raise CorruptRecordError(f"field of {size} bytes does not fit into {end - position}")
    return data[position:after], after
