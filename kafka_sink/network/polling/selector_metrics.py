"""The traffic of a selector, in total and per connection.

The selector's thread writes once per frame, connection or poll; any thread may read. The metrics do not distinguish
APIs.

Source: apache/kafka ``Selector.SelectorMetrics`` (names of the metrics).
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_sink.common.metrics import Sampled

_NS_PER_MS = 1_000_000


class Traffic:
    """Outgoing and incoming frames, of one connection or of all."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._sent = Sampled(samples, window_ms)
        self._received = Sampled(samples, window_ms)

    def sent(self, size_bytes: int, now_ms: int) -> None:
        self._sent.record(size_bytes, now_ms)

    def received(self, size_bytes: int, now_ms: int) -> None:
        self._received.record(size_bytes, now_ms)

    def figures(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """The metrics, by Kafka's names."""
        yield "request-rate", self._sent.frequency(now_ms)
        yield "request-total", self._sent.count
        yield "request-size-avg", self._sent.average(now_ms)
        yield "request-size-max", self._sent.maximum(now_ms)
        yield "outgoing-byte-rate", self._sent.rate(now_ms)
        yield "outgoing-byte-total", self._sent.total
        yield "response-rate", self._received.frequency(now_ms)
        yield "response-total", self._received.count
        yield "incoming-byte-rate", self._received.rate(now_ms)
        yield "incoming-byte-total", self._received.total


class SelectorMetrics:
    """The metrics of one selector."""

    def __init__(self, samples: int = 2, window_ms: int = 30_000) -> None:
        self._samples, self._window_ms = samples, window_ms
        self._all = Traffic(samples, window_ms)
        #: Connection id → its traffic; kept after a disconnection: the next one to the node continues it.
        self.by_connection: dict[str, Traffic] = {}
        self._created = Sampled(samples, window_ms)
        self._closed = Sampled(samples, window_ms)
        self._waits_ms = Sampled(samples, window_ms)
        self._io_ms = Sampled(samples, window_ms)

    def sent(self, connection_id: str, size_bytes: int, now_ms: int) -> None:
        """Record that a frame was sent completely."""
        self._all.sent(size_bytes, now_ms)
        self._traffic(connection_id).sent(size_bytes, now_ms)

    def received(self, connection_id: str, size_bytes: int, now_ms: int) -> None:
        """Record that a complete frame was received."""
        self._all.received(size_bytes, now_ms)
        self._traffic(connection_id).received(size_bytes, now_ms)

    def created(self, now_ms: int) -> None:
        """Record a new connection."""
        self._created.record(1, now_ms)

    def closed(self, now_ms: int) -> None:
        """Record the end of a connection, whatever the cause."""
        self._closed.record(1, now_ms)

    def polled(self, waited_ms: int, worked_ms: int, now_ms: int) -> None:
        """Record a poll: the time it waited for an event, and the time it took to process events."""
        self._waits_ms.record(waited_ms, now_ms)
        self._io_ms.record(worked_ms, now_ms)

    def figures(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """The metrics, by Kafka's names."""
        yield "connection-count", self._created.count - self._closed.count
        yield "connection-creation-rate", self._created.rate(now_ms)
        yield "connection-creation-total", self._created.count
        yield "connection-close-rate", self._closed.rate(now_ms)
        yield "connection-close-total", self._closed.count
        yield from self._all.figures(now_ms)
        yield "select-rate", self._waits_ms.frequency(now_ms)
        yield "select-total", self._waits_ms.count
        yield "io-wait-time-ns-avg", self._waits_ms.average(now_ms) * _NS_PER_MS
        yield "io-wait-time-ns-total", self._waits_ms.total * _NS_PER_MS
        yield "io-wait-ratio", self._waits_ms.rate(now_ms) / 1000
        yield "io-time-ns-avg", self._io_ms.average(now_ms) * _NS_PER_MS
        yield "io-time-ns-total", self._io_ms.total * _NS_PER_MS
        yield "io-ratio", self._io_ms.rate(now_ms) / 1000

    def _traffic(self, connection_id: str) -> Traffic:
        traffic = self.by_connection.get(connection_id)
        if traffic is None:
            traffic = self.by_connection[connection_id] = Traffic(self._samples, self._window_ms)
        return traffic
