"""Interceptors: user code that is called with every record before it is sent, and with every outcome before the caller.

An interceptor has some of the methods ``configure(configs)``, ``on_send(record)``, which returns the record to send
instead, ``on_acknowledgement(metadata, error)``, with an offset of -1 after an error, and ``close()``. ``on_send`` runs
on the calling threads and ``on_acknowledgement`` on the sender thread (on the calling thread for a record that was
never staged). An exception of an interceptor is logged and not propagated: the next interceptor is called with the same
arguments.

Source: KIP-42, apache/kafka ``ProducerInterceptors``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata
from kafka_sink.common.plugins import load_plugin, name_of
from kafka_sink.producer.futures import Delivery, DeliveryCallback
from kafka_sink.producer.producer_record import ProducerRecord

_NO_PARTITION = -1
_NO_SIZE = -1


class ProducerInterceptors:
    """A chain of interceptors, called in the order of the configuration."""

    def __init__(self, interceptors: Iterable[Any], configs: Mapping[str, Any], log: ContextLogger) -> None:
        """:raises ConfigError: if one of *interceptors* cannot be loaded."""
        self._log = log
        #: In their order.
        self.interceptors = [load_plugin("interceptor.classes", item, {}) for item in interceptors]
        for interceptor in self.interceptors:
            configure = getattr(interceptor, "configure", None)
            if configure is not None:
                configure(configs)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Apply the chain to *record* and return the result."""
        for interceptor in self.interceptors:
            on_send = getattr(interceptor, "on_send", None)
            if on_send is None:
                continue
            try:
                record = on_send(record)
            except Exception:
                self._log.warning(
                    "on_send of %s raised; its record is sent as if the interceptor were absent",
                    name_of(interceptor),
                    exc_info=True,
                )
        return record

    def acknowledging(
        self, timestamp: int, key: bytes | None, value: bytes | None, callback: DeliveryCallback | None
    ) -> DeliveryCallback:
        """A callback for the outcome of a record, which calls the chain and then *callback*."""
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

    def on_send_error(self, record: ProducerRecord, partition: int | None, error: Exception) -> None:
        """Report that *record* was never staged; *partition* is its destination, if known."""
        destination = record.partition if partition is None else partition
        metadata = _unknown(record.topic, _NO_PARTITION if destination is None else destination)
        self._on_acknowledgement(metadata, error, caught=Exception)

    def _on_acknowledgement(
        self, metadata: RecordMetadata, error: Exception | None, *, caught: type[BaseException]
    ) -> None:
        """:param caught: BaseException on the sender thread, because sys.exit() would end it; Exception on calling
        threads, which may be interrupted."""
        for interceptor in self.interceptors:
            on_acknowledgement = getattr(interceptor, "on_acknowledgement", None)
            if on_acknowledgement is None:
                continue
            try:
                on_acknowledgement(metadata, error)
            except caught as raised:
                self._log.warning("on_acknowledgement of %s raised %r", name_of(interceptor), raised, exc_info=True)


def _unknown(topic: str, partition: int) -> RecordMetadata:
    return RecordMetadata(topic, partition, NO_OFFSET, NO_TIMESTAMP, _NO_SIZE, _NO_SIZE)
