"""The producer's metrics, under Kafka's names: ``producer-metrics``, and the metrics of each node and each topic.

The sender thread records them once per batch or request, never per record; any thread may read them.

Source: apache/kafka ``SenderMetricsRegistry``, ``KafkaProducerMetrics``; KIP-188, KIP-613, KIP-773.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_sink.common.locks import Lock
from kafka_sink.common.metrics import Metric, Sampled
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.records.layout import HEADER_BYTES

#: Name and value.
Figures = Iterator[tuple[str, float]]
#: Returns the metrics of another component at a time in ms.
FigureSource = Callable[[int], Iterable[tuple[str, float]]]

_NS_PER_MS = 1_000_000


def _nothing(now_ms: int) -> Iterable[tuple[str, float]]:
    return ()


@dataclass(frozen=True, slots=True)
class MetricSources:
    """The components whose metrics are read together with the producer's own."""

    #: The buffer pool.
    memory: FigureSource = _nothing
    client: FigureSource = _nothing
    #: All connections together, and each by its connection id.
    network: FigureSource = _nothing
    nodes: Callable[[], dict[str, FigureSource]] = dict


class _TopicMetrics:
    """The outcomes of the records of one topic, or of all topics."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.sends = Sampled(samples, window_ms)
        self.errors = Sampled(samples, window_ms)
        self.retries = Sampled(samples, window_ms)
        self.sizes = Sampled(samples, window_ms)
        self.compression = Sampled(samples, window_ms)

    def drained(self, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        self.sends.record(sum(batch.record_count for batch in batches), now_ms)
        self.sizes.record_all([batch.wire_bytes for batch in batches], now_ms)
        self.compression.record_all([batch.wire_bytes / batch.size_bytes for batch in batches], now_ms)

    def outcomes(self, now_ms: int) -> Figures:
        for name, quantity in (("send", self.sends), ("error", self.errors), ("retry", self.retries)):
            yield f"record-{name}-rate", quantity.rate(now_ms)
            yield f"record-{name}-total", quantity.total


class ProducerMetrics:
    """All metrics of :meth:`KafkaProducer.metrics`."""

    def __init__(self, client_id: str, samples: int, window_ms: int, sources: MetricSources) -> None:
        self._sources = sources
        self._tags = (("client-id", client_id),)
        self._samples, self._window_ms = samples, window_ms
        self._all = _TopicMetrics(samples, window_ms)
        self._topics: dict[str, _TopicMetrics] = {}
        self._latencies: dict[str, Sampled] = {}
        self._queue_time = Sampled(samples, window_ms)
        self._record_sizes = Sampled(samples, window_ms)
        self._largest_records = Sampled(samples, window_ms)
        self._records_per_request = Sampled(samples, window_ms)
        self._request_latency = Sampled(samples, window_ms)
        self._throttle_time = Sampled(samples, window_ms)
        self._splits = Sampled(samples, window_ms)
        self._flush_ms = 0
        self._metadata_wait_ms = 0
        self._uncompressed_bytes_total = 0

    # --- recording ---------------------------------------------------------------------------------------------------

    def drained(self, batches: Sequence[ProducerBatch]) -> None:
        """Record the batches of one request when they are drained: first attempts and retries alike."""
        if not batches:
            return
        now_ms = batches[0].drained_ms
        by_topic: dict[str, list[ProducerBatch]] = {}
        for batch in batches:
            by_topic.setdefault(batch.topic_partition.topic, []).append(batch)
        self._all.drained(batches, now_ms)
        for topic, of_topic in by_topic.items():
            self._topic(topic).drained(of_topic, now_ms)
        self._uncompressed_bytes_total += sum(batch.size_bytes for batch in batches)
        self._queue_time.record_all([now_ms - batch.created_ms for batch in batches], now_ms)
        self._record_sizes.record_all(
            [(batch.size_bytes - HEADER_BYTES) / batch.record_count for batch in batches], now_ms
        )
        # Rows that were staged as columns have been recorded.
        if largest := [batch.largest_record_bytes for batch in batches if batch.largest_record_bytes]:
            self._largest_records.record_all(largest, now_ms)
        self._records_per_request.record(sum(batch.record_count for batch in batches), now_ms)

    def staged_rows(self, largest_bytes: int, now_ms: int) -> None:
        """Record rows that were staged as columns; the largest takes about *largest_bytes*."""
        self._largest_records.record(largest_bytes, now_ms)

    def answered(self, node_id: str, latency_ms: int, now_ms: int) -> None:
        """Record the end of a request, *latency_ms* after it was sent."""
        self._request_latency.record(latency_ms, now_ms)
        found = self._latencies.get(node_id)
        if found is None:
            found = self._latencies[node_id] = Sampled(self._samples, self._window_ms)
        found.record(latency_ms, now_ms)

    def throttled(self, throttle_ms: int, now_ms: int) -> None:
        """Record the throttle time of a broker's answer."""
        self._throttle_time.record(throttle_ms, now_ms)

    def retried(self, topic: str, records: int, now_ms: int) -> None:
        """Record the records of a batch that is put back into its queue."""
        self._all.retries.record(records, now_ms)
        self._topic(topic).retries.record(records, now_ms)

    def failed(self, topic: str, records: int, now_ms: int) -> None:
        """Record records that failed, whether they were sent or not."""
        self._all.errors.record(records, now_ms)
        self._topic(topic).errors.record(records, now_ms)

    def split(self, now_ms: int) -> None:
        """Record a batch that was split because it was too large."""
        self._splits.record(1, now_ms)

    def flushed(self, waited_ms: int) -> None:
        self._flush_ms += waited_ms

    def waited_for_metadata(self, waited_ms: int) -> None:
        self._metadata_wait_ms += waited_ms

    def locks(self) -> list[Lock]:
        """The locks of the metrics that both calling threads and the sender thread record."""
        topics = [self._all, *tuple(self._topics.values())]
        return [self._largest_records.lock, *(topic.errors.lock for topic in topics)]

    def _topic(self, topic: str) -> _TopicMetrics:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics.setdefault(topic, _TopicMetrics(self._samples, self._window_ms))
        return found

    def batch_totals(self) -> tuple[int, int]:
        """The batches drained so far, retries among them, and their bytes."""
        return int(self._all.sizes.count), int(self._all.sizes.total)

    # --- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self, now_ms: int) -> dict[str, float]:
        """The values of ``producer-metrics`` by name."""
        return dict(self._figures(now_ms))

    def metrics(self, now_ms: int) -> list[Metric]:
        """Every metric with its group and tags."""
        found = [Metric(name, "producer-metrics", self._tags, value) for name, value in self._figures(now_ms)]
        for node_id, figures in self._sources.nodes().items():
            tags = (*self._tags, ("node-id", f"node-{node_id}"))
            found += [Metric(name, "producer-node-metrics", tags, value) for name, value in figures(now_ms)]
            latency = self._latencies.get(node_id)
            if latency is not None:
                found += [
                    Metric("request-latency-avg", "producer-node-metrics", tags, latency.average(now_ms)),
                    Metric("request-latency-max", "producer-node-metrics", tags, latency.maximum(now_ms)),
                ]
        for topic, of_topic in tuple(self._topics.items()):
            tags = (*self._tags, ("topic", topic))
            found += [Metric(name, "producer-topic-metrics", tags, value) for name, value in of_topic.outcomes(now_ms)]
            found += [
                Metric("byte-rate", "producer-topic-metrics", tags, of_topic.sizes.rate(now_ms)),
                Metric("byte-total", "producer-topic-metrics", tags, of_topic.sizes.total),
                Metric("compression-rate", "producer-topic-metrics", tags, of_topic.compression.average(now_ms)),
            ]
        return found

    def _figures(self, now_ms: int) -> Figures:
        yield from self._all.outcomes(now_ms)
        for name, quantity in (
            ("batch-size", self._all.sizes),
            ("record-queue-time", self._queue_time),
            ("request-latency", self._request_latency),
            ("produce-throttle-time", self._throttle_time),
        ):
            yield f"{name}-avg", quantity.average(now_ms)
            yield f"{name}-max", quantity.maximum(now_ms)
        yield "record-size-avg", self._record_sizes.average(now_ms)
        yield "record-size-max", self._largest_records.maximum(now_ms)
        yield "compression-rate-avg", self._all.compression.average(now_ms)
        yield "records-per-request-avg", self._records_per_request.average(now_ms)
        yield "batch-split-rate", self._splits.rate(now_ms)
        yield "batch-split-total", self._splits.count
        yield "batch-total", self._all.sizes.count
        yield "batch-byte-total", self._all.sizes.total
        yield "uncompressed-byte-total", self._uncompressed_bytes_total
        yield from self._sources.memory(now_ms)
        yield "flush-time-ns-total", self._flush_ms * _NS_PER_MS
        yield "metadata-wait-time-ns-total", self._metadata_wait_ms * _NS_PER_MS
        yield from self._sources.client(now_ms)
        yield from self._sources.network(now_ms)
