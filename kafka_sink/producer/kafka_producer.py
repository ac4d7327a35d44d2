"""KafkaProducer: the public face of the producer.

Its methods run on the caller's threads, any number of them; each instance owns one daemon Sender thread. It stages
records and never performs I/O itself. A producer belongs to the process that made it: it can be neither pickled nor
used across a fork.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.client.cluster import Cluster, PartitionInfo
from kafka_sink.client.factory import SelectorMetrics, create_client
from kafka_sink.client.metadata import KnownCluster
from kafka_sink.common import config as common_config
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import (
    ApiError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    TransactionStateError,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import Metric, render_prometheus
from kafka_sink.common.model import (
    NO_OFFSET,
    NO_TIMESTAMP,
    ConsumerGroupMetadata,
    Header,
    OffsetAndMetadata,
    TopicPartition,
)
from kafka_sink.common.plugins import load_plugin, name_of
from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.producer import config as producer_config
from kafka_sink.producer import partitioner as partitioners
from kafka_sink.producer.accumulator import RecordAccumulator
from kafka_sink.producer.arguments import check_rows, check_send
from kafka_sink.producer.arrow_rows import ArrowRows, rows_to_send, with_partitions
from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.built_in_partitioner import BuiltInPartitioner
from kafka_sink.producer.column_append import ColumnAppender
from kafka_sink.producer.column_staging import RECORD_OVERHEAD_BYTES, ColumnStaging, size_problem
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import (
    ColumnsFuture,
    Delivery,
    DeliveryCallback,
    FailedFuture,
    FutureRecordMetadata,
)
from kafka_sink.producer.idempotence import ProducerIdAndEpoch
from kafka_sink.producer.interceptors import ProducerInterceptors
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.partitioner import check_choice
from kafka_sink.producer.producer_batch import Compression
from kafka_sink.producer.producer_record import NO_HEADERS, ProducerRecord, check_headers, check_record
from kafka_sink.producer.sender import Sender
from kafka_sink.producer.serializers import FieldSerializer
from kafka_sink.producer.topic_metadata import ANY_PARTITION, TopicMetadata
from kafka_sink.producer.transaction_state import TransactionalResult
from kafka_sink.producer.transactions import TransactionManager, make_transactions
from kafka_sink.records import reference
from kafka_sink.records.columns import ColumnChunk
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.layout import MAX_RECORD_OVERHEAD_BYTES
from kafka_sink.records.murmur2 import positive_murmur2

__all__ = ["ANY_PARTITION", "KafkaProducer", "KnownCluster", "ProducerRecord"]

_producer_numbers = itertools.count(1)


class KafkaProducer:
    """A producer with Java's property names and Java's semantics (apache/kafka ``KafkaProducer``).

    :param properties: see the option table in README.md, for example ``{"bootstrap.servers": "127.0.0.1:9092"}``.
        Serializers, interceptors and the partitioner may be named there, or be handed over as objects.
    :param option_prefix: what the user wrote before the names of *properties*, for messages.
    :param known_cluster: :meth:`known_cluster` of an earlier producer of this process, to begin with: that saves a
        connection and two requests.
    :raises ConfigError: unknown option, wrong value, or options that contradict each other.
    :raises KafkaError: it could not be made; nothing of it is left.
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        key_serializer: Any = None,
        value_serializer: Any = None,
        interceptors: Sequence[Any] | None = None,
        partitioner: Any = None,
        clock: Clock = SYSTEM_CLOCK,
        option_prefix: str = "",
        known_cluster: KnownCluster | None = None,
    ) -> None:
        config = common_config.parse(ProducerConfig, properties, prefix=option_prefix)
        config = producer_config.reconcile(config, frozenset(properties), prefix=option_prefix)
        config = self._config = replace(config, option_prefix=option_prefix)
        self._clock = clock
        self.client_id = config.client_id or f"producer-{config.transactional_id or next(_producer_numbers)}"
        self._log = ContextLogger(__name__, f"producer client.id={self.client_id}")
        self._was_forked = False
        # False once the producer is closed, and in processes forked from the one that made it.
        self._is_usable = True
        at_fork(self, KafkaProducer._forked)
        with ExitStack() as undo:
            try:
                configs = {**common_config.as_properties(config), **properties, "client.id": self.client_id}
                self._make_plugins(configs, key_serializer, value_serializer, interceptors, partitioner, undo)
                self._make_pipeline(known_cluster, undo)
            except Exception as error:
                kind = ConfigError if isinstance(error, ConfigError) else KafkaError
                raise kind(f"Failed to construct kafka producer: {error}") from error
            undo.pop_all()

    def _make_plugins(
        self,
        configs: Mapping[str, Any],
        key_serializer: Any,
        value_serializer: Any,
        interceptors: Sequence[Any] | None,
        partitioner: Any,
        undo: ExitStack,
    ) -> None:
        config = self._config
        self._closers: list[Callable[[], None]] = []
        chosen = config.partitioner_class if partitioner is None else partitioner
        self._partitioner: Any = None
        self._built_in: BuiltInPartitioner | None = None
        if chosen is None:
            self._built_in = BuiltInPartitioner(config.batch_size_bytes, ignore_keys=config.partitioner_ignore_keys)
        else:
            self._partitioner = load_plugin(
                config.option("partitioner.class"), chosen, partitioners.BUILT_IN, "partition", "partition_rows"
            )
            undo.callback(self._close_later(self._partitioner))
            self._partitioner.configure(configs)
        self._on_new_batch: Callable[[str, Cluster, int], None] | None = getattr(
            self._partitioner, "on_new_batch", None
        )
        self._key_serializer = FieldSerializer(
            "key.serializer", config.key_serializer if key_serializer is None else key_serializer, configs
        )
        undo.callback(self._close_later(self._key_serializer))
        self._value_serializer = FieldSerializer(
            "value.serializer", config.value_serializer if value_serializer is None else value_serializer, configs
        )
        undo.callback(self._close_later(self._value_serializer))
        self._takes_bytes = self._key_serializer.is_plain and self._value_serializer.is_plain
        given = config.interceptor_classes if interceptors is None else interceptors
        self._interceptors = ProducerInterceptors(given, configs, self._log) if given else None
        if self._interceptors is not None:
            undo.callback(self._close_later(self._interceptors))

    def _close_later(self, plugin: Any) -> Callable[[], None]:
        """Have *plugin* closed with the producer."""

        def close() -> None:
            try:
                plugin.close()
            except Exception:
                self._log.warning("closing %s failed", name_of(plugin), exc_info=True)

        if not callable(getattr(plugin, "close", None)):
            return lambda: None
        self._closers.append(close)
        return close

    def _make_pipeline(self, known_cluster: KnownCluster | None, undo: ExitStack) -> None:
        config, clock = self._config, self._clock
        samples, window_ms = config.metrics_num_samples, config.metrics_sample_window_ms
        network = SelectorMetrics(samples, window_ms)
        self._client, self._metadata = create_client(
            config, client_id=self.client_id, clock=clock, metrics=network, known=known_cluster
        )
        undo.callback(self._client.close)
        pool = BufferPool(
            config.buffer_memory_bytes,
            config.batch_size_bytes,
            clock,
            on_wait=self._client.wakeup,
            samples=samples,
            window_ms=window_ms,
            option_prefix=config.option_prefix,
        )
        transactions = (
            make_transactions(config, self._client.api_versions, clock, self._log)
            if config.enable_idempotence
            else None
        )
        #: Only with a transactional id.
        self._transactions = transactions if config.transactional_id is not None else None
        self._accumulator = RecordAccumulator(
            batch_size_bytes=config.batch_size_bytes,
            compression=Compression(CompressionType.from_name(config.compression_type), config.compression_level),
            linger_ms=config.linger_ms,
            retry_backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            delivery_timeout_ms=config.delivery_timeout_ms,
            pool=pool,
            clock=clock,
            idempotence=None if transactions is None else transactions.sequences,
            transactions=self._transactions,
            adaptive=self._built_in if config.partitioner_adaptive_partitioning_enable else None,
            availability_timeout_ms=config.partitioner_availability_timeout_ms,
        )
        self._metrics = ProducerMetrics(
            pool,
            client_id=self.client_id,
            samples=samples,
            window_ms=window_ms,
            client=self._client_figures,
            network=network.figures,
            nodes=lambda: {node: traffic.figures for node, traffic in tuple(network.by_connection.items())},
        )
        self._hashes_keys = self._built_in is not None and not self._built_in.ignore_keys
        # Bound once, for the records: looking them up would be paid for with each.
        self._monotonic_ms, self._wall_ms = clock.monotonic_ms, clock.wall_ms
        self._append_to_open_batch: Callable[..., FutureRecordMetadata | None] = self._accumulator.append_to_open_batch
        if config.batch_size_bytes + MAX_RECORD_OVERHEAD_BYTES > min(
            config.max_request_size_bytes, config.buffer_memory_bytes
        ):
            # What fits into an open batch could still be over a limit on records, so each is measured.
            self._append_to_open_batch = lambda *_: None
        self._sender = Sender(
            client=self._client,
            metadata=self._metadata,
            accumulator=self._accumulator,
            transactions=transactions,
            config=config,
            metrics=self._metrics,
            clock=clock,
            log=self._log,
        )
        self._topics = TopicMetadata(
            self._metadata, self._sender, self._metrics, clock, config, self._client.connection_failures
        )
        self._known_topics = self._topics.known
        self._staging = ColumnStaging(
            config,
            clock,
            self._topics,
            ColumnAppender(self._accumulator, clock),
            self._metrics,
            self._built_in,
            self._partitioner,
            self._sender.wakeup,
        )
        self._thread = start_thread(
            f"kafka-producer-network-thread | {self.client_id}",
            self._sender.run,
            at_exit=self._sender.end_with_program,
        )

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None = None
    ) -> FutureRecordMetadata | FailedFuture:
        """Stage *record* and return its future; waits at most max.block.ms for metadata and memory together.

        Failures of the cluster (unknown topic, no memory in time, record too large) end in the future, and
        *on_delivery* is told of them on this thread, with partition −1 where the record had none yet; misuse raises.

        :raises SerializationError: key, value or a header cannot be turned into bytes.
        :raises ValueError: *record* or *on_delivery* is of the wrong type; or its topic, partition or timestamp is, or
            is out of its range.
        :raises KafkaError: the producer is closed.
        :raises TransactionStateError: it has a transactional.id, and no transaction is open.
        :raises TransactionAbortableError: the open transaction can only be aborted.
        """
        if not self._is_usable:
            self._check_usable()
        if type(record) is not ProducerRecord or on_delivery is not None:
            check_send(record, on_delivery)
        if self._transactions is not None:
            self._transactions.check_can_send()
        if self._interceptors is not None:
            record = self._intercept(self._interceptors, record)
        return self._send(record, on_delivery)

    def _send(
        self, record: ProducerRecord, on_delivery: DeliveryCallback | None
    ) -> FutureRecordMetadata | FailedFuture:
        # Every call and every look-up in here is paid for once a record.
        topic, value, key, partition, timestamp, headers = record
        now_ms = self._monotonic_ms()
        try:
            if type(topic) is not str or partition is not None or timestamp is not None or headers is not NO_HEADERS:
                check_record(topic, partition, timestamp, headers)
            known = self._known_topics.get(topic)
            if known is None or now_ms >= known.until_ms or partition is not None:
                known = self._topics.find(topic, partition, now_ms)
            if type(value) is not bytes or (key is not None and type(key) is not bytes) or not self._takes_bytes:
                key, value, headers = self._serialize(record)
            if partition is None:
                if key is not None and self._hashes_keys:
                    partition = positive_murmur2(key) % known.partition_count
                else:
                    partition = self._choose_partition(record, key, value, known.cluster)
            if timestamp is None:
                timestamp = self._wall_ms()
            callback = on_delivery
            if self._interceptors is not None:
                callback = self._interceptors.acknowledging(timestamp, key, value, on_delivery)
            future = self._append_to_open_batch(topic, partition, timestamp, key, value, headers, callback)
            if future is None:
                staged = _Staged(timestamp, key, value, headers, callback)
                future, partition = self._append(record, staged, partition, known.cluster, now_ms)
            if self._built_in is not None and record.partition is None and (key is None or not self._hashes_keys):
                self._built_in.appended(topic, partition, _sticky_bytes(key, value, headers), known.cluster)
            return future
        except Exception as error:
            return self._not_staged(record, partition, error, on_delivery)

    def _intercept(self, interceptors: ProducerInterceptors, record: ProducerRecord) -> ProducerRecord:
        intercepted = interceptors.on_send(record)
        if isinstance(intercepted, ProducerRecord):
            return intercepted
        error = KafkaError(
            f"an interceptor's on_send returned {type(intercepted).__name__} instead of a ProducerRecord; "
            "return the record it was given to leave it as it is"
        )
        interceptors.on_send_error(record, None, error)
        raise error

    def _not_staged(
        self, record: ProducerRecord, partition: int | None, error: Exception, on_delivery: DeliveryCallback | None
    ) -> FailedFuture:
        """What the cluster would not have ends in the future; what the caller or this producer did wrong is raised."""
        if isinstance(error, KafkaError):
            self._metrics.failed(record.topic, 1, self._clock.monotonic_ms())
        if self._interceptors is not None:
            self._interceptors.on_send_error(record, _place(record.topic, partition), error)
        if not isinstance(error, ApiError):
            raise error
        if self._transactions is not None:
            self._transactions.staging_failed(error)
        self._log.debug("record for topic %s was not staged: %s", record.topic, error)
        if on_delivery is not None:
            self._tell_of_failure(record.topic, partition, error, on_delivery)
        return FailedFuture(error)

    def _tell_of_failure(
        self, topic: str, partition: int | None, error: ApiError, on_delivery: DeliveryCallback
    ) -> None:
        place = TopicPartition(topic, ANY_PARTITION if partition is None else partition)
        try:
            on_delivery(Delivery(place, NO_OFFSET, 1, 0, NO_TIMESTAMP, error))
        except Exception:
            self._log.exception("the delivery callback of a record for topic %s raised", topic)

    def _serialize(self, record: ProducerRecord) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
        headers = list(record.headers)
        key = self._key_serializer.serialize(record.topic, headers, record.key)
        value = self._value_serializer.serialize(record.topic, headers, record.value)
        if len(headers) != len(record.headers):
            # Those of the record were looked at before.
            check_headers(headers)
        return key, value, tuple(headers)

    def _choose_partition(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: Cluster
    ) -> int:
        if self._built_in is not None:
            return self._built_in.partition(record.topic, key, cluster)
        return self._ask_partitioner(record, key, value, cluster)

    def _ask_partitioner(self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: Cluster) -> int:
        partition = self._partitioner.partition(record.topic, record.key, key, record.value, value, cluster)
        check_choice(self._partitioner, record.topic, partition, cluster)
        return int(partition)

    def _append(
        self, record: ProducerRecord, staged: _Staged, partition: int, cluster: Cluster, started_ms: int
    ) -> tuple[FutureRecordMetadata, int]:
        """Append where a batch may have to be opened, and where that ended: the partitioner may then choose anew."""
        topic = record.topic
        timestamp, key, value, headers, callback = staged
        upper_bound = reference.record_size_upper_bound(key, value, headers)
        problem = size_problem(self._config, topic, upper_bound)
        if problem is not None:
            raise RecordTooLargeError(f"the record {problem}")
        deadline = started_ms + self._config.max_block_ms
        is_sticky = self._built_in is not None and (key is None or self._built_in.ignore_keys)
        may_move = record.partition is None and (is_sticky or self._on_new_batch is not None)
        left_full_batch = False
        for abort_on_new_batch in (True, False) if may_move else (False,):
            now_ms = self._clock.monotonic_ms()
            result = self._accumulator.append(
                TopicPartition(topic, partition),
                timestamp,
                key,
                value,
                headers,
                callback,
                max(deadline - now_ms, 0),
                abort_on_new_batch=abort_on_new_batch,
                now_ms=now_ms,
            )
            if result.abort_for_new_batch:
                if self._built_in is not None:
                    size = _sticky_bytes(key, value, headers)
                    self._built_in.needs_new_batch(topic, partition, size, cluster)
                    partition = self._built_in.partition(topic, None, cluster)
                elif self._on_new_batch is not None:
                    self._on_new_batch(topic, cluster, partition)
                    partition = self._ask_partitioner(record, key, value, cluster)
                # The batch that had no room left is full now, although the record goes to another partition.
                left_full_batch = True
                continue
            if result.batch_is_full or result.new_batch_created or left_full_batch:
                self._sender.wakeup()
            if result.future is not None:
                return result.future, partition
        raise RuntimeError("an append that may open a batch ended without a future")

    def send_columns(
        self,
        topic: str,
        rows: pa.RecordBatch | pa.Table | ColumnChunk,
        partitions: NDArray[np.int32] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> ColumnsFuture:
        """Stage every one of *rows*: the bulk path, without a Python object per row.

        :param rows: Arrow rows with the columns ``value`` and, where there are any, ``key``, ``headers``, ``partition``
            and ``timestamp`` (types: :data:`~kafka_sink.producer.arrow_rows.COLUMNS`); or columns made of them before.
        :param partitions: int32[rows]; :data:`ANY_PARTITION` (or no array) leaves a row to the partitioner. Only where
            *rows* has no column for it.
        :param on_delivery: told once per batch that took rows of these, on the sender thread.
        :returns: a future that is complete when the outcome of every row is known.
        :raises SerializationError: a column is missing, would not be written, or has a type that cannot be.
        :raises RowTooLargeError: a row is over max.request.size or buffer.memory; none of the rows is staged.
        :raises RowPartitionError: a row names a partition that the topic does not have; likewise.
        :raises RowSerializationError: a row names a negative partition, has a timestamp before 1970, or a header
            without a key; likewise.
        :raises ValueError: *topic* is no name, another argument is of the wrong type, or the rows' partitions are given
            twice or are not as many as the rows.
        :raises ApiError: no metadata or no memory within max.block.ms.
        :raises KafkaError: the producer has interceptors, which know records only.
        :raises TransactionStateError: it has a transactional.id, and no transaction is open.
        :raises TransactionAbortableError: the open transaction can only be aborted.
        """
        self._check_usable()
        check_rows(rows, partitions, on_delivery)
        if self._transactions is not None:
            self._transactions.check_can_send()
        if self._interceptors is not None:
            raise KafkaError(
                "interceptors see single records, and columns have none; use send, or leave interceptor.classes out"
            )
        wall_ms = self._clock.wall_ms()
        if isinstance(rows, ColumnChunk):
            parts = [ArrowRows(rows, partitions)]
        else:
            parts = rows_to_send(rows, wall_ms)
            if partitions is not None:
                parts = with_partitions(parts, partitions)
        future = ColumnsFuture(topic, sum(part.chunk.num_rows for part in parts), self._clock, on_delivery)
        try:
            self._staging.stage(topic, parts, wall_ms, future.delivered)
        except ApiError as error:
            if self._transactions is not None:
                self._transactions.staging_failed(error)
            raise
        return future

    # --- metadata ----------------------------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of *topic*, fetched if they are not known yet.

        :raises ApiError: not known within max.block.ms; the text says why.
        :raises ValueError: *topic* is no name.
        """
        self._check_usable()
        return self._topics.wait_for(topic).partitions_for_topic(topic)

    def known_cluster(self) -> KnownCluster | None:
        """What this producer knows of the cluster, for the next one; None before any broker has answered."""
        return self._metadata.known()

    # --- transactions ------------------------------------------------------------------------------------------------

    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Take over the transactional.id: once, before the first transaction.

        Older producers with this id are fenced; a transaction that one of them left open is aborted first.

        :param timeout_ms: by default max.block.ms; after it, call again.
        :raises KafkaTimeoutError: the brokers did not answer in time.
        :raises ApiError: they refused; a missing permission may be granted and the call repeated.
        :raises TransactionStateError: it was done before, or there is no transactional.id.
        """
        self._finish(self._transactional("init_transactions").initialize(), timeout_ms)

    def join_transaction(self, producer_id: int, epoch: int, *, transaction_version: int) -> None:
        """Write in a transaction that was begun elsewhere, under this producer's transactional.id, instead of
        :meth:`init_transactions` and :meth:`begin_transaction`: who began it commits or aborts it, after
        :meth:`flush` here. Closing this producer ends nothing.

        No two producers may write to the same partition in one transaction: they would use the same sequences, and
        brokers take that for a repetition.

        :param transaction_version: 1 or 2: how it was begun, whatever the cluster would choose now (KIP-890).
        :raises TransactionStateError: this producer began or joined something before, or has no transactional.id.
        """
        transactions = self._transactional("join_transaction")
        transactions.join(ProducerIdAndEpoch(producer_id, epoch), is_version_2=transaction_version >= 2)

    def begin_transaction(self) -> None:
        """Open a transaction: what is sent from here on becomes visible together, or not at all.

        :raises TransactionStateError: one is open, or :meth:`init_transactions` was not called.
        :raises ProducerFencedError: a newer producer has this transactional.id.
        """
        self._transactional("begin_transaction").begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit *offsets* (of the next record to read) of a consumer group with the transaction, and wait for that.

        With the whole :class:`ConsumerGroupMetadata` a member that its group has thrown out since is refused.

        :raises TransactionAbortableError: the offsets were refused, and the transaction can only be aborted.
        :raises KafkaTimeoutError: not done after *timeout_ms* (by default max.block.ms); abort then.
        """
        transactions = self._transactional("send_offsets_to_transaction")
        if not offsets:
            return
        given = {
            partition: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for partition, offset in offsets.items()
        }
        metadata = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        self._finish(transactions.send_offsets(given, metadata), timeout_ms)

    def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Send what is staged, wait until all of it is stored, and commit.

        :raises TransactionAbortableError: a record was not stored; abort, and begin the transaction anew.
        :raises ProducerFencedError: a newer producer has this transactional.id; nothing was committed, unless the
            brokers' answer to an earlier attempt got lost.
        :raises KafkaTimeoutError: no outcome after *timeout_ms* (by default max.block.ms): call again to learn it.
        """
        self._finish(self._transactional("commit_transaction").begin_commit(), timeout_ms)

    def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Give up the transaction: records that are still staged fail, those already stored stay invisible.

        :raises ProducerFencedError: a newer producer has this transactional.id; it has aborted the transaction.
        :raises KafkaTimeoutError: no outcome after *timeout_ms* (by default max.block.ms): call again to learn it.
        """
        self._finish(self._transactional("abort_transaction").begin_abort(), timeout_ms)

    def _transactional(self, operation: str) -> TransactionManager:
        self._check_usable()
        if self._transactions is None:
            raise TransactionStateError(f"{operation} needs a producer with a transactional.id")
        if threading.current_thread() is self._thread:
            raise KafkaError(f"{operation} in a delivery callback would wait for the very thread that it keeps")
        return self._transactions

    def _finish(self, result: TransactionalResult, timeout_ms: int | None) -> None:
        self._sender.wakeup()
        try:
            result.wait(self._config.max_block_ms if timeout_ms is None else timeout_ms)
        except KafkaTimeoutError as error:
            failures = self._client.connection_failures()
            if result.is_completed or not failures:
                raise
            unreachable = ", ".join(f"{failure.host}:{failure.port} ({failure.cause})" for failure in failures)
            raise KafkaTimeoutError(f"{error}; unreachable: {unreachable}") from None

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
        started_ms = self._clock.monotonic_ms()
        try:
            self._accumulator.flush(timeout_ms, self._sender.wakeup)
        finally:
            self._metrics.flushed(self._clock.monotonic_ms() - started_ms)

    def metrics(self) -> dict[str, float]:
        """The figures of ``producer-metrics`` by Kafka's names, as they are now; NaN where nothing was measured yet.

        Rates, averages and maxima are those of the last ``metrics.num.samples`` × ``metrics.sample.window.ms``.
        """
        return self._metrics.snapshot(self._clock.monotonic_ms())

    def all_metrics(self) -> list[Metric]:
        """:meth:`metrics` and the figures of each node and of each topic, with their groups and tags."""
        return self._metrics.metrics(self._clock.monotonic_ms())

    def prometheus(self) -> str:
        """:meth:`all_metrics` in Prometheus' text format, for the answer to a scrape."""
        return render_prometheus(self.all_metrics())

    def _client_figures(self, now_ms: int) -> Iterable[tuple[str, float]]:
        yield "requests-in-flight", self._client.in_flight_request_count()
        yield "metadata-age", self._metadata.age_ms(now_ms) / 1000

    def close(self, timeout_ms: int = FOREVER_MS) -> None:
        """Send what is staged, then end the sender thread; after *timeout_ms* fail the rest and end it all the same.

        Each record that was not acknowledged ends in an error which says whether it was sent, and a warning counts
        them. A producer that is still open when its program ends is closed with a time-out of 0. Called from a delivery
        callback it does not wait. Closing twice is harmless.

        :raises ValueError: *timeout_ms* is negative.
        """
        if timeout_ms < 0:
            raise ValueError(f"the time-out of close must not be negative, got {timeout_ms}")
        if self._was_forked:
            return
        self._is_usable = False
        self._accumulator.caller_does_not_append()
        on_sender_thread = threading.current_thread() is self._thread
        if timeout_ms > 0 and not on_sender_thread:
            self._sender.initiate_close()
            self._thread.join(min(timeout_ms / 1000, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            self._sender.force_close()
            if not on_sender_thread:
                self._thread.join()
        closers, self._closers = self._closers, []
        for close in reversed(closers):
            close()

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

    def _forked(self) -> None:
        self._was_forked = True
        self._is_usable = False

    def _check_usable(self) -> None:
        if self._was_forked:
            raise KafkaError("this producer was made before a fork and its thread lives in the parent; make one here")
        if not self._sender.is_running:
            raise KafkaError("cannot perform this operation after the producer has been closed")


class _Staged(NamedTuple):
    """A record as it goes into a batch."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    callback: DeliveryCallback | None


def _place(topic: str, partition: int | None) -> TopicPartition | None:
    return None if partition is None else TopicPartition(topic, partition)


def _sticky_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """About how much of a batch a record takes."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size + sum(len(name) + len(data or b"") for name, data in headers) if headers else size
