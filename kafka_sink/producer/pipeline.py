"""The pipeline of a producer: creates and connects its parts, from the staging of records to the network client.

This is the one place where they are connected. The constructing thread calls it once. It opens no connection and starts
no thread; its caller starts the thread that runs it.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.client.factory import ClientNetwork, SelectorMetrics, create_client
from kafka_sink.common.clock import ExponentialBackoff
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.batch_drain import BatchDrain
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.calls_in_progress import CallsInProgress
from kafka_sink.producer.batching.column_append import ColumnAppender
from kafka_sink.producer.batching.partition_queues import IncompleteBatches, PartitionQueues
from kafka_sink.producer.batching.producer_batch import BatchSettings, Compression
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.metrics import ProducerContext, ProducerMetrics
from kafka_sink.producer.plugins.built_in_partitioner import PartitionLoads
from kafka_sink.producer.plugins.loading import Plugins
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
from kafka_sink.producer.sending.produce_request_sender import ProduceRequestSender
from kafka_sink.producer.sending.sender import Sender, TransactionalRequestSender
from kafka_sink.producer.staging.column_staging import ColumnStaging
from kafka_sink.producer.staging.record_staging import RecordStaging
from kafka_sink.producer.staging.topic_metadata import TopicMetadata
from kafka_sink.producer.transactions.manager import TransactionManager


def make_network(config: ProducerConfig, client_id: str) -> ClientNetwork:
    """The network of a producer that was given none."""
    metrics = SelectorMetrics(config.metrics_num_samples, config.metrics_sample_window_ms)
    client, metadata = create_client(config, client_id=client_id, metrics=metrics)
    return ClientNetwork(client, metadata, metrics)


class Pipeline:
    """The parts of one producer, as attributes for its methods, and what its thread runs.

    :param on_interrupt: called when a call was interrupted, so that the producer can only be closed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        network: ClientNetwork,
        plugins: Plugins,
        client_id: str,
        log: ContextLogger,
        on_interrupt: Callable[[], None],
    ) -> None:
        client, metadata, clock = network.client, network.metadata, network.clock
        self.network = network
        self.pool = BufferPool(
            config.buffer_memory_bytes,
            config.batch_size_bytes,
            clock,
            client.wakeup,
            config.option_prefix,
            config.metrics_num_samples,
            config.metrics_sample_window_ms,
        )
        self.metrics = ProducerMetrics(client_id, config, self.pool.figures, network)
        context = ProducerContext(config, clock, self.metrics, log)
        identity = TransactionManager(config, client.api_versions, clock, log) if config.enable_idempotence else None
        #: Keeps the sequences, and the transactions if there is a transactional id. None without idempotence.
        self.identity = identity
        #: The same; None without a transactional id.
        self.transactions = transactions = identity if identity is not None and identity.is_transactional else None
        self.calls = CallsInProgress(on_interrupt)
        self.calls.sender_needs(lambda: [metadata.lock, client.api_versions.lock, *self.metrics.locks()])
        if plugins.built_in is not None:
            partitioner = plugins.built_in
            self.calls.sender_needs(lambda: [partitioner.lock])
        if transactions is not None:
            self.calls.sender_needs(lambda: [transactions.lock])
        settings = BatchSettings(
            config.batch_size_bytes,
            Compression.of(config),
            config.linger_ms,
            config.delivery_timeout_ms,
            ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        )
        self.queues = queues = PartitionQueues()
        self.incomplete = incomplete = IncompleteBatches(self.pool)
        self.accumulator = RecordAccumulator(settings, self.pool, queues, incomplete, self.calls, clock, transactions)
        sequences = None if identity is None else identity.sequences
        self.drain = BatchDrain(settings, queues, incomplete, self.accumulator.is_urgent, sequences, transactions)
        loads = None
        if plugins.built_in is not None and config.partitioner_adaptive_partitioning_enable:
            loads = PartitionLoads(queues, plugins.built_in, config.partitioner_availability_timeout_ms)
        self.in_flight = InFlightBatches(context, network, self.accumulator, self.drain, incomplete, identity)
        produce = ProduceRequestSender(context, network, self.drain, self.in_flight, identity, loads)
        transactional = None
        if identity is not None:
            transactional = TransactionalRequestSender(context, network, self.accumulator, self.in_flight, identity)
        self.sender = Sender(context, network.client, self.accumulator, self.in_flight, produce, transactional)
        wake = self.sender.wakeup
        self.topics = TopicMetadata(context, network, self.sender, self.calls)
        self.records = RecordStaging(context, self.topics, self.accumulator, plugins, transactions, wake)
        self.columns = ColumnStaging(context, self.topics, ColumnAppender(self.accumulator, clock), plugins, wake)

    def run(self) -> None:
        """The producer's thread; see :meth:`Sender.run`."""
        try:
            with self.calls.on_sender_thread():
                self.sender.run()
        except BaseException as error:
            self.calls.interrupted("the sender thread", error)
            raise

    def end_with_program(self) -> None:
        """See :meth:`Sender.end_with_program`."""
        self.sender.end_with_program()
