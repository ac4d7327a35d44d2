"""Records taken in one by one and encoded together: byte for byte what ``reference.write_record`` makes of each.

Called by a producer's batch: :func:`header_entries` on the calling threads when a record is staged,
:func:`encode_staged` on the sender thread when the batch is closed. It must never depend on anything but its arguments.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import Header
from kafka_sink.records import reference
from kafka_sink.records.binary_column import BinaryColumn
from kafka_sink.records.columns import ColumnChunk, HeadersColumn
from kafka_sink.records.varint import NULL_LENGTH, encode_varint
from kafka_sink.records.vectorized import encode_records

#: Timestamp (ms), key, value, number of headers, and these encoded by :func:`header_entries`.
StagedRecord: TypeAlias = tuple[int, bytes | None, bytes | None, int, bytes]

#: For fewer records the arrays cost more than they save.
_FEW_RECORDS: Final = 24


def header_entries(headers: Sequence[Header]) -> bytes:
    """The headers of one record as it has them, without their number.

    :raises SerializationError: a header's key is not text, or its value neither bytes nor None.
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


def encode_staged(records: Sequence[StagedRecord], first_offset_delta: int, base_timestamp: int) -> tuple[Buffer, int]:
    """The bytes of *records*, the first of which has the offset delta *first_offset_delta* in its batch, and how many
    of them are the largest record's."""
    if len(records) < _FEW_RECORDS:
        return _encode_few(records, first_offset_delta, base_timestamp)
    timestamps, keys, values, counts, entries = zip(*records, strict=True)
    has_headers = any(counts)
    headers = None
    if has_headers:
        headers = HeadersColumn(np.array(counts, dtype=np.int64), _column(entries))
    chunk = ColumnChunk(_column(values), _column(keys), headers)
    offset_deltas = np.arange(first_offset_delta, first_offset_delta + len(records), dtype=np.int64)
    encoded = encode_records(chunk, offset_deltas, np.array(timestamps, dtype=np.int64) - base_timestamp)
    return encoded.data, int(np.diff(encoded.offsets).max())


def _column(cells: Sequence[bytes | None]) -> BinaryColumn:
    return BinaryColumn.from_arrow(pa.array(cells, pa.large_binary()))


def _encode_few(records: Sequence[StagedRecord], first_offset_delta: int, base_timestamp: int) -> tuple[bytearray, int]:
    target = bytearray()
    largest = 0
    for offset_delta, (timestamp, key, value, count, entries) in enumerate(records, first_offset_delta):
        start = len(target)
        reference.write_record_with_entries(
            target, offset_delta, timestamp - base_timestamp, key, value, count, entries
        )
        largest = max(largest, len(target) - start)
    return target, largest
