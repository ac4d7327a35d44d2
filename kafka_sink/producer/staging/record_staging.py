"""Stages single records: serializes a record, chooses its partition, and appends it to a batch.

Runs on any number of calling threads at once. It waits for metadata and memory, together for at most max.block.ms, and
never performs I/O itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.errors import ApiError, KafkaError, RecordTooLargeError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Header, RecordMetadata, TopicPartition
from kafka_sink.producer.batching.accumulator import AppendResult, RecordAccumulator, SerializedRecord
from kafka_sink.producer.futures import Delivery, DeliveryCallback, DeliveryFuture, FailedFuture, FutureRecordMetadata
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.plugins.loading import Plugins, ProducerInterceptors
from kafka_sink.producer.plugins.partitioner import (
    KEPT_KEY_BYTES,
    check_choice,
    kept_positive_murmur2,
    positive_murmur2,
)
from kafka_sink.producer.producer_record import NO_HEADERS, Headers, ProducerRecord, checked_headers, header_pairs
from kafka_sink.producer.staging.column_staging import RECORD_OVERHEAD_BYTES, size_problem
from kafka_sink.producer.staging.topic_metadata import ANY_PARTITION, TopicMetadata
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.records import reference
from kafka_sink.records.layout import MAX_RECORD_OVERHEAD_BYTES


class RecordStaging:
    """Stages one record at a time.

    :param transactions: None without a transactional id.
    :param wake: called when a batch has become ready to be sent.
    """

    def __init__(
        self,
        context: ProducerContext,
        topics: TopicMetadata,
        accumulator: RecordAccumulator,
        plugins: Plugins,
        transactions: TransactionManager | None,
        wake: Callable[[], None],
    ) -> None:
        config = self._config = context.config
        self._metrics = context.metrics
        self._log = context.log
        self._topics = topics
        self._accumulator = accumulator
        self._transactions = transactions
        self._wake = wake
        self._built_in = plugins.built_in
        self._partitioner = plugins.partitioner
        self._interceptors = plugins.interceptors
        self._key_serializer, self._value_serializer = plugins.key_serializer, plugins.value_serializer
        self._takes_bytes = plugins.key_serializer.is_plain and plugins.value_serializer.is_plain
        self._hashes_keys = plugins.built_in is not None and not plugins.built_in.ignore_keys
        # Bound once, because a lookup would cost time for every record.
        self._monotonic_ms, self._wall_ms = context.clock.monotonic_ms, context.clock.wall_ms
        self._cached_topics = topics.cached
        self._append_to_open_batch: Callable[..., FutureRecordMetadata | None] = accumulator.append_to_open_batch
        if config.batch_size_bytes + MAX_RECORD_OVERHEAD_BYTES > min(
            config.max_request_size_bytes, config.buffer_memory_bytes
        ):
            # A record that fits into an open batch could still exceed a limit for records, so each record is measured.
            self._append_to_open_batch = lambda *_: None

    def stage(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        on_delivery: DeliveryCallback | None,
    ) -> DeliveryFuture[RecordMetadata]:
        """Stage a record and return its future. Cluster errors complete the future, and *on_delivery* is called with
        them on this thread.

        :raises SerializationError: if the key, the value or a header cannot be serialized.
        :raises ValueError: if *topic*, *partition* or *timestamp* has the wrong type or is out of range.
        :raises KafkaError: if the producer was closed during the call, or needs a transaction and none is open.
        """
        # One function, because every call and every lookup costs time once per record.
        interceptors = self._interceptors
        if interceptors is not None:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers or NO_HEADERS)
            topic, value, key, partition, timestamp, headers = self._intercept(interceptors, record)
        chosen, stamped, written, started_ms = partition, timestamp, NO_HEADERS, self._monotonic_ms()
        try:
            if type(topic) is not str or partition is not None or timestamp is not None or headers is not NO_HEADERS:
                written = checked_headers(topic, partition, timestamp, headers)
            cached = self._cached_topics.get(topic)
            if cached is None or started_ms >= cached.until_ms or partition is not None:
                cached = self._topics.find(topic, partition, started_ms)
            key_bytes, value_bytes = key, value
            if type(value) is not bytes or (key is not None and type(key) is not bytes) or not self._takes_bytes:
                key_bytes, value_bytes, written = self._serialize(topic, key, value, written)
            if chosen is None:
                if key_bytes is not None and self._hashes_keys:
                    hash_of = kept_positive_murmur2 if len(key_bytes) <= KEPT_KEY_BYTES else positive_murmur2
                    chosen = hash_of(key_bytes) % cached.partition_count
                else:
                    chosen = self._choose_partition(topic, key, key_bytes, value, value_bytes, cached.cluster)
            if stamped is None:
                stamped = self._wall_ms()
            callback = on_delivery
            if interceptors is not None:
                callback = interceptors.acknowledging(stamped, key_bytes, value_bytes, on_delivery)
            future = self._append_to_open_batch(topic, chosen, stamped, key_bytes, value_bytes, written, callback)
            if future is None:
                staged = SerializedRecord(stamped, key_bytes, value_bytes, written, callback)
                topic_partition = TopicPartition(topic, chosen)
                future, chosen = self._append(
                    topic_partition, staged, cached.cluster, started_ms, may_move=partition is None
                )
            if partition is None and self._built_in is not None and (key_bytes is None or not self._hashes_keys):
                self._built_in.appended(topic, chosen, _sticky_bytes(key_bytes, value_bytes, written), cached.cluster)
            return future
        except Exception as error:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers or NO_HEADERS)
            return self._not_staged(record, chosen, error, on_delivery)

    def _intercept(self, interceptors: ProducerInterceptors, record: ProducerRecord) -> ProducerRecord:
        intercepted = interceptors.on_send(record)
        if isinstance(intercepted, ProducerRecord):
            return intercepted
        error = KafkaError(
            f"an interceptor's on_send returned {type(intercepted).__name__} instead of a ProducerRecord; return "
            "the unchanged record to leave it as it is"
        )
        interceptors.on_send_error(record, None, error)
        raise error

    def _not_staged(
        self, record: ProducerRecord, partition: int | None, error: Exception, on_delivery: DeliveryCallback | None
    ) -> FailedFuture:
        """Complete a future with *error* if it is a cluster error; raise an error of the caller or of this producer."""
        if isinstance(error, KafkaError):
            self._metrics.failed(record.topic, 1, self._monotonic_ms())
        if self._interceptors is not None:
            self._interceptors.on_send_error(record, partition, error)
        if not isinstance(error, ApiError):
            raise error
        if self._transactions is not None:
            self._transactions.staging_failed(error)
        self._log.debug("record for topic %s was not staged: %s", record.topic, error)
        if on_delivery is not None:
            destination = TopicPartition(record.topic, ANY_PARTITION if partition is None else partition)
            try:
                on_delivery(Delivery(destination, NO_OFFSET, 1, 0, NO_TIMESTAMP, error))
            except Exception:
                self._log.exception("the delivery callback of a record for topic %s raised", record.topic)
        return FailedFuture(error)

    def _serialize(
        self, topic: str, key: Any, value: Any, written: Sequence[Header]
    ) -> tuple[bytes | None, bytes | None, Sequence[Header]]:
        headers = list(written)
        key_bytes = self._key_serializer.serialize(topic, headers, key)
        value_bytes = self._value_serializer.serialize(topic, headers, value)
        if len(headers) != len(written):
            # Serializers may add headers.
            written = header_pairs(headers)
        return key_bytes, value_bytes, written

    def _choose_partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Cluster
    ) -> int:
        if self._built_in is not None:
            return self._built_in.sticky_partition(topic, cluster)
        partition = self._partitioner.partition(topic, key, key_bytes, value, value_bytes, cluster)
        check_choice(self._partitioner, topic, partition, cluster)
        return int(partition)

    def _append(
        self,
        topic_partition: TopicPartition,
        record: SerializedRecord,
        cluster: Cluster,
        started_ms: int,
        *,
        may_move: bool,
    ) -> tuple[FutureRecordMetadata, int]:
        """Append a record that may need a new batch; returns its future and its partition, which is another one if the
        record *may_move* and has no key."""
        topic, partition = topic_partition
        _, key, value, headers, _ = record
        problem = size_problem(self._config, topic, reference.record_size_upper_bound(key, value, headers))
        if problem is not None:
            raise RecordTooLargeError(f"the record {problem}")
        deadline = started_ms + self._config.max_block_ms
        built_in = self._built_in
        may_move = may_move and built_in is not None and (key is None or built_in.ignore_keys)

        def append(*, abort_on_new_batch: bool) -> AppendResult:
            left_ms = max(deadline - self._monotonic_ms(), 0)
            topic_partition = TopicPartition(topic, partition)
            return self._accumulator.append(topic_partition, record, left_ms, abort_on_new_batch=abort_on_new_batch)

        result = append(abort_on_new_batch=may_move)
        left_full_batch = result.abort_for_new_batch
        if left_full_batch and built_in is not None:
            # The batch without enough room is full now, although the record goes to another partition.
            built_in.needs_new_batch(topic, partition, _sticky_bytes(key, value, headers), cluster)
            partition = built_in.sticky_partition(topic, cluster)
            result = append(abort_on_new_batch=False)
        if result.batch_is_full or result.new_batch_created or left_full_batch:
            self._wake()
        if result.future is None:
            raise RuntimeError("an append that may open a batch ended without a future")
        return result.future, partition


def _sticky_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """An estimate of how many bytes of a batch a record takes."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size + sum(len(name) + len(data or b"") for name, data in headers) if headers else size
