"""The producer's figures, under the names of Kafka's ``producer-metrics``.

Written by the sender thread once per batch or request, never per record; read from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.producer_batch import ProducerBatch


@dataclass(slots=True)
class _Average:
    total: float = 0.0
    count: int = 0
    maximum: float = 0.0

    def record(self, value: float) -> None:
        self.total += value
        self.count += 1
        self.maximum = max(self.maximum, value)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


class ProducerMetrics:
    """Totals and averages since the producer was made."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._batch_size = _Average()
        self._compression_rate = _Average()
        self._queue_time = _Average()
        self._request_latency = _Average()
        self.record_send_total = 0
        self.record_error_total = 0
        self.record_retry_total = 0
        self.batch_total = 0
        self.batch_split_total = 0
        self.uncompressed_bytes_total = 0
        self.wire_bytes_total = 0

    def drained(self, batches: Iterable[ProducerBatch]) -> None:
        """Batches that leave their queue for the wire, first attempts and retries alike."""
        for batch in batches:
            self.record_send_total += batch.record_count
            self.batch_total += 1
            self.uncompressed_bytes_total += batch.size_bytes
            self.wire_bytes_total += batch.wire_bytes
            self._batch_size.record(batch.wire_bytes)
            self._compression_rate.record(batch.wire_bytes / batch.size_bytes)
            self._queue_time.record(batch.drained_ms - batch.created_ms)

    def answered(self, latency_ms: int) -> None:
        self._request_latency.record(latency_ms)

    def snapshot(self) -> dict[str, float]:
        """Metric name → value. Sizes in bytes, times in ms, ratios as shares."""
        return {
            "record-send-total": self.record_send_total,
            "record-error-total": self.record_error_total,
            "record-retry-total": self.record_retry_total,
            "batch-total": self.batch_total,
            "batch-split-total": self.batch_split_total,
            "uncompressed-byte-total": self.uncompressed_bytes_total,
            "batch-byte-total": self.wire_bytes_total,
            "batch-size-avg": self._batch_size.mean,
            "batch-size-max": self._batch_size.maximum,
            "compression-rate-avg": self._compression_rate.mean,
            "record-queue-time-avg": self._queue_time.mean,
            "record-queue-time-max": self._queue_time.maximum,
            "request-total": self._request_latency.count,
            "request-latency-avg": self._request_latency.mean,
            "request-latency-max": self._request_latency.maximum,
            "buffer-total-bytes": self._pool.total_memory,
            "buffer-available-bytes": self._pool.available_memory,
            "waiting-threads": self._pool.queued,
            "bufferpool-wait-time-total": self._pool.wait_time_ms,
        }
