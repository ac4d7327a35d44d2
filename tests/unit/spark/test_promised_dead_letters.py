"""Promises of docs/dead-letters.md about the rows of a task that cannot be written, except their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.errors import SinkWriteError
from kafka_sink.producer.topic_limits import TimeLimit, TopicLimits
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task import dead_letters
from kafka_sink.spark.task.dead_letters import HEADERS_TYPE, PREFIX
from kafka_sink.spark.task.task_writer import write_task
from kafka_sink.spark.write_spec import WriteSpec
from tests.support.readback import Message, read_topic

ROWS, DEAD = "rows", "rejected"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        for topic in (ROWS, DEAD):
            cluster.create_topic(topic, 1)
        yield cluster


def spec_of(cluster: EmbeddedCluster, **more: str) -> WriteSpec:
    given = {"topic": ROWS, "deadLetterTopic": DEAD, **{name.replace("_", "."): text for name, text in more.items()}}
    return parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, **given}).spec


def rows_of(*partitions: int | None, **columns: pa.Array) -> pa.RecordBatch:
    values = pa.array([f"v{row}" for row in range(len(partitions))])
    given = {"value": values, "partition": pa.array(partitions, pa.int32()), **columns}
    return pa.record_batch(list(given.values()), names=list(given))


def letter_of(cluster: EmbeddedCluster) -> tuple[Message, dict[str, str]]:
    """The only dead letter, and its headers without the prefix."""
    (letter,) = read_topic(cluster.bootstrap_servers, DEAD)
    return letter, {name.removeprefix(PREFIX): (value or b"").decode() for name, value in letter.headers}


@pytest.mark.behaviour("Dead letters", "A row that cannot be written goes to the dead letter topic, with the reason")
def test_refused_dead_letter_fails_the_task_with_the_cause(cluster: EmbeddedCluster) -> None:
    with (
        set_fault(cluster.faults, f"produce:topic={DEAD},error=topic_authorization_failed"),
        pytest.raises(SinkWriteError, match=r"grant WRITE on the topic .*1 rows were acknow") as caught,
    ):
        write_task(iter([rows_of(None, 7)]), spec_of(cluster))
    assert (caught.value.topic, caught.value.partition) == (DEAD, 0)


@pytest.mark.behaviour("Dead letters", "What is too large for a dead letter is cut, and its headers say so")
def test_headers_that_are_too_large_alone_are_left_out(cluster: EmbeddedCluster) -> None:
    own = pa.array([[{"key": "own", "value": b"h" * 9000}] * 2, None], HEADERS_TYPE)
    commit = write_task(iter([rows_of(None, None, headers=own)]), spec_of(cluster, kafka_max_request_size="8000"))
    assert (commit.rows_acked, commit.bad_rows) == (1, 1)
    letter, headers = letter_of(cluster)
    assert (letter.value, headers["reason"], headers["headers.omitted"]) == (b"v0", "too-large", "2")
    assert not {"own", "value.size"} & headers.keys()


@pytest.mark.behaviour("Dead letters", "What is too large for a dead letter is cut, and its headers say so")
def test_a_dead_letter_fits_into_buffer_memory(cluster: EmbeddedCluster) -> None:
    rows = rows_of(None, None)
    rows = rows.set_column(0, "value", pa.array(["v" * 60_000, "w"]))
    commit = write_task(iter([rows]), spec_of(cluster, kafka_buffer_memory="40000"))
    assert (commit.rows_acked, commit.bad_rows) == (1, 1)
    letter, headers = letter_of(cluster)
    assert (letter.value, headers["value.size"]) == (b"v" * 5000, "60000")


@pytest.mark.behaviour(
    "Dead letters", "A dead letter has key, value (as JSON if it is a struct) and headers of the row"
)
@pytest.mark.parametrize(
    ("properties", "numbered", "query", "batch"),
    [
        ({"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "42"}, {}, "q-1", "42"),
        ({}, {"txnAppId": "app", "txnVersion": "7", "progressTopic": ROWS}, None, "7"),
        ({}, {}, None, None),
    ],
)
def test_a_dead_letter_names_its_batch_and_its_task(
    cluster: EmbeddedCluster,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    numbered: dict[str, str],
    query: str | None,
    batch: str | None,
) -> None:
    task = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 3, attemptNumber=lambda: 2)
    monkeypatch.setattr(dead_letters, "TaskContext", SimpleNamespace(get=lambda: task))
    write_task(iter([rows_of(7)]), spec_of(cluster, **numbered))
    _, headers = letter_of(cluster)
    assert (headers.get("query.id"), headers.get("batch.id")) == (query, batch)
    assert (headers["task"], headers["attempt"], headers["row"]) == ("3", "2", "0")


@pytest.mark.behaviour("Exactly once: atomic", "A stage that Spark runs again in another order places each row alike")
def test_time_that_passes_refuses_no_row_that_was_placed(cluster: EmbeddedCluster) -> None:
    limits = TopicLimits(before=TimeLimit("message.timestamp.before.max.ms", 1000), needs_key=True)
    spec = replace(spec_of(cluster), limits={ROWS: limits}).placed()
    assert spec.limits == {ROWS: TopicLimits(needs_key=True)}
    failing = parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": ROWS}).spec
    assert replace(failing, limits={ROWS: limits}).placed().limits == {ROWS: limits}


def test_dead_letter_topic_is_searched_for_lost_ends(cluster: EmbeddedCluster) -> None:
    assert spec_of(cluster).topics == {ROWS, DEAD}
