"""The selector counts transferred bytes, in total and per connection."""

from __future__ import annotations

from kafka_sink.network.polling.selector_metrics import SelectorMetrics


def test_frames_connections_and_polls_are_counted() -> None:
    metrics = SelectorMetrics(samples=2, window_ms=1000)
    for connection_id in ("1", "2"):
        metrics.created(0)
        metrics.sent(connection_id, 100, 0)
    metrics.received("1", 30, 0)
    metrics.sent("1", 300, 500)
    metrics.closed(500)
    metrics.polled(200, 50, 500)
    metrics.polled(0, 150, 500)
    figures = dict(metrics.figures(1000))
    assert (figures["connection-count"], figures["connection-creation-total"], figures["connection-close-total"]) == (
        1,
        2,
        1,
    )
    assert (figures["request-total"], figures["request-size-max"], figures["outgoing-byte-total"]) == (3, 300, 500)
    assert (figures["response-total"], figures["incoming-byte-total"]) == (1, 30)
    assert figures["outgoing-byte-rate"] == 500
    assert (figures["select-total"], figures["io-wait-time-ns-total"], figures["io-wait-time-ns-avg"]) == (2, 2e8, 1e8)
    assert (figures["io-time-ns-total"], figures["io-wait-ratio"]) == (2e8, 0.2 / 1.5)
    first = dict(metrics.by_connection["1"].figures(1000))
    assert (first["request-total"], first["request-size-avg"], first["incoming-byte-total"]) == (2, 200, 30)
    assert dict(metrics.by_connection["2"].figures(1000))["response-total"] == 0
