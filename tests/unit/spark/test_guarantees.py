"""Options and messages of streams and numbered batches, without Spark and without a cluster."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.types import StructType

from kafka_sink.common.errors import ConfigError, KafkaError
from kafka_sink.exactly_once.model import ExactlyOnceError, Skipped
from kafka_sink.spark.data_source import KafkaliteExactlyOnceStreamWriter, KafkaliteStreamWriter
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.options import parse_arguments, parse_options
from kafka_sink.spark.task.task_outcome import TaskOutcome, TaskTransaction
from tests.support.cases import with_each

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t"}
EXACTLY_ONCE = {**REQUIRED, "deliveryguarantee": "exactly-once", "transactionalidprefix": "sink"}


@pytest.mark.behaviour("Sink options and commit messages", "Options that contradict each other are refused")
@with_each(
    ("options", "is_stream", "says"),
    [
        ({"deliveryguarantee": "exactly-once"}, True, "needs the name of the sink: set transactionalIdPrefix too"),
        ({"deliveryguarantee": "once"}, True, "deliveryGuarantee.*'once'.*at-least-once"),
        ({"txnappid": "a", "txnversion": "1"}, True, "option txnAppId is for batch writes"),
        (
            {"deliveryguarantee": "exactly-once"},
            False,
            "are for writeStream; to write each batch of a batch job exactly once, number the writes",
        ),
        ({"txnappid": "a"}, False, "txnAppId and txnVersion belong together"),
        ({"txnversion": "1"}, False, "txnAppId and txnVersion belong together"),
        ({"txnappid": "a", "txnversion": "-1"}, False, "txnVersion.*'-1'"),
        ({"progresstopic": "p"}, False, "progressTopic has no effect without"),
        (
            {"txnappid": "a", "txnversion": "1", "kafka.acks": "1"},
            False,
            "kafka.acks: '1' cannot be used with exactly-once",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], is_stream: bool, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_options({**REQUIRED, **options}, is_stream=is_stream)


def test_the_progress_needs_a_topic_where_rows_name_theirs() -> None:
    options = {name: value for name, value in EXACTLY_ONCE.items() if name != "topic"}
    with pytest.raises(ConfigError, match="set option progressTopic"):
        parse_options(options, is_stream=True)
    assert parse_options({**options, "progresstopic": "p"}, is_stream=True).progress_topic == "p"


def test_options_spark_adds_to_a_stream_are_ignored() -> None:
    parsed = parse_options({**EXACTLY_ONCE, "checkpointlocation": "/c", "queryname": "q"}, is_stream=True)
    assert parsed.transactional_id_prefix == "sink"
    assert parsed.spec.producer.transaction_timeout_ms is None
    timed = parse_options({**EXACTLY_ONCE, "kafka.transaction.timeout.ms": "60000"}, is_stream=True)
    assert timed.spec.producer.transaction_timeout_ms == 60_000


ROWS = StructType().add("value", "string")


def exactly_once_writer() -> KafkaliteExactlyOnceStreamWriter:
    write = prepared(ROWS, parse_options(EXACTLY_ONCE, is_stream=True))
    assert write.exactly_once is not None
    return KafkaliteExactlyOnceStreamWriter(write, write.exactly_once)


def make_outcome(version: int, skipped: Skipped | None = None) -> TaskOutcome:
    return TaskOutcome(transaction=TaskTransaction("query", version, skipped=skipped))


@pytest.mark.behaviour(
    "Sink options and commit messages", "An epoch of a continuous trigger is an error that says what is lost"
)
@pytest.mark.behaviour(
    "Progress and continuous triggers", "Every epoch of a continuous trigger is an error that says what is lost"
)
@pytest.mark.parametrize("guarantee", [REQUIRED, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_continuous_trigger_epoch_raises_error_about_lost_rows(guarantee: dict[str, str]) -> None:
    at_least_once = KafkaliteStreamWriter(prepared(ROWS, parse_options(REQUIRED)))
    writer = exactly_once_writer() if guarantee is EXACTLY_ONCE else at_least_once
    with pytest.raises(KafkaError, match=r"trigger\(continuous=…\) does not pass rows .* they are LOST"):
        writer.commit([None, None], 3)


@pytest.mark.behaviour(
    "Sink options and commit messages", "Messages of another version, or without a transaction, are never committed"
)
def test_messages_of_other_version_or_no_transaction_are_refused() -> None:
    writer = exactly_once_writer()
    for messages in ([make_outcome(version=4)], [TaskOutcome(rows_in=1, rows_acked=1)]):
        with pytest.raises(ExactlyOnceError, match="do not all belong to version 3"):
            writer.commit(messages, 3)
    with pytest.raises(KafkaError, match="1 of 2 tasks reported nothing"):
        writer.commit([make_outcome(version=3), None], 3)


@pytest.mark.behaviour(
    "Sink options and commit messages", "A version that was committed before needs no cluster, and says so"
)
def test_version_committed_before_needs_no_cluster_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    writer = exactly_once_writer()
    with caplog.at_level(logging.WARNING):
        for skipped in (Skipped(3, 3), Skipped(3, 3, "of the fog"), Skipped(3, 5)):
            writer.commit([make_outcome(3, skipped)], 3)
    same, unknown, older = caplog.messages
    assert "version 3 of sink was already committed, with the same rows: nothing was written" in same
    assert "it is not known whether these are the same rows, because of the fog" in unknown.lower()
    assert "version 3 of sink is older than version 5" in older
    assert "If version 3 was never committed, its rows are not in Kafka" in older


@pytest.mark.behaviour("Sink options and commit messages", "abort() touches nothing")
def test_abort_only_logs_the_finished_tasks(caplog: pytest.LogCaptureFixture) -> None:
    writer = exactly_once_writer()
    with caplog.at_level(logging.WARNING):
        writer.abort([make_outcome(version=3), None], 3)
    assert "1 of 2 tasks had finished" in caplog.text


def test_a_topic_is_an_option_or_an_argument_and_not_both() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    assert parse_arguments(options, {"topic": "orders", "txnAppId": None}).spec.topic == "orders"
    with pytest.raises(ConfigError, match=r"topic is set twice: as an argument \('orders'\) and in options"):
        parse_arguments({**options, "Topic": "others"}, {"topic": "orders"})
