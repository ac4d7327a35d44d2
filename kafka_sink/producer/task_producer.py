"""TaskProducer: a producer with the additional operations that a Spark task needs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from kafka_sink.client.connection.connection_states import ConnectionFailure
from kafka_sink.client.factory import ClientNetwork
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError, TransactionStateError
from kafka_sink.common.model import ProducerIdAndEpoch, TransactionVersion
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.plugins.loading import GivenPlugins


class TaskProducer(KafkaProducer):
    """A producer that joins a transaction of its driver, and is kept between two tasks of a worker process.

    :param config: the configuration, as the driver has read it.
    :param plugin_options: the options that are meant for the user's own plugins.
    :param network: see :class:`KafkaProducer`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        plugin_options: Mapping[str, str] = MappingProxyType({}),
        *,
        network: ClientNetwork | None = None,
    ) -> None:
        self._failures_before_rest: frozenset[ConnectionFailure] = frozenset()
        self._open(config, plugin_options, plugin_options, GivenPlugins(), network)

    def limit_batches(self, topic: str, size_bytes: int) -> None:
        """Make the batches of *topic* that are opened from now on at most *size_bytes* large, before compression, or as
        large as a single record. Without it the producer learns from refusals that batch.size is too large for a topic.
        """
        self._pipeline.accumulator.limit_batches(topic, size_bytes)

    def join_transaction(
        self, producer: ProducerIdAndEpoch, version: TransactionVersion, transactional_id: str | None = None
    ) -> None:
        """Join a transaction that another producer began, instead of calling :meth:`init_transactions` and
        :meth:`begin_transaction`. The other producer commits or aborts it, after :meth:`flush` here. Closing this
        producer does not end the transaction. After a flush it may join another transaction.

        No two producers may write to the same partition in one transaction: they would use the same sequences, and
        brokers would take their batches for duplicates.

        :param producer: the other producer.
        :param version: the version in which the transaction was begun, whatever version the cluster uses now (KIP-890).
        :param transactional_id: the id under which the other producer began it; by default this producer's own.
        :raises TransactionStateError: if this producer began a transaction itself, has records of the last one that are
            not acknowledged, or has no transactional.id.
        """
        transactions = self._transactional("join_transaction")
        if self._pipeline.accumulator.has_incomplete:
            raise TransactionStateError("join_transaction is not possible before the records sent so far are flushed")
        transactions.join(producer, version, transactional_id)

    def abandon(self) -> None:
        """Close without waiting, after an error of the caller's own: the log has the records that were given up."""
        with suppress(KafkaTimeoutError):
            self.close(timeout=0)

    def batch_totals(self) -> tuple[int, int]:
        """``batch-total`` and ``batch-byte-total`` of :meth:`metrics`: the batches sent so far, and their bytes."""
        return self._pipeline.metrics.batch_totals()

    def rest(self) -> None:
        """Release the memory that is kept for later batches, before a pause. The producer can be used as before."""
        self._pipeline.pool.release_kept()
        self._failures_before_rest = frozenset(self._network.client.connection_failures())
        self._network.client.rest(is_resting=True)

    def can_go_on(self, max_age_ms: int) -> bool:
        """Whether this producer can be used again after :meth:`rest`: everything sent so far is acknowledged, nothing
        was refused, and no connection failed since. Metadata that is older than *max_age_ms* is requested again.
        """
        if not self._is_usable or not self._sender.is_running or self._pipeline.accumulator.has_incomplete:
            return False
        self._network.client.rest(is_resting=False)
        metadata, identity = self._network.metadata, self._pipeline.identity
        try:
            metadata.raise_if_fatal()
        except KafkaError:
            return False
        if metadata.age_ms(self._clock.monotonic_ms()) > max_age_ms:
            metadata.request_update()
            self._sender.wakeup()
        is_sound = identity is None or identity.last_error is None
        return is_sound and self._failures_before_rest.issuperset(self._network.client.connection_failures())
