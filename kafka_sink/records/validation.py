"""The checks that a record batch of a produce request must pass before a broker stores it, with their error codes.

Pure functions over bytes, which the broker's handlers call on their threads. The header is checked completely, and the
checksum covers the whole batch. Compressed records are decompressed within a limit and counted by their lengths, and so
are the records of small uncompressed batches. For a large uncompressed batch, only the number of records is compared
with its size. The contents of a record (its offset, the length of its key) are not checked; its readers check them.
This module never decompresses more than the rules allow, whatever the compressed data claims, and never keeps
decompressed data.

Source: apache/kafka ``LogValidator`` and ``ProduceRequest.validateRecords``; KIP-110; apache/kafka pull request 23429.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header, verify_crc
from kafka_sink.records.compression import CompressionType, decompress
from kafka_sink.records.layout import CODEC_MASK, HEADER_BYTES, MAGIC, MAGIC_AT
from kafka_sink.records.varint import read_varint

#: The first Produce version that supports zstd (KIP-110).
_FIRST_WITH_ZSTD: Final = 7
#: Length, attributes, two deltas, two null lengths and the number of headers, one byte each.
_SMALLEST_RECORD_BYTES: Final = 7
#: The limit up to which the records of an uncompressed batch are counted: counting so few costs less than a request,
#: and counting the tens of thousands that fit into a batch would cost more.
_WALKED_UNCOMPRESSED_RECORDS: Final = 128


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a topic accepts: sizes in bytes, times in ms (how far base and maximum timestamp may be before or after
    now).
    """

    max_message_bytes: int
    max_decompressed_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    log_append_time: bool


def validate_batch(
    records: Buffer | None, rules: BatchRules, wall_ms: int, produce_version: int
) -> tuple[memoryview, BatchHeader]:
    """Check that *records* is one valid batch, and return it.

    :raises ApiError: if it is not, with the code INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
        UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP or TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    """
    data = memoryview(records or b"")
    if not len(data):
        raise _refused("the request contains no record batch", ErrorCode.INVALID_RECORD)
    _check_magic(data)
    try:
        header = parse_header(data)
    except CorruptRecordError as error:
        raise _refused(str(error), ErrorCode.CORRUPT_MESSAGE) from None
    size = header.size_in_bytes
    if size > len(data):
        raise _refused(f"a batch of {size} bytes is truncated after {len(data)}", ErrorCode.CORRUPT_MESSAGE)
    if size > rules.max_message_bytes:
        raise _refused(f"a batch of {size} bytes is larger than {rules.max_message_bytes}", ErrorCode.MESSAGE_TOO_LARGE)
    if size < len(data):
        raise _refused("more than one record batch for a partition", ErrorCode.INVALID_RECORD)
    if not verify_crc(data):
        raise _refused("the batch does not match its checksum", ErrorCode.CORRUPT_MESSAGE)
    _check_header(header, produce_version)
    _check_timestamps(header, rules, wall_ms)
    try:
        _check_records(header, data[HEADER_BYTES:], rules.max_decompressed_bytes)
    except CorruptRecordError as error:
        # The checksum is correct, so a retry would fail in the same way. CORRUPT_MESSAGE would ask for a retry.
        raise _refused(str(error), ErrorCode.INVALID_RECORD) from None
    return data, header


def _check_magic(data: memoryview) -> None:
    if len(data) < HEADER_BYTES:
        raise _refused(f"{len(data)} bytes are too few for a record batch", ErrorCode.CORRUPT_MESSAGE)
    magic = data[MAGIC_AT]
    if magic < MAGIC:
        raise _refused(f"record format {magic} is not accepted by this version", ErrorCode.INVALID_RECORD)
    if magic != MAGIC:
        raise _refused(f"unknown record format {magic}", ErrorCode.CORRUPT_MESSAGE)


def _check_header(header: BatchHeader, produce_version: int) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > CompressionType.ZSTD or (codec == CompressionType.ZSTD and produce_version < _FIRST_WITH_ZSTD):
        raise _refused(f"compression {codec} is not supported", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if header.is_control:
        raise _refused("clients may not write control batches", ErrorCode.INVALID_RECORD)
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _refused(
            f"{header.record_count} records do not match the last offset delta {header.last_offset_delta}",
            ErrorCode.INVALID_RECORD,
        )
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _refused("a producer id needs an epoch and a sequence", ErrorCode.INVALID_RECORD)
    if header.is_transactional and not header.has_producer_id:
        raise _refused("a transactional batch needs a producer id", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _check_timestamps(header: BatchHeader, rules: BatchRules, wall_ms: int) -> None:
    if rules.log_append_time:
        # The log overwrites the timestamps.
        return
    if header.is_log_append_time:
        raise _refused("only a broker may set the log append time", ErrorCode.INVALID_TIMESTAMP)
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp == NO_TIMESTAMP:
            continue
        if wall_ms - timestamp > rules.timestamp_before_max_ms:
            raise _refused(
                f"timestamp {timestamp} is more than {rules.timestamp_before_max_ms} ms before {wall_ms}",
                ErrorCode.INVALID_TIMESTAMP,
            )
        if timestamp - wall_ms > rules.timestamp_after_max_ms:
            raise _refused(
                f"timestamp {timestamp} is more than {rules.timestamp_after_max_ms} ms after {wall_ms}",
                ErrorCode.INVALID_TIMESTAMP,
            )


def _check_records(header: BatchHeader, packed: memoryview, max_decompressed_bytes: int) -> None:
    """:raises CorruptRecordError: if the records cannot be decompressed within the limit, or are not as many as
    announced.
    """
    codec = header.compression
    if codec is not CompressionType.NONE:
        _count(bytes(decompress(codec, packed, max_decompressed_bytes)), header.record_count)
    elif header.record_count <= _WALKED_UNCOMPRESSED_RECORDS:
        _count(bytes(packed), header.record_count)
    elif header.record_count * _SMALLEST_RECORD_BYTES > len(packed):
        raise CorruptRecordError(f"{header.record_count} records do not fit into {len(packed)} bytes")


def _count(data: bytes, announced: int) -> None:
    """Follow the lengths: they must be possible, lead exactly to the end, and be as many as announced."""
    position, end, found = 0, len(data), 0
    while position < end:
        size = data[position]
        if size < 0x80:
            position += 1
        elif position + 1 < end and data[position + 1] < 0x80:
            size = size & 0x7F | data[position + 1] << 7
            position += 2
        else:
            size, position = read_varint(data, position)
            size *= 2
        # The size is still zig-zag encoded: odd means negative.
        if size & 1 or size < 2 * (_SMALLEST_RECORD_BYTES - 1):
            raise CorruptRecordError(f"record {found} has an impossible length")
        position += size >> 1
        found += 1
    if position != end:
        raise CorruptRecordError(
            f"record {found - 1} is truncated: it ends {position - end} bytes after the end of the batch"
        )
    if found != announced:
        raise CorruptRecordError(f"batch announces {announced} records but holds {found}")


def _refused(reason: str, code: ErrorCode) -> ApiError:
    return ApiError(reason, code)
