"""Decodes record batches to records.

Consumers call it with fetch responses, and the broker when it searches for a timestamp, on their own threads. It trusts
no length, no count and no codec's claim: damaged data raises CorruptRecordError, and never causes a crash or an
unbounded allocation.

Source: https://kafka.apache.org/documentation/#recordbatch, apache/kafka ``DefaultRecordBatch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Header
from kafka_sink.records import layout
from kafka_sink.records.batch import BatchHeader, parse_header, verify_crc
from kafka_sink.records.compression import decompress
from kafka_sink.records.varint import read_varint, read_varlong

#: The limit for one decompressed batch if the caller sets none: batches have a few MB, and a decompression bomb with a
#: ratio of 1000 in a usual request of 100 MB is refused.
DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 256 * 1024 * 1024


class Record(NamedTuple):
    """A record as a consumer receives it; *timestamp* in ms since 1970, −1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordBatchView:
    """A batch within a larger buffer; nothing is copied or decompressed before :meth:`records`."""

    __slots__ = ("data", "header")

    def __init__(self, header: BatchHeader, data: memoryview) -> None:
        self.header = header
        #: The bytes of the batch, including the header.
        self.data = data

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

    def records(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> list[Record]:
        """All records, decompressed and decoded.

        :raises CorruptRecordError: if the records are damaged, are not as many as the header says, or decompress to
            more than *max_decompressed_bytes*.
        """
        header = self.header
        packed = self.data[layout.HEADER_BYTES :]
        plain = bytes(decompress(header.compression, packed, max_decompressed_bytes))
        return list(_walk(header, plain))


def read_batches(data: Buffer) -> Iterator[RecordBatchView]:
    """The complete batches of *data*, in order; an incomplete last batch, which fetch responses may have, is left out.

    :raises CorruptRecordError: if a batch has another format version, or an impossible length.
    """
    view = memoryview(data)
    offset = 0
    while len(view) - offset >= layout.HEADER_BYTES:
        header = parse_header(view, offset)
        end = offset + header.size_in_bytes
        if end > len(view):
            return
        yield RecordBatchView(header, view[offset:end])
        offset = end


def _walk(header: BatchHeader, data: bytes) -> Iterator[Record]:
    position = 0
    for index in range(header.record_count):
        if position >= len(data):
            raise CorruptRecordError(f"batch announces {header.record_count} records but holds {index}")
        size, position = read_varint(data, position)
        end = position + size
        if size < 0 or end > len(data):
            raise CorruptRecordError(f"record {index} of {size} bytes does not fit into {len(data) - position}")
        yield _read_record(header, data, position, end)
        position = end
    if position != len(data):
        raise CorruptRecordError(f"{len(data) - position} bytes follow the last of {header.record_count} records")


def _read_record(header: BatchHeader, data: bytes, position: int, end: int) -> Record:
    # The byte at `position` holds the record's attributes; none is defined, and Kafka ignores them, too.
    timestamp_delta, position = read_varlong(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = read_varint(data, position)
    # A header has at least two bytes, so this check bounds the loop for a wrong count.
    if not 0 <= count <= (end - position) // 2:
        raise CorruptRecordError(f"record announces {count} headers in {end - position} bytes")
    headers = _read_headers(data, position, end, count) if count else ()
    if not count and position != end:
        raise CorruptRecordError(f"record ends at byte {position}, its length says {end}")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[Header, ...]:
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
    size, position = read_varint(data, position)
    if size < 0:
        if size == -1:
            return None, position
        raise CorruptRecordError(f"field has a length of {size}")
    after = position + size
    if after > end:
        raise CorruptRecordError(f"field of {size} bytes does not fit into {end - position}")
    return data[position:after], after
