"""The driver's side of a write: the reports of the tasks must add up."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from kafka_sink.common.errors import ErrorCode, KafkaError, KafkaTimeoutError
from kafka_sink.common.model import TopicPartition
from kafka_sink.errors import SinkWriteError, UnwritableRowsError
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction
from kafka_sink.producer.futures import Delivery
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.data_source import KafkaliteBatchWriter
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.task_outcome import TaskOutcome, TaskTransaction, outcome_of
from kafka_sink.spark.task.task_writer import DeliveryTracker
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

TP = TopicPartition("t", 0)


def make_writer(report: Path | None = None) -> KafkaliteBatchWriter:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
    if report is not None:
        options["reportPath"] = str(report)
    return KafkaliteBatchWriter(prepared(StructType().add("value", "string"), parse_options(options)))


def make_commit(partition: int, rows_in: int, rows_acked: int, first: int = 0) -> TaskOutcome:
    ranges = {TP: PartitionRange(rows_acked, first, first + rows_acked - 1)}
    return TaskOutcome(partition, rows_in, rows_acked, 100, 80, 1, 5, ranges)


def test_rows_acknowledged_must_be_rows_given() -> None:
    with pytest.raises(KafkaError, match="partition 1: 9 of 10 rows acknowledged"):
        make_writer().commit([make_commit(0, 10, 10), make_commit(1, 10, 9)])


def test_a_task_that_reported_nothing_is_not_taken_for_a_success() -> None:
    with pytest.raises(KafkaError, match="1 of 2 tasks reported nothing"):
        make_writer().commit([make_commit(0, 10, 10), None])


def test_the_report_adds_the_tasks_up(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    make_writer(report).commit([make_commit(0, 10, 10, 5), make_commit(1, 20, 20, 15)])
    found = json.loads(report.read_text())
    assert (found["rows"], found["bytes"], found["wire_bytes"], found["batches"]) == (30, 200, 160, 2)
    assert found["partitions"] == {"t-0": {"rows": 30, "first": 5, "last": 34}}


def test_abort_says_what_stays_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_writer().abort([make_commit(0, 10, 10), None])
    assert "a task failed, or it was stopped" in caplog.text
    assert "the 10 rows of 1 finished tasks and acknowledged rows of 1 unfinished tasks, if any" in caplog.text


def test_abort_of_tasks_that_wrote_nothing_names_no_rows(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_writer().abort([make_commit(0, 0, 0)])
    assert "if you repeat the write: none" in caplog.text


def test_abort_of_a_stopped_query_claims_no_rows(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_writer().abort([None, None])
    assert "the write failed" not in caplog.text
    assert "repeat the write: acknowledged rows of 2 unfinished tasks, if any" in caplog.text


def test_abort_after_all_tasks_names_no_other_rows(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        make_writer().abort([make_commit(0, 10, 10)])
    assert caplog.messages[-1].endswith("if you repeat the write: the 10 rows of 1 finished tasks")


def test_a_report_that_cannot_be_written_does_not_undo_a_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    writer = make_writer(folder / "report.jsonl")
    folder.rmdir()
    writer.commit([make_commit(0, 10, 10)])
    assert "option reportPath" in "\n".join(caplog.messages)
    assert '"rows": 10' in "\n".join(caplog.messages)


def test_tracker_keeps_first_error_and_counts_acknowledged_rows() -> None:
    clock = FakeClock()
    tracker = DeliveryTracker(clock)
    first = KafkaTimeoutError("first")
    delivered = tracker.handing_over()
    clock.advance(5)
    delivered(Delivery(TP, 40, 10, 500, -1, None))
    delivered(Delivery(TP, -1, 5, 100, -1, first))
    delivered(Delivery(TP, -1, 5, 100, -1, KafkaTimeoutError("second")))
    clock.advance(100)
    delivered(Delivery(TP, 20, 3, 90, -1, None))
    assert (tracker.first_error, tracker.first_error_in) == (first, TP)
    assert (tracker.rows_acked, tracker.record_bytes) == (13, 590)
    assert tracker.ack_ms == {5: 10, 104: 3}
    assert tracker.ranges == {TP: PartitionRange(13, 20, 49)}


PARTITION = TopicPartition("t-1", 2)
WRITTEN = OpenTransaction(Transaction("app/0-ü", 2**40, 7), frozenset({PARTITION, TopicPartition("u", 0)}))
COUNTS = (1, 2, 3, 4, 5, 6, 7)
RANGES = {PARTITION: PartitionRange(3, 10, 12)}
ACK_MS = {4: 2, 96: 1}


@pytest.mark.parametrize(
    "outcome",
    [
        TaskOutcome(*COUNTS),
        TaskOutcome(*COUNTS, RANGES, ACK_MS, 5, "row 7 of this task is too large"),
        TaskOutcome(*COUNTS, RANGES, ACK_MS, transaction=TaskTransaction(open=WRITTEN)),
    ],
)
def test_an_outcome_arrives_whole(outcome: TaskOutcome) -> None:
    assert outcome_of(outcome.to_json()) == outcome


@with_each(
    "failure",
    [
        SinkWriteError("no answer"),
        UnwritableRowsError("row 7 is too large: ü", cause_class="RowTooLargeError", column="value", is_permanent=True),
        SinkWriteError(
            "refused", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="a\nb", partition=3, option="kafka.acks"
        ),
    ],
)
def test_failure_of_a_task_arrives_whole(failure: SinkWriteError) -> None:
    found = outcome_of(TaskOutcome(failure=failure).to_json()).failure
    assert (type(found), str(found), vars(found)) == (type(failure), str(failure), vars(failure))


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_what_executors_return_is_never_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    for protocol in (0, pickle.HIGHEST_PROTOCOL):
        with pytest.raises(KafkaError, match="the message of a task cannot be read"):
            outcome_of(pickle.dumps(Hostile(touched), protocol).decode("latin-1"))
    assert not touched.exists()


@with_each("text", ["", "[]", "{}", "null", '{"counts": [1], "ranges": [], "ack_ms": [], "open": 1}'])
def test_another_message_is_refused_with_what_to_check(text: str) -> None:
    with pytest.raises(KafkaError, match="same release of kafkalite"):
        outcome_of(text)
