"""The promised contents of a write's report: of its own rows, of all of its tasks, and of nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.errors import TooManyBadRowsError
from kafka_sink.exactly_once.model import BatchNumbering, Plan, Progress, Skipped
from kafka_sink.exactly_once.protocols import Outcome
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction
from kafka_sink.reports.writes import PartitionRange, SinkProgress, StreamFigures
from kafka_sink.spark import data_source, dataframe_writer
from kafka_sink.spark.data_source import KafkaliteNumberedBatchWriter
from kafka_sink.spark.dataframe_writer import _DataFrameWrite
from kafka_sink.spark.driver.write_report import WriteSummary, check_bad_rows
from kafka_sink.spark.options import parse_arguments, parse_options
from kafka_sink.spark.task.task_outcome import TaskOutcome, TaskTransaction, total_of
from kafka_sink.spark.task.task_writer import write_task

TOPIC = "rows"
A, B = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, 1)
        yield cluster


@pytest.mark.behaviour("Tasks", "A task goes on with the producer of the task before it")
def test_a_task_reports_only_its_own_batches_and_bytes(cluster: EmbeddedCluster) -> None:
    spec = parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": TOPIC}).spec
    rows = pa.record_batch([pa.array(["a row"] * 100)], names=["value"])
    first, second = (write_task(iter([rows]), spec) for _ in range(2))
    assert (first.batches, second.batches) == (1, 1)
    assert second.wire_bytes < 1.5 * first.wire_bytes


def test_the_sum_of_tasks_has_the_longest_time_and_all_rows() -> None:
    tasks = [
        TaskOutcome(0, 10, 10, elapsed_ms=70, ranges={B: PartitionRange(10, 5, 14)}, ack_ms={5: 10}),
        TaskOutcome(1, 9, 8, elapsed_ms=50, ranges={A: PartitionRange(8, 0, 7)}, ack_ms={5: 2, 96: 6}, bad_rows=1),
        TaskOutcome(2, 1, 1, elapsed_ms=60, ranges={B: PartitionRange(1, 2, 2)}, ack_ms={7: 1}),
    ]
    total = total_of(tasks)
    assert (total.rows_in, total.rows_acked, total.bad_rows, total.elapsed_ms) == (20, 19, 1, 70)
    assert list(total.ranges.items()) == [(A, PartitionRange(8, 0, 7)), (B, PartitionRange(11, 2, 14))]
    assert total.ack_ms == {5: 12, 7: 1, 96: 6}
    # The time of the whole call, not of the longest task.
    assert WriteSummary(outcomes=tasks).as_report(900).elapsed_ms == 900


@pytest.mark.behaviour("Dead letters", "maxBadRows is a number of rows, or a share of all rows of the write")
def test_the_first_problem_is_that_of_a_task_with_bad_rows() -> None:
    spec = parse_options(
        {"kafka.bootstrap.servers": "b:9092", "topic": TOPIC, "onBadRow": "drop", "maxBadRows": "25%"}
    ).spec
    of_tasks = [
        TaskOutcome(0, 5, 5),
        TaskOutcome(1, 3, 2, bad_rows=1, first_bad_row="row 2 is wrong"),
        TaskOutcome(2, 4, 2, bad_rows=2, first_bad_row="row 0 is wrong"),
    ]
    check_bad_rows(of_tasks, spec)
    of_tasks.append(TaskOutcome(3, 1, 0, bad_rows=1, first_bad_row="row 0 is late"))
    with pytest.raises(TooManyBadRowsError, match=r"4 of 13 rows \(30\.77%\) .* the first: row 2 is wrong; correct"):
        check_bad_rows(of_tasks, spec)


@pytest.mark.behaviour("Progress and continuous triggers", "Every line is told once, in order and whole")
@pytest.mark.parametrize("is_skipped", [True, False])
def test_skipped_atomic_write_reports_no_rows(
    is_skipped: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its tasks had written rows when the driver found the version committed by another driver."""

    class Sink:
        def __init__(self, driver: object) -> None:
            pass

        def write(self, version: int, writer: str, numbers: object, rows: Callable[[Any], Any], **_: Any) -> Outcome:
            rows(None)
            return Outcome(0, Skipped(3, 3)) if is_skipped else Outcome(1)

    for name in ("require_local_checkpoint", "require_kept_blocks", "speculates", "driver_of", "remove_checkpoint"):
        monkeypatch.setattr(dataframe_writer, name, lambda *_: None)
    monkeypatch.setattr(dataframe_writer, "AtomicSink", Sink)
    # Replaces Spark's part, which cannot be timed to end between the rows and the commit of another driver.
    monkeypatch.setattr(_DataFrameWrite, "_by_partition", lambda write: write.df)
    written = [TaskOutcome(0, 10, 10, 100, 80, 1, 5, {A: PartitionRange(10, 5, 14)})]
    monkeypatch.setattr(_DataFrameWrite, "_outcomes", lambda *_, **__: written)
    report = tmp_path / "report.jsonl"
    options = {"kafka.bootstrap.servers": "b:9092", "topic": TOPIC, "reportPath": str(report)}
    spec = parse_arguments(options, {"txnAppId": "app", "txnVersion": 3}).spec
    df: Any = SimpleNamespace(sparkSession=None, inputFiles=list)
    found = _DataFrameWrite(df, spec, "an application", BatchNumbering.OF_AN_APPLICATION).report(atomic=True)
    expected = ("skipped", 0, 0, {}) if is_skipped else ("written", 10, 1, written[0].ranges)
    assert (found.decision, found.rows, found.tasks, found.partitions) == expected
    line = json.loads(report.read_text())
    assert (line["decision"], line["rows"], line["tasks"], len(line["partitions"])) == (
        *expected[:3],
        len(expected[3]),
    )


