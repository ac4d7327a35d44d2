"""The checks that a record batch of a produce request must pass before a broker stores it, with their error codes.

Pure functions over bytes, which the broker's handlers call on their threads. The header is checked completely, and the
checksum covers the whole batch. Compressed records are decompressed within a limit, piece by piece, and located by
their lengths; their offset deltas must count from 0, which Kafka requires of compressed records only. In small
uncompressed batches the records are located, too. For a large one, only the number of records is compared with its
size. The rest of a record (the length of its key, its headers) is checked by its readers only. In a compacted topic
every record must have a key, so all records are located and read up to their values. This module never decompresses
more than the rules allow, whatever the compressed data claims, and never keeps decompressed data.

Source: apache/kafka ``LogValidator`` and ``ProduceRequest.validateRecords``; KIP-110; apache/kafka pull request 23429.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from kafka_sink.columns.varint import read_varint, read_varlong
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode, InvalidRecordError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.records.batch import BatchHeader, parse_header, verify_crc
from kafka_sink.records.compacted import read_keyed
from kafka_sink.records.compression import CompressionType, decompressed
from kafka_sink.records.layout import CODEC_MASK, HEADER_BYTES, MAGIC, MAGIC_AT
from kafka_sink.records.spans import LEAST_BYTES, record_runs

#: The first Produce version that supports zstd (KIP-110).
_FIRST_WITH_ZSTD: Final = 7
#: The limit up to which the records of an uncompressed batch are counted: counting so few costs less than a request,
#: and counting the tens of thousands that fit into a batch would cost more.
_WALKED_UNCOMPRESSED_RECORDS: Final = 128
#: The maximum number of records named in a response, which could grow to many times the size of the batch.
_MOST_NAMED: Final = 10_000


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The limits of a topic: sizes in bytes, times in ms (how far base and maximum timestamp may be before or after
    now)."""

    max_message_bytes: int
    max_decompressed_bytes: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    log_append_time: bool
    #: The topic is compacted.
    needs_key: bool = False


def validate_batch(
    records: Buffer | None, rules: BatchRules, wall_ms: int, produce_version: int
) -> tuple[memoryview, BatchHeader]:
    """Check that *records* is one valid batch, and return it.

    :raises InvalidRecordError: if a rule refuses some of its records, which it names (KIP-467).

    :raises ApiError: if it is not valid, with the code INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE,
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
        _check_records(header, data[HEADER_BYTES:], rules, wall_ms)
    except CorruptRecordError as error:
        # The checksum is correct, so a retry would fail in the same way. CORRUPT_MESSAGE would cause one.
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
    _check_times((header.base_timestamp, header.max_timestamp), rules, wall_ms)


def _check_times(timestamps: Iterable[int], rules: BatchRules, wall_ms: int) -> None:
    for timestamp in timestamps:
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


def _check_records(header: BatchHeader, packed: memoryview, rules: BatchRules, wall_ms: int) -> None:
    """:raises CorruptRecordError: if the records cannot be decompressed within the limit, or their number or offsets
    differ from those announced."""
    codec, count = header.compression, header.record_count
    is_packed = codec is not CompressionType.NONE
    if not is_packed and not rules.needs_key and count > _WALKED_UNCOMPRESSED_RECORDS:
        if count * (1 + LEAST_BYTES) > len(packed):
            raise CorruptRecordError(f"{count} records do not fit into {len(packed)} bytes")
        return
    limit = rules.max_decompressed_bytes if is_packed else len(packed)
    index = low = high = 0
    without_key: list[int] = []
    for data, starts, ends in record_runs(decompressed(codec, packed, limit), count):
        if rules.needs_key and len(without_key) < _MOST_NAMED:
            spans = enumerate(zip(repeat(data), starts, ends), index)
            without_key += (number for number, span in spans if read_keyed(span).key is None)
        oldest, newest = _check_deltas(data, starts, index if is_packed else None)
        index, low, high = index + len(starts), min(low, oldest), max(high, newest)
    if not rules.log_append_time:
        _check_times((header.base_timestamp + low, header.base_timestamp + high), rules, wall_ms)
    if without_key:
        text = "a compacted topic takes no record without a key"
        raise InvalidRecordError(text, numbers=without_key[:_MOST_NAMED])


def _check_deltas(data: bytes, starts: list[int], first: int | None) -> tuple[int, int]:
    """The minimum and maximum of 0 and the timestamp deltas of the records that begin at *starts*. Their offset deltas
    must count from *first*, if it is given.

    Each delta is read as twice its value (zig-zag). A batch may have a million records, so that timestamps of one or
    two bytes and offsets of up to three, which are nearly all, are read without a call.

    :raises CorruptRecordError: if an offset delta differs, or a delta has more bytes than its type allows.
    """
    low = high = 0
    for number, start in enumerate(starts, first or 0):
        twice, at = data[start + 1], start + 2
        if twice > 0x7F:
            if (second := data[at]) < 0x80:
                twice, at = twice & 0x7F | second << 7, at + 1
            else:
                delta, at = read_varlong(data, start + 1)
                twice = delta << 1
        delta = (twice >> 1) ^ -(twice & 1)
        if delta > high:
            high = delta
        elif delta < low:
            low = delta
        try:
            twice = data[at]
            if twice > 0x7F:
                if (second := data[at + 1]) < 0x80:
                    twice = twice & 0x7F | second << 7
                elif (third := data[at + 2]) < 0x80:
                    twice = twice & 0x7F | (second & 0x7F) << 7 | third << 14
                else:
                    twice = read_varint(data, at)[0] << 1
        except IndexError:
            raise CorruptRecordError(f"data ends within the offset of record {number}") from None
        if first is not None and twice != number << 1:
            raise CorruptRecordError(
                f"record {number} of a compressed batch has the offset {twice >> 1 ^ -(twice & 1)}"
            )
    return low, high


def _refused(reason: str, code: ErrorCode) -> ApiError:
    return ApiError(reason, code)
