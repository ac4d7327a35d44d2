"""All that compressed data hold, at once."""

from __future__ import annotations

from kafka_sink.common.buffers import Buffer
from kafka_sink.records.compression import CompressionType, decompressed


def decompress(kind: CompressionType, data: Buffer, max_bytes: int) -> bytes:
    """:raises CorruptRecordError: see :func:`kafka_sink.records.compression.decompressed`."""
    return b"".join(decompressed(kind, data, max_bytes))
