"""Interceptors: user code that sees every record before it is sent and every outcome before the caller does.

``on_send`` runs on the calling threads, ``on_acknowledgement`` on the sender thread (on the calling one for a record
that was never staged). Whatever an interceptor raises is logged and goes no further: the next one gets what this one
got.

Source: KIP-42, apache/kafka ``ProducerInterceptors``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, TopicPartition
from kafka_sink.common.plugins import load_plugin, name_of
from kafka_sink.producer.futures import Delivery, DeliveryCallback
from kafka_sink.producer.producer_record import ProducerRecord

_NO_PARTITION = -1
_NO_SIZE = -1


class ProducerInterceptor:
    """Does nothing; base of interceptors, any object with some of these methods will do."""

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Told once, before anything is sent: the producer's properties, ``client.id`` among them."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead of *record*, before it is serialized and given a partition."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """The record is stored at *metadata*, or has failed with *error* (offset and timestamp are −1 then)."""

    def close(self) -> None:
        """The producer was closed."""


class ProducerInterceptors:
    """A chain of interceptors, asked in the order in which they were named."""

    def __init__(self, given: Iterable[Any], configs: Mapping[str, Any], log: ContextLogger) -> None:
        """:raises ConfigError: one of *given* names no class."""
        self._log = log
        self._interceptors: list[Any] = []
        for item in given:
            interceptor = load_plugin("interceptor.classes", item, {})
            self._interceptors.append(interceptor)
            configure = getattr(interceptor, "configure", None)
            if configure is not None:
                configure(configs)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What the chain makes of *record*."""
        for interceptor in self._interceptors:
            on_send = getattr(interceptor, "on_send", None)
            if on_send is None:
                continue
            try:
                record = on_send(record)
            except Exception:
                self._log.warning("on_send of %s raised and is skipped", name_of(interceptor), exc_info=True)
        return record

    def acknowledging(
        self, timestamp: int, key: bytes | None, value: bytes | None, callback: DeliveryCallback | None
    ) -> DeliveryCallback:
        """What to call with the outcome of a record: it tells the chain, then *callback*."""
        key_size = _NO_SIZE if key is None else len(key)
        value_size = _NO_SIZE if value is None else len(value)

        def acknowledge(delivery: Delivery) -> None:
            topic, partition = delivery.topic_partition
            if delivery.error is not None:
                metadata = _unknown(topic, partition)
            else:
                stored_at = timestamp if delivery.log_append_time == NO_TIMESTAMP else delivery.log_append_time
                metadata = RecordMetadata(topic, partition, delivery.base_offset, stored_at, key_size, value_size)
            self._on_acknowledgement(metadata, delivery.error, caught=BaseException)
            if callback is not None:
                callback(delivery)

        return acknowledge

    def on_send_error(
        self, record: ProducerRecord | None, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        """*record* was never staged; *topic_partition* where it would have gone, if that was known."""
        if topic_partition is not None:
            metadata = _unknown(*topic_partition)
        else:
            partition = None if record is None else record.partition
            topic = "" if record is None else record.topic
            metadata = _unknown(topic, _NO_PARTITION if partition is None else partition)
        self._on_acknowledgement(metadata, error, caught=Exception)

    def _on_acknowledgement(
        self, metadata: RecordMetadata, error: Exception | None, *, caught: type[BaseException]
    ) -> None:
        """:param caught: on the sender thread everything, or sys.exit() would end it; callers are interrupted."""
        for interceptor in self._interceptors:
            on_acknowledgement = getattr(interceptor, "on_acknowledgement", None)
            if on_acknowledgement is None:
                continue
            try:
                on_acknowledgement(metadata, error)
            except caught as raised:
                self._log.warning("on_acknowledgement of %s raised %r", name_of(interceptor), raised, exc_info=True)

    def close(self) -> None:
        """Close them all; one that raises does not keep the others from being closed."""
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if close is not None:
                try:
                    close()
                except Exception:
                    self._log.warning("closing %s failed", name_of(interceptor), exc_info=True)


def _unknown(topic: str, partition: int) -> RecordMetadata:
    return RecordMetadata(topic, partition, NO_OFFSET, NO_TIMESTAMP, _NO_SIZE, _NO_SIZE)
