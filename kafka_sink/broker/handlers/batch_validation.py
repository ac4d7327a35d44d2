"""The checks a record batch of a produce request has to pass, and the error code of each.

Pure functions over bytes. They read the header and sum up the batch once; records are neither unpacked nor decoded,
which keeps the cost of a batch independent of how many records it has.

Source: apache/kafka ``LogValidator`` and ``ProduceRequest.validateRecords``.
"""

from __future__ import annotations

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ApiError, CorruptRecordError, ErrorCode
from kafka_sink.records.batch import BatchHeader, parse_header, verify_crc
from kafka_sink.records.layout import CODEC_MASK, HEADER_BYTES, MAGIC, MAGIC_AT

_ZSTD = 4
#: Produce versions before it predate zstd (KIP-110).
_FIRST_WITH_ZSTD = 7


def validated_batch(records: Buffer | None, max_message_bytes: int, version: int) -> tuple[memoryview, BatchHeader]:
    """The one batch in *records*, once nothing is wrong with it.

    :raises ApiError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE or
        INVALID_TXN_STATE.
    """
    data = memoryview(records or b"")
    if not len(data):
        raise _refused("there is no record batch", ErrorCode.INVALID_RECORD)
    _check_magic(data)
    try:
        header = parse_header(data)
    except CorruptRecordError as error:
        raise _refused(str(error), ErrorCode.CORRUPT_MESSAGE) from None
    size = header.size_in_bytes
    if size > len(data):
        raise _refused(f"a batch of {size} bytes is cut off after {len(data)}", ErrorCode.CORRUPT_MESSAGE)
    if size > max_message_bytes:
        raise _refused(f"a batch of {size} bytes is larger than {max_message_bytes}", ErrorCode.MESSAGE_TOO_LARGE)
    if size < len(data):
        raise _refused("more than one record batch for a partition", ErrorCode.INVALID_RECORD)
    if not verify_crc(data):
        raise _refused("the batch does not match its checksum", ErrorCode.CORRUPT_MESSAGE)
    _check_header(header, version)
    return data, header


def _check_magic(data: memoryview) -> None:
    if len(data) < HEADER_BYTES:
        raise _refused(f"{len(data)} bytes are no record batch", ErrorCode.CORRUPT_MESSAGE)
    magic = data[MAGIC_AT]
    if magic < MAGIC:
        raise _refused(f"record format {magic} is not accepted by this version", ErrorCode.INVALID_RECORD)
    if magic != MAGIC:
        raise _refused(f"there is no record format {magic}", ErrorCode.CORRUPT_MESSAGE)


def _check_header(header: BatchHeader, version: int) -> None:
    codec = header.attributes & CODEC_MASK
    if codec > _ZSTD or (codec == _ZSTD and version < _FIRST_WITH_ZSTD):
        raise _refused(f"compression {codec} is not supported", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if header.is_control:
        raise _refused("clients may not write control batches", ErrorCode.INVALID_RECORD)
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise _refused(
            f"{header.record_count} records cannot have the offsets 0 to {header.last_offset_delta}",
            ErrorCode.INVALID_RECORD,
        )
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _refused("a producer id needs an epoch and a sequence", ErrorCode.INVALID_RECORD)
    if header.is_transactional:
        raise _refused("no transaction was begun for this batch", ErrorCode.INVALID_TXN_STATE)


def _refused(reason: str, code: ErrorCode) -> ApiError:
    return ApiError(reason, code)
