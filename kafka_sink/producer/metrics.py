"""The producer's metrics, under Kafka's names: ``producer-metrics``, and the metrics of each node and each topic. They
are part of :class:`ProducerContext`, which the parts of one producer share.

The sender thread records them once per batch or request, never per record; any thread may read them.

Source: apache/kafka ``SenderMetricsRegistry``, ``KafkaProducerMetrics``; KIP-188, KIP-613, KIP-773.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_sink.client.factory import ClientNetwork
from kafka_sink.common.clock import Clock
from kafka_sink.common.locks import Lock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import Family, Metric, Sampled, families
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.records.layout import HEADER_BYTES

#: Name and value.
Figures = Iterator[tuple[str, float]]
#: Returns the metrics of another component at a time in ms.
FigureSource = Callable[[int], Iterable[tuple[str, float]]]

_NS_PER_MS = 1_000_000

#: The outcomes of records, of all topics and of each.
_OUTCOMES: Final = {
    "record-send-rate": "Records sent per second, retries included.",
    "record-send-total": "Records sent, retries included.",
    "record-error-rate": "Records per second that failed for good. Above 0 rows are lost unless their writer tries "
    "again: read the error of the future or of the task.",
    "record-error-total": "Records that failed for good, whether they were sent or not.",
    "record-retry-rate": "Records per second that are sent again. While leaders move that is normal; if it stays, the "
    "log names the brokers' error.",
    "record-retry-total": "Records that were sent again.",
}
#: The traffic of all connections and of each.
_TRAFFIC: Final = {
    "request-rate": "Requests sent per second.",
    "request-total": "Requests sent.",
    "request-size-avg": "Mean size of a request, bytes. If requests are small at a high rate, raise linger.ms or "
    "batch.size.",
    "request-size-max": "Size of the largest request, bytes.",
    "outgoing-byte-rate": "Bytes sent per second.",
    "outgoing-byte-total": "Bytes sent.",
    "response-rate": "Answers received per second.",
    "response-total": "Answers received. If it falls behind the requests, brokers do not answer.",
    "incoming-byte-rate": "Bytes received per second.",
    "incoming-byte-total": "Bytes received.",
}
_LATENCY: Final = {
    "request-latency-avg": "Mean time from a request to its answer, ms. If it grows, the brokers are slow, throttle "
    "the client, or wait for replicas (acks=all).",
    "request-latency-max": "Longest time from a request to its answer, ms.",
}
FAMILIES: Final = families(
    "producer-metrics",
    {
        **_OUTCOMES,
        "batch-size-avg": "Mean size of a batch as sent, bytes. If it is far below batch.size at a high rate, raise "
        "linger.ms.",
        "batch-size-max": "Size of the largest batch as sent, bytes.",
        "record-queue-time-avg": "Mean time that a batch waits before it is sent, ms. Beyond linger.ms the connections "
        "or the brokers are slower than the writer.",
        "record-queue-time-max": "Longest time that a batch waited, ms. At delivery.timeout.ms its records fail.",
        **_LATENCY,
        "produce-throttle-time-avg": "Mean time that brokers held the client back, ms. Above 0 it exceeds its quota: "
        "write less, or have the quota raised.",
        "produce-throttle-time-max": "Longest time that a broker held the client back, ms.",
        "record-size-avg": "Mean size of a record before compression, bytes.",
        "record-size-max": "Size of the largest record, bytes. Beyond max.request.size or the topic's "
        "max.message.bytes it is refused.",
        "compression-rate-avg": "Mean size of a batch as sent, divided by its size before compression. Near 1 "
        "compression costs time without benefit.",
        "records-per-request-avg": "Mean number of records in a request.",
        "batch-split-rate": "Batches per second that a broker refused as too large and that were split. Above 0 set "
        "batch.size below the topic's max.message.bytes.",
        "batch-split-total": "Batches that were split.",
        "batch-total": "Batches sent, retries included.",
        "batch-byte-total": "Bytes of batches as sent, retries included.",
        "uncompressed-byte-total": "Bytes of batches before compression, retries included.",
        "buffer-total-bytes": "The option buffer.memory.",
        "buffer-available-bytes": "Bytes of buffer.memory that are free. Near 0 writers wait: the brokers are slower "
        "than the writer.",
        "buffer-exhausted-rate": "Records per second that failed because no memory became free within max.block.ms. "
        "Above 0 raise buffer.memory, or write less.",
        "buffer-exhausted-total": "Records that failed because no memory became free.",
        "waiting-threads": "Threads that wait for memory.",
        "bufferpool-wait-ratio": "Share of time that threads wait for memory. If it grows, the brokers are slower than "
        "the writer.",
        "bufferpool-wait-time-ns-total": "Time that threads have waited for memory, ns.",
        "flush-time-ns-total": "Time that flush() has taken, ns.",
        "metadata-wait-time-ns-total": "Time that writers have waited for topics and leaders, ns. If it grows after "
        "the start, leaders are missing.",
        "requests-in-flight": "Requests without an answer yet.",
        "metadata-age": "Age of the metadata of topics and leaders, seconds. Above metadata.max.age.ms no broker "
        "answers.",
        "connection-count": "Open connections.",
        "connection-creation-rate": "Connections opened per second. If it stays above 0, they are closed by brokers, "
        "idle limits or a proxy: the log names them.",
        "connection-creation-total": "Connections opened.",
        "connection-close-rate": "Connections closed per second.",
        "connection-close-total": "Connections closed.",
        **_TRAFFIC,
        "select-rate": "Times per second that the sender looked for work.",
        "select-total": "Times that the sender looked for work.",
        "io-wait-time-ns-avg": "Mean time that the sender waited for a connection, ns.",
        "io-wait-time-ns-total": "Time that the sender waited for connections, ns.",
        "io-wait-ratio": "Share of time that the sender waits. Near 0 the sender is the bottleneck: more producers or "
        "tasks.",
        "io-time-ns-avg": "Mean time that the sender read and wrote, ns.",
        "io-time-ns-total": "Time that the sender read and wrote, ns.",
        "io-ratio": "Share of time that the sender reads and writes.",
    },
)
NODE_FAMILIES: Final = families("producer-node-metrics", _TRAFFIC | _LATENCY)
TOPIC_FAMILIES: Final = families(
    "producer-topic-metrics",
    {
        **_OUTCOMES,
        "byte-rate": "Bytes of batches sent per second.",
        "byte-total": "Bytes of batches sent.",
        "compression-rate": "Mean size of a batch as sent, divided by its size before compression.",
    },
)


class _TopicMetrics:
    """The outcomes of the records of one topic, or of all topics."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.sends = Sampled(samples, window_ms)
        self.errors = Sampled(samples, window_ms)
        self.retries = Sampled(samples, window_ms)
        self.sizes = Sampled(samples, window_ms)
        self.compression = Sampled(samples, window_ms)

    def drained(self, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        sizes = [batch.wire_bytes for batch in batches]
        self.sends.record(sum([batch.record_count for batch in batches]), now_ms)
        self.sizes.record_all(sizes, now_ms)
        compressed = [size / batch.size_bytes for size, batch in zip(sizes, batches, strict=True)]
        self.compression.record_all(compressed, now_ms)

    def outcomes(self, now_ms: int) -> Figures:
        for name, quantity in (("send", self.sends), ("error", self.errors), ("retry", self.retries)):
            yield f"record-{name}-rate", quantity.rate(now_ms)
            yield f"record-{name}-total", quantity.total

    def sent(self, now_ms: int) -> Figures:
        yield "byte-rate", self.sizes.rate(now_ms)
        yield "byte-total", self.sizes.total
        yield "compression-rate", self.compression.average(now_ms)


class ProducerMetrics:
    """All metrics of :meth:`KafkaProducer.metrics`.

    :param memory: the figures of the buffer pool, which are read together with those of *network*.
    """

    def __init__(self, client_id: str, config: ProducerConfig, memory: FigureSource, network: ClientNetwork) -> None:
        self._memory = memory
        self._network = network
        self._tags = (("client-id", client_id),)
        samples, window_ms = config.metrics_num_samples, config.metrics_sample_window_ms
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
        self._uncompressed_bytes_total += sum([batch.size_bytes for batch in batches])
        self._queue_time.record_all([now_ms - batch.created_ms for batch in batches], now_ms)
        self._record_sizes.record_all(
            [(batch.size_bytes - HEADER_BYTES) / batch.record_count for batch in batches], now_ms
        )
        # Rows that were staged as columns have been recorded.
        if largest := [batch.largest_record_bytes for batch in batches if batch.largest_record_bytes]:
            self._largest_records.record_all(largest, now_ms)
        self._records_per_request.record(sum([batch.record_count for batch in batches]), now_ms)

    def staged_rows(self, largest_bytes: int, now_ms: int) -> None:
        """Record rows that were staged as columns; the largest takes about *largest_bytes*."""
        self._largest_records.record(largest_bytes, now_ms)

    def answered(self, node_id: str, latency_ms: int, now_ms: int) -> None:
        """Record the end of a request, *latency_ms* after it was sent."""
        self._request_latency.record(latency_ms, now_ms)
        latency = self._latencies.get(node_id)
        if latency is None:
            latency = self._latencies[node_id] = Sampled(self._samples, self._window_ms)
        latency.record(latency_ms, now_ms)

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
        of_topic = self._topics.get(topic)
        if of_topic is None:
            of_topic = self._topics.setdefault(topic, _TopicMetrics(self._samples, self._window_ms))
        return of_topic

    def batch_totals(self) -> tuple[int, int]:
        """The batches drained so far, retries among them, and their bytes."""
        return int(self._all.sizes.count), int(self._all.sizes.total)

    def snapshot(self, now_ms: int) -> dict[str, float]:
        """The values of ``producer-metrics`` by name."""
        return dict(self._figures(now_ms))

    def metrics(self, now_ms: int) -> list[Metric]:
        """Every metric with its group and tags."""
        metrics = list(_named(FAMILIES, self._figures(now_ms), *self._tags))
        for node_id, connection in tuple(self._network.metrics.by_connection.items()):
            tags = (*self._tags, ("node-id", f"node-{node_id}"))
            metrics += _named(NODE_FAMILIES, connection.figures(now_ms), *tags)
            latency = self._latencies.get(node_id)
            if latency is not None:
                metrics += _named(NODE_FAMILIES, _average_and_maximum("request-latency", latency, now_ms), *tags)
        for topic, of_topic in tuple(self._topics.items()):
            tags = (*self._tags, ("topic", topic))
            metrics += _named(TOPIC_FAMILIES, of_topic.outcomes(now_ms), *tags)
            metrics += _named(TOPIC_FAMILIES, of_topic.sent(now_ms), *tags)
        return metrics

    def _figures(self, now_ms: int) -> Figures:
        yield from self._all.outcomes(now_ms)
        for name, quantity in (
            ("batch-size", self._all.sizes),
            ("record-queue-time", self._queue_time),
            ("request-latency", self._request_latency),
            ("produce-throttle-time", self._throttle_time),
        ):
            yield from _average_and_maximum(name, quantity, now_ms)
        yield "record-size-avg", self._record_sizes.average(now_ms)
        yield "record-size-max", self._largest_records.maximum(now_ms)
        yield "compression-rate-avg", self._all.compression.average(now_ms)
        yield "records-per-request-avg", self._records_per_request.average(now_ms)
        yield "batch-split-rate", self._splits.rate(now_ms)
        yield "batch-split-total", self._splits.count
        yield "batch-total", self._all.sizes.count
        yield "batch-byte-total", self._all.sizes.total
        yield "uncompressed-byte-total", self._uncompressed_bytes_total
        yield from self._memory(now_ms)
        yield "flush-time-ns-total", self._flush_ms * _NS_PER_MS
        yield "metadata-wait-time-ns-total", self._metadata_wait_ms * _NS_PER_MS
        yield "requests-in-flight", self._network.client.in_flight_request_count()
        yield "metadata-age", self._network.metadata.age_ms(now_ms) / 1000
        yield from self._network.metrics.figures(now_ms)


def _average_and_maximum(name: str, quantity: Sampled, now_ms: int) -> Figures:
    yield f"{name}-avg", quantity.average(now_ms)
    yield f"{name}-max", quantity.maximum(now_ms)


def _named(
    families_by_name: Mapping[str, Family], figures: Iterable[tuple[str, float]], *tags: tuple[str, str]
) -> Iterator[Metric]:
    for name, value in figures:
        yield families_by_name[name].at(value, *tags)


@dataclass(frozen=True, slots=True)
class ProducerContext:
    """The configuration, the clock, the metrics and the log of a producer. Its parts share them, and none owns them."""

    config: ProducerConfig
    clock: Clock
    metrics: ProducerMetrics
    log: ContextLogger
