"""The pipeline of a producer: creates and connects its parts, from the staging of records to the network client.

The constructing thread calls it once. It opens no connection and starts no thread; its caller runs the sender.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from kafka_sink.client.factory import ClientNetwork, SelectorMetrics, create_client
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import Clock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.buffer_pool import BufferPool
from kafka_sink.producer.batching.column_append import ColumnAppender
from kafka_sink.producer.batching.producer_batch import Compression
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.plugins.loading import Plugins
from kafka_sink.producer.sending.batch_drain import BatchDrain
from kafka_sink.producer.sending.partition_loads import PartitionLoads
from kafka_sink.producer.sending.sender import Sender
from kafka_sink.producer.staging.column_staging import ColumnStaging
from kafka_sink.producer.staging.record_staging import RecordStaging
from kafka_sink.producer.staging.topic_metadata import TopicMetadata
from kafka_sink.producer.transactions.manager import TransactionManager, make_transactions
from kafka_sink.records.compression import CompressionType


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts that a producer's methods use."""

    network: ClientNetwork
    metrics: ProducerMetrics
    accumulator: RecordAccumulator
    #: Only with a transactional id.
    transactions: TransactionManager | None
    sender: Sender
    topics: TopicMetadata
    records: RecordStaging
    columns: ColumnStaging


def make_pipeline(
    config: ProducerConfig,
    clock: Clock,
    log: ContextLogger,
    undo: ExitStack,
    *,
    client_id: str,
    plugins: Plugins,
    network: ClientNetwork | None,
) -> Pipeline:
    """:param undo: closes what was opened, if the producer cannot be created."""
    if network is None:
        traffic = SelectorMetrics(config.metrics_num_samples, config.metrics_sample_window_ms)
        client, metadata = create_client(config, client_id=client_id, clock=clock, metrics=traffic)
        network = ClientNetwork(client, metadata, traffic)
    client, metadata, traffic = network.client, network.metadata, network.metrics
    undo.callback(client.close)
    pool = BufferPool(
        config.buffer_memory_bytes,
        config.batch_size_bytes,
        clock,
        on_wait=client.wakeup,
        samples=config.metrics_num_samples,
        window_ms=config.metrics_sample_window_ms,
        option_prefix=config.option_prefix,
    )
    metrics = ProducerMetrics(
        pool,
        client_id=client_id,
        samples=config.metrics_num_samples,
        window_ms=config.metrics_sample_window_ms,
        client=lambda now_ms: (
            ("requests-in-flight", client.in_flight_request_count()),
            ("metadata-age", metadata.age_ms(now_ms) / 1000),
        ),
        network=traffic.figures,
        nodes=lambda: {node: frames.figures for node, frames in tuple(traffic.by_connection.items())},
    )
    identity = make_transactions(config, client.api_versions, clock, log) if config.enable_idempotence else None
    transactions = identity if config.transactional_id is not None else None
    accumulator = RecordAccumulator(
        batch_size_bytes=config.batch_size_bytes,
        compression=Compression(CompressionType.from_name(config.compression_type), config.compression_level),
        pool=pool,
        clock=clock,
        transactions=transactions,
    )
    accumulator.calls.sender_needs(lambda: [metadata.lock, *metrics.locks()])
    if transactions is not None:
        accumulator.calls.sender_needs(lambda: [transactions.lock])
    drain = BatchDrain(
        accumulator,
        linger_ms=config.linger_ms,
        retry_backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        delivery_timeout_ms=config.delivery_timeout_ms,
        idempotence=None if identity is None else identity.sequences,
        transactions=transactions,
    )
    loads = None
    if plugins.built_in is not None and config.partitioner_adaptive_partitioning_enable:
        loads = PartitionLoads(accumulator, plugins.built_in, config.partitioner_availability_timeout_ms)
    sender = Sender(
        client=client,
        metadata=metadata,
        accumulator=accumulator,
        drain=drain,
        loads=loads,
        transactions=identity,
        config=config,
        metrics=metrics,
        clock=clock,
        log=log,
    )
    topics = TopicMetadata(metadata, sender, metrics, clock, config, client.connection_failures, accumulator.calls)
    records = RecordStaging(config, clock, topics, accumulator, metrics, plugins, transactions, sender.wakeup, log)
    columns = ColumnStaging(
        config,
        clock,
        topics,
        ColumnAppender(accumulator, clock),
        metrics,
        plugins.built_in,
        plugins.partitioner,
        sender.wakeup,
    )
    return Pipeline(network, metrics, accumulator, transactions, sender, topics, records, columns)
