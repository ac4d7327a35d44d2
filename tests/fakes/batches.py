"""Producer batches for tests."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import Clock
from kafka_sink.common.model import Header, TopicPartition
from kafka_sink.producer.batching.buffer_pool import BatchMemory
from kafka_sink.producer.batching.producer_batch import Compression, ProducerBatch
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import Record, RecordBatchView, read_batches
from tests.fakes.clock import FakeClock

TP = TopicPartition("orders", 3)
UNCOMPRESSED = Compression(CompressionType.NONE, None)


class GivenMemory(BatchMemory):
    """Memory whose allocations have *sizes*, in this order, up to *limit*; with None or none left, it has no memory."""

    def __init__(self, sizes: list[int | None], limit: int = 0) -> None:
        self._sizes = sizes
        self._limit = limit
        self.given_back: list[bytearray] = []

    def limit_for(self, memory: bytearray) -> int:
        return max(self._limit, len(memory))

    def allocate_larger(self, needed: int) -> bytearray | None:
        size = self._sizes.pop(0) if self._sizes else None
        if size is None:
            return None
        assert size >= needed
        return bytearray(size)

    def give_back(self, memory: bytearray) -> None:
        self.given_back.append(memory)


NO_MORE_MEMORY = GivenMemory([])


def make_batch(
    *,
    tp: TopicPartition = TP,
    room: int = 1000,
    compression: Compression = UNCOMPRESSED,
    clock: Clock | None = None,
    created_ms: int = 0,
    values: Sequence[bytes] = (),
) -> ProducerBatch:
    """A batch with *room* bytes for records, and one record for each of *values*."""
    size = HEADER_BYTES + room
    batch = ProducerBatch(tp, bytearray(size), NO_MORE_MEMORY, compression, clock or FakeClock(), created_ms)
    for value in values:
        append(batch, value)
    return batch


def append(
    batch: ProducerBatch,
    value: bytes | None = b"value",
    *,
    key: bytes | None = None,
    timestamp: int = 5000,
    headers: Sequence[Header] = (),
    callback: DeliveryCallback | None = None,
) -> FutureRecordMetadata:
    """Append one record, which must fit."""
    future = batch.try_append(timestamp, key, value, headers, callback)
    assert future is not None
    return future


def on_the_wire(segments: Sequence[Buffer]) -> bytes:
    return b"".join(segments)


def read_wire(segments: Sequence[Buffer]) -> tuple[RecordBatchView, list[Record]]:
    """The one batch that *segments* are; its CRC must hold."""
    (view,) = read_batches(on_the_wire(segments))
    assert view.verify_crc()
    assert view.header.size_in_bytes == sum(len(segment) for segment in segments)
    return view, list(view.records())
