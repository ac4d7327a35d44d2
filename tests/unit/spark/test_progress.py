"""Times of acknowledgements, and the listener for commits of another process."""

from __future__ import annotations

import json
import random
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.reports.writes import PartitionRange, SinkProgress
from kafka_sink.spark.streaming.progress import lag_of, progress_listener
from kafka_sink.spark.task.task_outcome import TaskOutcome, rounded_ms, total_of
from tests.support.cases import with_each


def line(batch: int, rows: int = 10, **more: Any) -> str:
    report = {
        "decision": "written",
        "version": batch,
        "rows": rows,
        "bytes": rows * 9,
        "wire_bytes": rows * 5,
        "tasks": 2,
        "elapsed_ms": 250,
        "commit_ms": 40,
        "ack_p50_ms": 12,
        "ack_p99_ms": 96,
        "partitions": {"t-0": {"rows": rows, "first": batch * 100, "last": batch * 100 + rows - 1}},
    }
    return json.dumps({**report, **more}) + "\n"


@pytest.mark.behaviour("Progress and continuous triggers", "Percentiles are right to one part in sixteen")
def test_percentiles_are_right_to_one_part_in_sixteen() -> None:
    rng = random.Random(1)
    times = sorted(int(rng.lognormvariate(5, 2)) for _ in range(5000))
    total = total_of([TaskOutcome(ack_ms={rounded_ms(ms): 1}) for ms in times])
    assert sum(total.ack_ms.values()) == 5000
    assert len(total.ack_ms) < 250
    for share in (0.5, 0.99, 1.0):
        exact = times[int(share * 5000) - 1]
        found = total.ack_percentile_ms(share)
        assert found is not None
        assert exact * 15 / 16 <= found <= exact
    assert TaskOutcome().ack_percentile_ms(0.5) is None


@pytest.mark.behaviour("Progress and continuous triggers", "Every line is told once, in order and whole")
def test_every_new_line_is_told_once_in_order_and_whole(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    report.write_text(line(0))
    told: list[SinkProgress] = []
    listener = progress_listener(report, callback=told.append)
    assert listener.read_new() == []
    half = line(2)
    with report.open("a") as file:
        file.write(line(1) + half[:30])
        file.flush()
        listener.read_new()
        assert [progress.batch for progress in told] == [1]
        file.write(half[30:])
    listener.read_new()
    listener.read_new()
    assert [progress.batch for progress in told] == [1, 2]
    assert told[1].partitions == {"t-0": PartitionRange(10, 200, 209)}
    assert (told[1].commit_ms, told[1].ack_p99_ms, told[1].record_bytes) == (40, 96, 90)


def test_a_report_that_begins_anew_is_read_from_its_start(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    report.write_text(line(0) + line(1))
    listener = progress_listener(report)
    report.write_text(line(2))
    assert [progress.batch for progress in listener.read_new()] == [2]


def test_a_report_of_at_least_once_has_no_commit(tmp_path: Path) -> None:
    report = json.loads(line(3))
    del report["version"], report["decision"], report["commit_ms"]
    progress = SinkProgress.of_report({"batch": 3, **report})
    assert (progress.batch, progress.decision, progress.commit_ms) == (3, "written", 0)


@pytest.mark.behaviour("Progress and continuous triggers", "A callback that fails does not harm the query")
def test_a_callback_that_fails_harms_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(progress: SinkProgress) -> None:
        raise ValueError("no metrics today")

    report = tmp_path / "report.jsonl"
    listener = progress_listener(report, callback=fail)
    report.write_text(line(0))
    assert listener.read_new() == []
    assert "no metrics today" in caplog.text


@pytest.mark.behaviour(
    "Progress and continuous triggers", "Prometheus' file has the totals and the last offsets of the query"
)
def test_the_file_for_prometheus(tmp_path: Path) -> None:
    report, prom = tmp_path / "report.jsonl", tmp_path / "sink.prom"
    listener = progress_listener(report, prometheus_file=prom, tags={"query": 'a"b'})
    report.write_text(
        line(0, bad_rows=3)
        + line(1, decision="skipped", rows=0, partitions={}, ack_p50_ms=None, ack_p99_ms=None, timestamp_ms=5_000)
        + line(1, decision="failed", rows=5)
        + '{"source": {"batch": 1, "lag": 77}}\n'
    )
    assert [progress.batch for progress in listener.read_new()] == [0, 1]
    text = prom.read_text().splitlines()
    for expected in (
        "# TYPE kafka_sink_rows_total counter",
        'kafka_sink_rows_total{query="a\\"b"} 10.0',
        'kafka_sink_bad_rows_total{query="a\\"b"} 3.0',
        'kafka_sink_batches_total{query="a\\"b"} 2.0',
        'kafka_sink_skipped_batches_total{query="a\\"b"} 1.0',
        'kafka_sink_failed_batches_total{query="a\\"b"} 1.0',
        'kafka_sink_source_lag_rows{query="a\\"b"} 77.0',
        'kafka_sink_last_offset{partition="t-0",query="a\\"b"} 9.0',
        'kafka_sink_commit_seconds{query="a\\"b"} 0.04',
        'kafka_sink_last_commit_timestamp_seconds{query="a\\"b"} 5.0',
    ):
        assert expected in text
    assert not any(each.startswith("kafka_sink_ack_seconds") for each in text)
    assert list(tmp_path.glob("*.tmp")) == []
    # A stream that only fails is detected, too.
    with report.open("a") as file:
        file.write(line(2, decision="failed"))
    assert listener.read_new() == []
    assert 'kafka_sink_failed_batches_total{query="a\\"b"} 2.0' in prom.read_text()


@pytest.mark.behaviour("Progress and continuous triggers", "A listener serves its metrics until it is closed")
def test_the_address_for_prometheus(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    listener = progress_listener(report, metrics_port=0, tags={"query": "orders"})
    report.write_text(line(0))
    listener.read_new()
    assert listener.url is not None and listener.url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(listener.url, timeout=30) as answer:
        assert 'kafka_sink_rows_total{query="orders"} 10.0' in answer.read().decode()
    address = listener.url
    listener.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=30)


@with_each(
    ("sources", "lag"),
    [
        ([({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7, "2": 3}})], 7),
        ([({"t": {"0": 5}}, {"t": {"0": 9}}), ({"u": {"0": 1}}, {"u": {"0": 2}})], 5),
        # Kafka's source with a file source, which counts files.
        ([({"t": {"0": 5}}, {"t": {"0": 9}}), ({"logOffset": 1}, {"logOffset": 4})], 4),
        # The rate source counts seconds, and some sources have no latest offset.
        ([(5, 9)], None),
        ([({"t": {"0": 5}}, None)], None),
        ([], None),
    ],
)
def test_lag_is_that_of_sources_that_count_rows(sources: list[tuple[Any, Any]], lag: int | None) -> None:
    offsets = [{"endOffset": end, **({} if latest is None else {"latestOffset": latest})} for end, latest in sources]
    assert lag_of(json.dumps({"batchId": 7, "sources": offsets})) == lag
