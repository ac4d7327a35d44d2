"""Sampled metrics: windows expire, totals stay."""

from __future__ import annotations

import math

from kafka_sink.common.exposition import OPENMETRICS, TEXT, rendered
from kafka_sink.common.metrics import Sampled, families


def test_nothing_recorded_has_no_average_and_no_rate() -> None:
    sampled = Sampled(2, 1000)
    assert math.isnan(sampled.average(0))
    assert math.isnan(sampled.maximum(0))
    assert sampled.rate(0) == sampled.frequency(0) == sampled.total == sampled.count == 0


def test_sampled_figures_cover_last_windows_and_totals_cover_all() -> None:
    sampled = Sampled(2, 1000)
    for now_ms, value in ((0, 10), (999, 20), (1000, 60), (1500, 30)):
        sampled.record(value, now_ms)
    assert (sampled.average(1999), sampled.maximum(1999)) == (30, 60)
    # The window that began at 0 has expired.
    assert (sampled.average(2000), sampled.maximum(2500)) == (45, 60)
    assert math.isnan(sampled.average(3000))
    assert (sampled.total, sampled.count) == (120, 4)
    sampled.record(1, 5000)
    assert (sampled.average(5000), sampled.total) == (1, 121)


def test_a_rate_begins_as_if_the_windows_before_had_been_empty() -> None:
    sampled = Sampled(2, 1000)
    sampled.record(30, 500)
    assert sampled.rate(500) == 30
    assert sampled.rate(1000) == 20
    assert sampled.frequency(1000) == 1 / 1.5
    assert sampled.rate(1500) == 30
    sampled.record(30, 1600)
    assert sampled.rate(2000) == 40
    one = Sampled(1, 1000)
    one.record(5, 0)
    assert one.rate(500) == 5


def test_metrics_are_rendered_in_the_format_that_is_accepted() -> None:
    topics = families("producer-topic-metrics", {"record-send-total": "Records sent."})
    own = families("producer-metrics", {"batch-size-avg": "Mean size.", "free-bytes": "Bytes\n that are free."})
    metrics = [
        topics["record-send-total"].at(3, ("client-id", "a"), ("topic", 'x"\\\n')),
        own["batch-size-avg"].at(math.nan, ("client-id", "a")),
        own["free-bytes"].at(7, ("client-id", "a")),
        topics["record-send-total"].at(0.5, ("client-id", "a"), ("topic", "y.z")),
    ]
    samples = (
        'kafka_producer_topic_metrics_record_send_total{client_id="a",topic="x\\"\\\\\\n"} 3.0\n'
        'kafka_producer_topic_metrics_record_send_total{client_id="a",topic="y.z"} 0.5\n'
    )
    text, content_type = rendered(metrics, f"{OPENMETRICS};version=1.0.0;q=0.5,text/plain;version=0.0.4")
    assert content_type.startswith(f"{OPENMETRICS}; version=1.0.0")
    assert text == (
        "# HELP kafka_producer_topic_metrics_record_send Records sent.\n"
        "# TYPE kafka_producer_topic_metrics_record_send counter\n"
        f"{samples}"
        "# HELP kafka_producer_metrics_free_bytes Bytes\\n that are free.\n"
        "# TYPE kafka_producer_metrics_free_bytes gauge\n"
        "# UNIT kafka_producer_metrics_free_bytes bytes\n"
        'kafka_producer_metrics_free_bytes{client_id="a"} 7.0\n'
        "# EOF\n"
    )
    # node_exporter, and clients without a format: the counter is described under the name of its samples.
    for accept in (TEXT, ""):
        text, content_type = rendered(metrics, accept)
        assert content_type.startswith("text/plain; version=0.0.4")
        assert text.startswith(
            "# HELP kafka_producer_topic_metrics_record_send_total Records sent.\n"
            f"# TYPE kafka_producer_topic_metrics_record_send_total counter\n{samples}"
        )
    assert rendered([], OPENMETRICS)[0] == "# EOF\n"
