"""An accumulator within transactions whose permissions the test sets."""

from __future__ import annotations

from kafka_sink.common.clock import ExponentialBackoff
from kafka_sink.common.errors import TransactionStateError
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.batch_drain import BatchDrain
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.calls_in_progress import CallsInProgress
from kafka_sink.producer.batching.partition_queues import IncompleteBatches, PartitionQueues
from kafka_sink.producer.batching.producer_batch import BatchSettings
from tests.fakes.batches import UNCOMPRESSED
from tests.fakes.clock import FakeClock
from tests.fakes.producing import MadeAccumulator


class GivenTransactions:
    """Both interfaces: :class:`~kafka_sink.producer.batching.accumulator.TransactionGate`, and
    :class:`~kafka_sink.producer.batching.batch_drain.SendGate`."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_completing = False
        #: Each partition for which a batch was opened.
        self.added: list[TopicPartition] = []
        #: The partitions whose batches may not be sent now.
        self.held_back: set[TopicPartition] = set()
        self.failures: list[Exception] = []

    def check_can_send(self) -> None:
        if not self.is_open:
            raise TransactionStateError("no transaction is open")

    def add_partition(self, topic_partition: TopicPartition) -> None:
        self.added.append(topic_partition)

    def is_send_allowed(self, topic_partition: TopicPartition) -> bool:
        return topic_partition not in self.held_back

    def batch_failed(self, error: Exception) -> None:
        self.failures.append(error)


def gated_accumulator(
    clock: FakeClock, transactions: GivenTransactions | None, backoff: ExponentialBackoff | None = None
) -> MadeAccumulator:
    """The same as :func:`~tests.fakes.producing.make_accumulator`, but within *transactions*, and with this retry
    *backoff*."""
    pool = BufferPool(1_000_000, 1000, clock, on_wait=lambda: None)
    settings = BatchSettings(1000, UNCOMPRESSED, 10, 120_000, backoff or ExponentialBackoff(100, 100, jitter=0))
    queues, incomplete = PartitionQueues(), IncompleteBatches(pool)
    accumulator = MadeAccumulator(settings, pool, queues, incomplete, CallsInProgress(), clock, transactions)
    accumulator.pool, accumulator.clock, accumulator.queues, accumulator.incomplete = pool, clock, queues, incomplete
    accumulator.sender_side = BatchDrain(settings, queues, incomplete, accumulator.is_urgent, None, transactions)
    return accumulator
