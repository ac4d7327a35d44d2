"""Splits encoded records and writes them for another position: the second half of a batch becomes a batch.

The producer's sender thread calls it when a broker finds a batch too large. Only the deltas and the length in front of
a record depend on its position; keys, values and headers are copied without decoding.

Source: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from typing import NamedTuple

from kafka_sink.columns.varint import encode_varint, read_varint, read_varlong
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError


class PlacedRecord(NamedTuple):
    """One encoded record of *size_bytes* bytes; *content* is the part after its deltas."""

    timestamp_delta: int
    content: bytes
    size_bytes: int


def parse_records(data: Buffer) -> list[PlacedRecord]:
    """The uncompressed records of a batch, in order.

    :raises CorruptRecordError: if a length or a delta is damaged.
    """
    plain = bytes(data)
    records: list[PlacedRecord] = []
    position = 0
    while position < len(plain):
        start = position
        size, position = read_varint(plain, position)
        end = position + size
        if size < 0 or end > len(plain):
            raise CorruptRecordError(f"record {len(records)} of {size} bytes does not fit into {len(plain) - position}")
        timestamp_delta, position = read_varlong(plain, position + 1)
        _, position = read_varint(plain, position)
        records.append(PlacedRecord(timestamp_delta, plain[position:end], end - start))
        position = end
    return records


def write_content(target: bytearray, offset_delta: int, timestamp_delta: int, content: bytes) -> None:
    """Append a record with *content* and new deltas."""
    deltas = encode_varint(timestamp_delta) + encode_varint(offset_delta)
    target += encode_varint(1 + len(deltas) + len(content))
    target += b"\x00"
    target += deltas
    target += content
