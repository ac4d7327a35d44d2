"""Encodes one record at a time: the encoder of short batches, and the reference for the vectorised encoder.

The sender thread calls it for batches of a few records, and tests call it. It does not depend on batches or columns.

Source: https://kafka.apache.org/documentation/#record, KIP-82 (headers).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_sink.columns.varint import NULL_LENGTH, encode_varint, varint_size
from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header
from kafka_sink.records.layout import HEADER_BYTES, MAX_RECORD_OVERHEAD_BYTES


def write_record(
    target: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] = (),
) -> None:
    """Append one record to *target*; the deltas are relative to the batch's base offset and base timestamp (ms)."""
    entries = list(headers)
    write_record_with_entries(
        target, offset_delta, timestamp_delta, key, value, len(entries), header_entries(entries) if entries else b""
    )


def write_record_with_entries(
    target: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    header_count: int,
    header_entries: bytes,
) -> None:
    """:func:`write_record` for headers that are already encoded, except for their number."""
    body = b"".join(
        (
            b"\x00",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            NULL_LENGTH if key is None else encode_varint(len(key)) + key,
            NULL_LENGTH if value is None else encode_varint(len(value)) + value,
            encode_varint(header_count),
            header_entries,
        )
    )
    target += encode_varint(len(body))
    target += body


def header_entries(headers: Sequence[Header]) -> bytes:
    """The encoded headers of one record, without their number.

    :raises SerializationError: if a header's key is not text, or its value is neither bytes nor None.
    """
    parts: list[bytes] = []
    for number, (name, value) in enumerate(headers):
        if not isinstance(name, str):
            raise SerializationError(f"header {number}: the key must be text, got {type(name).__name__}")
        raw = name.encode()
        parts += (encode_varint(len(raw)), raw)
        if value is None:
            parts.append(NULL_LENGTH)
        elif isinstance(value, bytes):
            parts += (encode_varint(len(value)), value)
        else:
            raise SerializationError(
                f"header {number} ({name}): the value must be bytes or None, got {type(value).__name__}"
            )
    return b"".join(parts)


def record_size(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
) -> int:
    """The exact number of bytes that :func:`write_record` appends for the same arguments."""
    body = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + _contents_size(key, value, headers)
    return varint_size(body) + body


def record_size_upper_bound(key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()) -> int:
    """The maximum size of a batch with only this record, including the batch header.

    ``max.request.size`` and ``batch.size`` are compared with it before the deltas are known (Kafka's
    ``estimateSizeInBytesUpperBound``).
    """
    return HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES + _contents_size(key, value, headers)


def _contents_size(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    size = _bytes_size(key) + _bytes_size(value) + varint_size(len(headers))
    for name, header_value in headers:
        size += _bytes_size(name.encode()) + _bytes_size(header_value)
    return size


def _bytes_size(data: bytes | None) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)
