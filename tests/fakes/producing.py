"""An accumulator with its parts, for tests."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo
from kafka_sink.common.clock import Clock, ExponentialBackoff
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_TIMESTAMP, Header, Node, TopicPartition
from kafka_sink.producer.batching.accumulator import AppendResult, RecordAccumulator, SerializedRecord
from kafka_sink.producer.batching.batch_drain import BatchDrain
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.calls_in_progress import CallsInProgress
from kafka_sink.producer.batching.column_append import AppendedRows, ColumnAppender, SortedRows
from kafka_sink.producer.batching.partition_queues import IncompleteBatches, PartitionQueue, PartitionQueues
from kafka_sink.producer.batching.producer_batch import BatchSettings, Compression, ProducerBatch
from kafka_sink.producer.futures import DeliveryCallback, FutureRecordMetadata
from kafka_sink.producer.transactions.idempotence import IdempotenceManager
from kafka_sink.records.vectorized import partition_order
from tests.fakes.batches import UNCOMPRESSED, make_batch, read_wire
from tests.fakes.chunks import Row, make_chunk
from tests.fakes.clock import FakeClock

TOPIC = "orders"
NODES = (Node(0, "a", 9092), Node(1, "b", 9092))


def tp(partition: int, topic: str = TOPIC) -> TopicPartition:
    return TopicPartition(topic, partition)


def make_cluster(leaders: Sequence[int | None], topic: str = TOPIC) -> Cluster:
    """Return a cluster with a topic: partition ``i`` has the leader ``NODES[leaders[i]]``, or none."""
    infos = [
        PartitionInfo(topic, partition, None if leader is None else NODES[leader])
        for partition, leader in enumerate(leaders)
    ]
    return Cluster(NODES, infos)


def make_idempotence(partitions: int = 10) -> IdempotenceManager:
    """Return the manager of the producer with id 9, which has stored records in the partitions of :data:`TOPIC`."""
    manager = IdempotenceManager(ContextLogger(__name__, "test"))
    manager.assign_producer_id(9, -1)
    for partition in range(partitions):
        use_up_sequences(manager, tp(partition), 1)
    manager.assign_producer_id(9, 0)
    return manager


def use_up_sequences(manager: IdempotenceManager, topic_partition: TopicPartition, count: int) -> None:
    """Advance the sequence by *count* records, with acknowledged batches that claim to have these."""
    while count:
        batch = make_batch(tp=topic_partition)
        batch.record_count = min(count, 2**29)
        manager.assign_sequence(batch)
        manager.completed(batch)
        count -= batch.record_count


#: Its one partition is led by the first node.
ONE = make_cluster([0])
#: A value of which one fits into a batch of 1000 bytes, and two do not.
LARGE = b"x" * 600


class MadeAccumulator(RecordAccumulator):
    """An accumulator with attributes for its parts."""

    pool: BufferPool
    clock: Clock
    queues: PartitionQueues
    incomplete: IncompleteBatches
    #: The operations of the sender thread on the batches.
    sender_side: BatchDrain


class Straggler:
    """An append of *value* to partition 0, on a thread of its own, that has found the producer open and adds its batch
    only at :meth:`end`."""

    def __init__(self, accumulator: RecordAccumulator, clock: FakeClock, value: bytes) -> None:
        self._is_in, self._may_end = threading.Event(), threading.Event()
        self._futures: list[FutureRecordMetadata] = []
        self._thread = threading.Thread(
            target=lambda: self._futures.append(append_record(accumulator, 0, value)), daemon=True
        )
        monotonic_ms = clock.monotonic_ms

        def pausing() -> int:
            if threading.current_thread() is self._thread and not self._is_in.is_set():
                # The append reads the clock for the creation time of its batch: after the check whether the producer is
                # open, with the lock of the partition held.
                self._is_in.set()
                self._may_end.wait(30)
            return monotonic_ms()

        clock.monotonic_ms = pausing  # type: ignore[method-assign]
        self._thread.start()
        assert self._is_in.wait(30)

    def end(self) -> FutureRecordMetadata:
        """Let it open its batch, and return its future."""
        self._may_end.set()
        self._thread.join(30)
        return self._futures[0]


def make_accumulator(
    clock: Clock,
    *,
    batch_size: int = 1000,
    linger_ms: int = 10,
    retry_backoff_ms: int = 100,
    delivery_timeout_ms: int = 120_000,
    memory: int = 1_000_000,
    compression: Compression = UNCOMPRESSED,
    idempotence: IdempotenceManager | None = None,
) -> MadeAccumulator:
    pool = BufferPool(memory, batch_size, clock, on_wait=lambda: None)
    backoff = ExponentialBackoff(retry_backoff_ms, retry_backoff_ms, jitter=0)
    settings = BatchSettings(batch_size, compression, linger_ms, delivery_timeout_ms, backoff)
    queues, incomplete = PartitionQueues(), IncompleteBatches(pool)
    accumulator = MadeAccumulator(settings, pool, queues, incomplete, CallsInProgress(), clock)
    accumulator.pool, accumulator.clock, accumulator.queues, accumulator.incomplete = pool, clock, queues, incomplete
    accumulator.sender_side = BatchDrain(settings, queues, incomplete, accumulator.is_urgent, idempotence)
    return accumulator


def append(
    accumulator: RecordAccumulator,
    partition: int = 0,
    value: bytes | None = b"v",
    *,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    timestamp: int = 5000,
    callback: DeliveryCallback | None = None,
    max_block_ms: int = 1000,
    abort_on_new_batch: bool = False,
) -> AppendResult:
    return accumulator.append(
        tp(partition),
        SerializedRecord(timestamp, key, value, headers, callback),
        max_block_ms,
        abort_on_new_batch=abort_on_new_batch,
    )


def append_record(accumulator: RecordAccumulator, partition: int = 0, value: bytes = b"v") -> FutureRecordMetadata:
    """Append one record and return its future."""
    future = append(accumulator, partition, value).future
    assert future is not None
    return future


def queue_of(accumulator: RecordAccumulator, partition: int = 0) -> PartitionQueue:
    # The accumulator's queues are private; tests access them only here.
    return accumulator._queues.of(tp(partition))


def queued(accumulator: RecordAccumulator, partition: int = 0) -> list[ProducerBatch]:
    return list(queue_of(accumulator, partition).batches)


def drain(
    accumulator: MadeAccumulator, cluster: Cluster = ONE, *, max_bytes: int = 10**6, node: int = 0
) -> list[ProducerBatch]:
    """Return the batches that the sender drains for a node."""
    now_ms = accumulator.clock.monotonic_ms()
    return accumulator.sender_side.drain(cluster, [NODES[node]], max_bytes, now_ms)[node]


def finish(accumulator: MadeAccumulator, batch: ProducerBatch) -> None:
    """Complete *batch* as stored at offset 0."""
    batch.done(0, NO_TIMESTAMP, None)
    accumulator.incomplete.deallocate(batch)


def is_ready(accumulator: MadeAccumulator, cluster: Cluster = ONE) -> bool:
    return NODES[0] in accumulator.sender_side.ready(cluster, accumulator.clock.monotonic_ms()).ready_nodes


def values(batch: ProducerBatch) -> list[bytes | None]:
    """Return the values of a drained batch."""
    _, records = read_wire(batch.wire)
    return [record.value for record in records]


def append_columns(
    accumulator: RecordAccumulator,
    rows: Sequence[Row],
    *,
    has_timestamps: bool = False,
    callback: DeliveryCallback | None = None,
    max_block_ms: int = 1000,
    clock: Clock | None = None,
) -> bool:
    """Append *rows* as one chunk, each to its own partition."""
    if clock is None:
        assert isinstance(accumulator, MadeAccumulator)
        clock = accumulator.clock
    chunk = make_chunk(rows, has_timestamps=has_timestamps)
    order, numbers, starts = partition_order(np.array([row.partition for row in rows], dtype=np.int32))
    runs = [tp(number) for number in numbers.tolist()]
    return ColumnAppender(accumulator, clock).append(
        SortedRows(TOPIC, chunk if order is None else chunk.take(order), runs, starts, clock.wall_ms()),
        callback,
        max_block_ms,
        AppendedRows(len(rows)),
    )
