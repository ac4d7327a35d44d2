"""The limits of a topic, at their edges: a row that the brokers accept is written, and any other is a bad row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.spark.driver.before_write import limits_of
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.dead_letters import HEADERS_TYPE
from kafka_sink.spark.task.task_outcome import TaskOutcome
from kafka_sink.spark.task.task_writer import write_task
from tests.support.readback import read_topic

pytestmark = pytest.mark.behaviour("Dead letters", "What the settings of a topic refuse is a bad row before it is sent")

DEAD = "rejected"
MOST = 1500
#: The overhead of a batch of one uncompressed record with a value of this size.
OVERHEAD = 70


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        yield cluster


def written(cluster: EmbeddedCluster, name: str, settings: dict[str, str], **columns: pa.Array) -> TaskOutcome:
    """The outcome of a task that writes *columns* to a new topic *name*."""
    cluster.create_topic(name, 1, configs=settings)
    cluster.create_topic(f"{name}-{DEAD}", 1)
    options = {"topic": name, "deadLetterTopic": f"{name}-{DEAD}", "kafka.compression.type": "none"}
    spec = parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}).spec
    spec = replace(spec, limits=limits_of(spec.producer, name, f"{name}-{DEAD}"))
    return write_task(iter([pa.record_batch(list(columns.values()), names=list(columns))]), spec)


def values_in(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    return [message.value or b"" for message in read_topic(cluster.bootstrap_servers, topic)]


def test_the_largest_record_that_a_topic_allows_is_written(cluster: EmbeddedCluster) -> None:
    sizes = (MOST - OVERHEAD, MOST - OVERHEAD + 1, 10)
    values = pa.array([b"v" * size for size in sizes])
    outcome = written(cluster, "largest", {"max.message.bytes": str(MOST)}, value=values)
    assert (outcome.rows_acked, outcome.bad_rows) == (2, 1)
    assert [len(value) for value in values_in(cluster, "largest")] == [sizes[0], sizes[2]]
    assert [len(value) for value in values_in(cluster, f"largest-{DEAD}")] == [sizes[1]]


def test_headers_count_for_the_size_of_a_record(cluster: EmbeddedCluster) -> None:
    headers = pa.array([None, [{"key": "h", "value": b"h" * MOST}], None], HEADERS_TYPE)
    values = pa.array([b"0", b"1", b"2"])
    outcome = written(cluster, "headers", {"max.message.bytes": str(MOST)}, value=values, headers=headers)
    assert (outcome.rows_acked, outcome.bad_rows) == (2, 1)
    assert values_in(cluster, "headers") == [b"0", b"2"]
    assert values_in(cluster, f"headers-{DEAD}") == [b"1"]


def test_timestamps_between_others_are_compared_too(cluster: EmbeddedCluster) -> None:
    now = datetime.now(UTC)
    times = pa.array([now, now.replace(year=2100, day=1), now, now.replace(year=2001, day=1), now])
    values = pa.array([b"0", b"1", b"2", b"3", b"4"])
    settings = {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"}
    outcome = written(cluster, "times", settings, value=values, timestamp=times)
    assert (outcome.rows_acked, outcome.bad_rows) == (3, 2)
    assert values_in(cluster, "times") == [b"0", b"2", b"4"]
    assert sorted(values_in(cluster, f"times-{DEAD}")) == [b"1", b"3"]
