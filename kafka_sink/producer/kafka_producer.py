"""KafkaProducer: the public face of the producer.

Its methods run on the caller's threads, any number of them; each instance owns one daemon Sender thread. It stages
records and never performs I/O itself. A producer belongs to the process that made it: it can be neither pickled nor
used across a fork.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.cluster import Cluster, PartitionInfo
from kafka_sink.client.factory import create_client
from kafka_sink.common import config as common_config
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, TopicPartition
from kafka_sink.common.threads import start_thread
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.accumulator import RecordAccumulator
from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.column_append import ColumnAppender
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import Delivery, DeliveryCallback, FailedFuture, FutureRecordMetadata
from kafka_sink.producer.idempotence import IdempotenceManager
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.partitioner import DefaultPartitioner, Partitioner
from kafka_sink.producer.producer_batch import Compression
from kafka_sink.producer.sender import Sender
from kafka_sink.records import reference
from kafka_sink.records.columns import ColumnChunk
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.layout import HEADER_BYTES, MAX_RECORD_OVERHEAD_BYTES
from kafka_sink.records.vectorized import content_sizes, partition_order

#: Columns are staged in pieces of about this many bytes, so that what is encoded beside buffer.memory stays small.
_PIECE_BYTES = 4 * 1024 * 1024

#: In the partitions given to :meth:`KafkaProducer.send_columns`: let the partitioner choose.
ANY_PARTITION = -1

_producer_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to send: bytes or None for key and value; ``timestamp`` in ms since the epoch, None for now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[Header] = ()


class KafkaProducer:
    """A producer with Java's property names and Java's semantics (apache/kafka ``KafkaProducer``).

    :param properties: see the option table in README.md, for example ``{"bootstrap.servers": "127.0.0.1:9092"}``.
    :raises ConfigError: unknown option, wrong value, or options that contradict each other.
    """

    def __init__(
        self, properties: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK, partitioner: Partitioner | None = None
    ) -> None:
        config = common_config.parse(ProducerConfig, properties)
        config = producer_config.reconcile(config, frozenset(properties))
        self._config = config
        self._clock = clock
        self.client_id = config.client_id or f"producer-{next(_producer_numbers)}"
        self._log = ContextLogger(__name__, f"producer client.id={self.client_id}")
        self._pid = os.getpid()
        self._partitioner = partitioner or DefaultPartitioner(config.batch_size_bytes)
        self._client, self._metadata = create_client(config, client_id=self.client_id, clock=clock)
        pool = BufferPool(config.buffer_memory_bytes, config.batch_size_bytes, clock, on_wait=self._client.wakeup)
        idempotence = IdempotenceManager(self._log) if config.enable_idempotence else None
        self._accumulator = RecordAccumulator(
            batch_size_bytes=config.batch_size_bytes,
            compression=Compression(CompressionType.from_name(config.compression_type), config.compression_level),
            linger_ms=config.linger_ms,
            retry_backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            delivery_timeout_ms=config.delivery_timeout_ms,
            pool=pool,
            clock=clock,
            idempotence=idempotence,
        )
        self._columns = ColumnAppender(self._accumulator, clock)
        self._metrics = ProducerMetrics(pool)
        self._sender = Sender(
            client=self._client,
            metadata=self._metadata,
            accumulator=self._accumulator,
            idempotence=idempotence,
            config=config,
            metrics=self._metrics,
            clock=clock,
            log=self._log,
        )
        try:
            self._thread = start_thread(f"kafka-producer-network-thread | {self.client_id}", self._sender.run)
        except BaseException:
            # Nobody will ever close a producer that could not be made.
            self._client.close()
            raise

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None = None
    ) -> FutureRecordMetadata | FailedFuture:
        """Stage *record* and return its future; waits at most max.block.ms for metadata and memory together.

        Failures of the cluster (unknown topic, no memory in time, record too large) end in the future, and
        *on_delivery* is told of them on this thread, with partition −1 where the record had none yet; misuse raises.

        :raises SerializationError: key or value is neither bytes nor None.
        :raises ValueError: the partition is negative, or the timestamp before 1970.
        :raises KafkaError: the producer is closed.
        """
        self._check_usable()
        _check_bytes("key", record.key)
        _check_bytes("value", record.value)
        _check_not_negative("partition", record.partition)
        _check_not_negative("timestamp", record.timestamp)
        try:
            return self._stage(record, on_delivery)
        except ApiError as error:
            self._log.debug("record for topic %s was not staged: %s", record.topic, error)
            self._tell_of_failure(record, error, on_delivery)
            return FailedFuture(error)

    def _tell_of_failure(self, record: ProducerRecord, error: ApiError, on_delivery: DeliveryCallback | None) -> None:
        if on_delivery is None:
            return
        partition = ANY_PARTITION if record.partition is None else record.partition
        try:
            on_delivery(Delivery(TopicPartition(record.topic, partition), NO_OFFSET, 1, 0, NO_TIMESTAMP, error))
        except Exception:
            self._log.exception("the delivery callback of a record for topic %s raised", record.topic)

    def _stage(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> FutureRecordMetadata:
        deadline = self._clock.monotonic_ms() + self._config.max_block_ms
        cluster = self._wait_on_metadata(record.topic, record.partition, self._config.max_block_ms)
        upper_bound = reference.record_size_upper_bound(record.key, record.value, record.headers)
        self._check_record_size(upper_bound, f"the record for topic {record.topic}")
        timestamp = self._clock.wall_ms() if record.timestamp is None else record.timestamp
        partition = self._partition(record, cluster)
        for abort_on_new_batch in (True, False):
            now_ms = self._clock.monotonic_ms()
            result = self._accumulator.append(
                TopicPartition(record.topic, partition),
                timestamp,
                record.key,
                record.value,
                record.headers,
                on_delivery,
                max(deadline - now_ms, 0),
                abort_on_new_batch=abort_on_new_batch,
                now_ms=now_ms,
            )
            if result.abort_for_new_batch:
                self._partitioner.on_new_batch(record.topic, cluster, partition)
                partition = self._partition(record, cluster)
                continue
            # The second attempt came because there was no batch with room: one was left as full, or a new one is open.
            if result.batch_is_full or not abort_on_new_batch:
                self._sender.wakeup()
            if result.future is not None:
                return result.future
        raise RuntimeError("an append that may open a batch ended without a future")

    def _partition(self, record: ProducerRecord, cluster: Cluster) -> int:
        if record.partition is not None:
            return record.partition
        return self._partitioner.partition(record.topic, record.key, cluster)

    def send_columns(
        self,
        topic: str,
        chunk: ColumnChunk,
        partitions: NDArray[np.int32] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Stage every row of *chunk*: the bulk path, without a Python object per row.

        :param partitions: int32[rows]; :data:`ANY_PARTITION` (or no array) leaves a row to the partitioner.
        :param on_delivery: told once per batch that took rows of this chunk, on the sender thread.
        :raises RecordTooLargeError: a row is over max.request.size or buffer.memory; no row of the chunk is staged.
        :raises UnknownTopicOrPartitionError: a row names a partition that the topic does not have; likewise.
        :raises ValueError: a row names a negative partition, or a timestamp before 1970; likewise.
        :raises ApiError: no metadata or no memory within max.block.ms.
        """
        self._check_usable()
        if chunk.num_rows == 0:
            return
        if chunk.timestamps is not None and int(chunk.timestamps.min()) < 0:
            row = int(chunk.timestamps.argmin())
            raise ValueError(f"row {row} has the timestamp {chunk.timestamps[row]}; Kafka has none before 1970")
        sizes = content_sizes(chunk)
        largest = int(sizes.max()) + HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES
        self._check_record_size(largest, f"row {int(sizes.argmax())} of the {chunk.num_rows} rows for topic {topic}")
        deadline = self._clock.monotonic_ms() + self._config.max_block_ms
        cluster = self._wait_on_metadata(topic, None, self._config.max_block_ms)
        if partitions is not None:
            cluster = self._check_partitions(topic, partitions, cluster)
        wall_ms = self._clock.wall_ms()
        ends = np.cumsum(sizes)
        start = 0
        while start < chunk.num_rows:
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + _PIECE_BYTES, side="right")), start + 1)
            whole = start == 0 and end == chunk.num_rows
            piece = chunk if whole else chunk.slice(start, end - start)
            given = None if partitions is None else partitions[start:end]
            rows = self._partition_rows(topic, piece, sizes[start:end], given, cluster)
            order, run_partitions, run_starts = partition_order(rows)
            sorted_piece = piece if order is None else piece.take(order)
            left = max(deadline - self._clock.monotonic_ms(), 0)
            if self._columns.append(topic, sorted_piece, run_partitions, run_starts, wall_ms, on_delivery, left):
                self._sender.wakeup()
            start = end
            # A chunk may be larger than buffer.memory: time spent waiting for room while rows flow is progress.
            deadline = self._clock.monotonic_ms() + self._config.max_block_ms

    def _partition_rows(
        self,
        topic: str,
        chunk: ColumnChunk,
        sizes: NDArray[np.int64],
        given: NDArray[np.int32] | None,
        cluster: Cluster,
    ) -> NDArray[np.int32]:
        if given is None:
            return self._partitioner.partition_rows(topic, chunk, sizes, cluster)
        free = given == ANY_PARTITION
        if not free.any():
            return given
        return np.where(free, self._partitioner.partition_rows(topic, chunk, sizes, cluster), given)

    def _check_partitions(self, topic: str, partitions: NDArray[np.int32], cluster: Cluster) -> Cluster:
        lowest, highest = int(partitions.min()), int(partitions.max())
        if lowest < ANY_PARTITION:
            raise ValueError(f"row {int(partitions.argmin())} names partition {lowest}; partitions are 0 or more")
        if highest >= (cluster.partition_count(topic) or 0):
            # The topic may have grown since the metadata was fetched.
            version = self._metadata.request_update()
            self._sender.wakeup()
            self._metadata.await_update(version, self._config.max_block_ms)
            cluster = self._metadata.fetch()
        count = cluster.partition_count(topic) or 0
        if highest >= count:
            row = int(partitions.argmax())
            raise UnknownTopicOrPartitionError(
                f"row {row} names partition {highest} of topic {topic}, which has only {count} (0 to {count - 1}); "
                "correct the partition column, or add partitions to the topic"
            )
        return cluster

    def _check_record_size(self, size: int, what: str) -> None:
        for name, limit in (
            ("max.request.size", self._config.max_request_size_bytes),
            ("buffer.memory", self._config.buffer_memory_bytes),
        ):
            if size > limit:
                raise RecordTooLargeError(
                    f"{what} needs up to {size} bytes, more than {name} ({limit} bytes); send a smaller record, or "
                    f"raise {name} (and the broker's message.max.bytes)"
                )

    # --- metadata ----------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of *topic*, fetched if they are not known yet.

        :raises ApiError: not known within max.block.ms; the text says why.
        """
        self._check_usable()
        return self._wait_on_metadata(topic, None, self._config.max_block_ms).partitions_for_topic(topic)

    def _wait_on_metadata(self, topic: str, partition: int | None, max_wait_ms: int) -> Cluster:
        """The newest cluster that knows *topic* (and *partition*), waiting for it if need be."""
        started = self._clock.monotonic_ms()
        cluster = self._metadata.fetch()
        self._metadata.add(topic, started)
        count = cluster.partition_count(topic)
        remaining = max_wait_ms
        while count is None or (partition is not None and partition >= count):
            self._metadata.add(topic, self._clock.monotonic_ms())
            version = self._metadata.request_update_for_topic(topic)
            self._sender.wakeup()
            try:
                self._metadata.await_update(version, remaining)
            except KafkaTimeoutError:
                raise self._metadata_timeout(topic, partition, max_wait_ms) from None
            cluster = self._metadata.fetch()
            elapsed = self._clock.monotonic_ms() - started
            if elapsed >= max_wait_ms:
                raise self._metadata_timeout(topic, partition, max_wait_ms)
            self._metadata.raise_for_topic(topic)
            remaining = max_wait_ms - elapsed
            count = cluster.partition_count(topic)
        return cluster

    def _metadata_timeout(self, topic: str, partition: int | None, max_wait_ms: int) -> ApiError:
        cluster = self._metadata.fetch()
        failures = self._client.connection_failures()
        if cluster.is_bootstrap:
            tried = "; ".join(f"{f.host}:{f.port}: {f.cause}" for f in failures) or "no answer yet from " + ", ".join(
                f"{node.host}:{node.port}" for node in cluster.nodes
            )
            return BrokersUnreachableError(
                f"no broker could be reached within {max_wait_ms} ms (max.block.ms): {tried}; "
                "check bootstrap.servers and that the brokers' listeners are open to this machine"
            )
        count = cluster.partition_count(topic)
        if partition is not None and count is not None:
            return KafkaTimeoutError(
                f"partition {partition} of topic {topic} with partition count {count} is not present in metadata after "
                f"{max_wait_ms} ms"
            )
        others = f"; unreachable: {', '.join(f'{f.host}:{f.port} ({f.cause})' for f in failures)}" if failures else ""
        return UnknownTopicOrPartitionError(
            f"topic {topic} is not present in metadata after {max_wait_ms} ms (max.block.ms): it does not exist and "
            f"the brokers do not create it, or it has no leader yet; create it first, or correct the name{others}"
        )

    # --- flush, metrics, close ---------------------------------------------------------------------------------------

    def flush(self, timeout_ms: int = FOREVER_MS) -> None:
        """Send everything staged so far and wait until each record is acknowledged or has failed.

        :raises KafkaTimeoutError: that took longer than *timeout_ms*. The records' own outcomes are in their futures.
        :raises KafkaError: called from a delivery callback, or the producer is closed.
        """
        self._check_usable()
        if threading.current_thread() is self._thread:
            raise KafkaError(
                "flush in a delivery callback would wait for the very thread that it keeps; flush elsewhere"
            )
        self._accumulator.flush(timeout_ms, self._sender.wakeup)

    def metrics(self) -> dict[str, float]:
        """Kafka's metric names → values since the producer was made."""
        return self._metrics.snapshot()

    def close(self, timeout_ms: int = FOREVER_MS) -> None:
        """Send what is staged, then end the sender thread; after *timeout_ms* fail the rest and end it all the same.

        Called from a delivery callback it does not wait. Closing twice is harmless.

        :raises ValueError: *timeout_ms* is negative.
        """
        if timeout_ms < 0:
            raise ValueError(f"the time-out of close must not be negative, got {timeout_ms}")
        if os.getpid() != self._pid:
            return
        on_sender_thread = threading.current_thread() is self._thread
        if timeout_ms > 0 and not on_sender_thread:
            self._sender.initiate_close()
            self._thread.join(min(timeout_ms / 1000, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            self._sender.force_close()
            if not on_sender_thread:
                self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error nothing more is worth waiting for.
        self.close(FOREVER_MS if kind is None else 0)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a KafkaProducer cannot be pickled: it owns sockets and a thread; make one in the process that sends"
        )

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise KafkaError("this producer was made before a fork and its thread lives in the parent; make one here")
        if not self._sender.is_running:
            raise KafkaError("cannot perform this operation after the producer has been closed")


def _check_bytes(field: str, value: Any) -> None:
    if value is not None and not isinstance(value, bytes):
        raise SerializationError(
            f"the record's {field} must be bytes or None, got {type(value).__name__}; encode it first"
        )


def _check_not_negative(field: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise ValueError(f"the record's {field} must not be negative, got {value}")