def test_version_committed_by_another_driver_reports_no_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tasks had written rows when the driver found the version committed."""
    report = tmp_path / "report.jsonl"
    options = {"kafka.bootstrap.servers": "b:9092", "topic": TOPIC, "reportPath": str(report)}
    spec = parse_options({**options, "txnAppId": "app", "txnVersion": "3"}).spec
    assert spec.exactly_once is not None
    driver = Transaction("app/rows.driver", 1, 0)
    plan = Plan("app/rows", driver, TransactionVersion.V2, 60_000, Moment.now(SYSTEM_CLOCK), None, 1)
    current = replace(plan, progress=Progress(4, "an application", TransactionVersion.V2, 0))
    sink = SimpleNamespace(commit=lambda *_, **__: current)
    monkeypatch.setattr(data_source, "sink_of", lambda *_: sink)
    opened = OpenTransaction(Transaction("app/rows.1", 2, 0), frozenset({A}))
    written = TaskOutcome(
        *(0, 10, 10, 100, 80, 1, 5),
        {A: PartitionRange(10, 5, 14)},
        transaction=TaskTransaction("an application", 3, plan, opened),
    )
    KafkaliteNumberedBatchWriter(spec, spec.exactly_once).commit([written])
    line = json.loads(report.read_text())
    assert (line["decision"], line["rows"], line["tasks"], line["partitions"]) == ("skipped", 0, 0, {})


@pytest.mark.behaviour("Progress and continuous triggers", "Every line is told once, in order and whole")
def test_batches_that_were_not_written_are_counted_as_skipped() -> None:
    figures = StreamFigures()
    for decision in ("written", "skipped", "older", "failed"):
        summary = WriteSummary(decision=decision, sink="app", number=3)
        figures.add(SinkProgress.of_report(json.loads(summary.to_json(1_700_000_000_000))))
    totals = {metric.name: metric.value for metric in figures.metrics()}
    names = ("batches-total", "skipped-batches-total", "failed-batches-total", "rows-total")
    assert [totals[name] for name in names] == [3, 2, 1, 0]
