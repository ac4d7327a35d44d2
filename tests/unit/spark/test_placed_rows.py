"""Rows of an atomic write, between the task that assigns partitions and the task that writes: no row, number or count
is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.producer.plugins.partitioner import murmur2
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.dead_letters import PREFIX
from kafka_sink.spark.task.placing import with_partitions
from kafka_sink.spark.task.task_outcome import TaskOutcome
from kafka_sink.spark.task.task_writer import write_task
from kafka_sink.spark.write_spec import WriteSpec
from tests.support.readback import Message, read_topic

WIDE, NARROW, DEAD = "wide", "narrow", "rejected"
#: The number of partitions of each topic.
COUNTS = {WIDE: 6, NARROW: 2, DEAD: 4}
NOW_MS = 1_700_000_000_000


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        for topic, count in COUNTS.items():
            cluster.create_topic(topic, count)
        yield cluster


def spec_of(cluster: EmbeddedCluster, **options: str) -> WriteSpec:
    return parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}).spec


def shuffled(placed: Sequence[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """*placed* as Spark shuffles them to tasks: all rows of a partition are in one task."""
    rows = pa.Table.from_batches(placed)
    partitions = np.array(rows["partition"].to_pylist())
    return [rows.take(np.flatnonzero(partitions % 2 == task)).combine_chunks().to_batches() for task in range(2)]


def written(spec: WriteSpec, *batches: pa.RecordBatch) -> list[TaskOutcome]:
    """The outcomes of the tasks that write *batches*, whose partitions one task has assigned."""
    placed = list(with_partitions(iter(batches), spec, NOW_MS))
    return [write_task(iter(rows), spec.placed()) for rows in shuffled(placed)]


def read(cluster: EmbeddedCluster, topic: str) -> list[Message]:
    return sorted(read_topic(cluster.bootstrap_servers, topic), key=lambda message: message.value or b"")


def header(message: Message, name: str) -> str:
    return (dict(message.headers)[PREFIX + name] or b"").decode()


def rows_of(numbers: Sequence[int], partitions: Sequence[int | None], topics: Sequence[str]) -> pa.RecordBatch:
    columns = [
        pa.array([f"v{number:02}" for number in numbers]),
        pa.array([f"k{number}" for number in numbers]),
        pa.array(partitions, pa.int32()),
        pa.array(topics),
    ]
    return pa.record_batch(columns, names=["value", "key", "partition", "topic"])


@pytest.mark.behaviour("Exactly once: atomic", "A stage that Spark runs again in another order places each row alike")
def test_rows_of_several_topics_are_in_their_own_partitions(cluster: EmbeddedCluster) -> None:
    topics = [WIDE, NARROW] * 12
    named = [5 if topic == WIDE and number % 4 == 0 else None for number, topic in enumerate(topics)]
    outcomes = written(spec_of(cluster), rows_of(range(24), named, topics))
    assert sum(outcome.rows_acked for outcome in outcomes) == 24
    for at, topic in enumerate((WIDE, NARROW)):
        found = read(cluster, topic)
        assert [message.value for message in found] == [f"v{number:02}".encode() for number in range(at, 24, 2)]
        assert {message.partition for message in found} <= set(range(COUNTS[topic]))
        if topic == WIDE:
            assert all(message.partition == 5 for message in found[::2])
            assert len({message.partition for message in found}) > 3


def bad_rows() -> tuple[list[pa.RecordBatch], dict[int, int]]:
    """Two batches of rows of two topics, and the missing partitions of the rows that cannot be written, by row number
    in the task."""
    topics = [NARROW, WIDE, WIDE, NARROW] * 8
    bad = dict.fromkeys((3, 8, 13, 21, 22, 30), 9) | {4: 3, 27: 3}
    named = [bad.get(number, 5 if topic == WIDE else None) for number, topic in enumerate(topics)]
    rows = rows_of(range(32), named, topics)
    return [rows.slice(0, 12), rows.slice(12)], bad


@pytest.mark.behaviour("Dead letters", "Rows of several problems and batches have their numbers in the task")
def test_placed_dead_letters_have_the_numbers_of_their_rows(cluster: EmbeddedCluster) -> None:
    batches, bad = bad_rows()
    outcomes = written(spec_of(cluster, deadLetterTopic=DEAD), *batches)
    letters = read(cluster, DEAD)
    assert [int(header(letter, "row")) for letter in letters] == sorted(bad)
    assert [letter.value for letter in letters] == [f"v{number:02}".encode() for number in sorted(bad)]
    assert [int(header(letter, "partition")) for letter in letters] == [bad[number] for number in sorted(bad)]
    by_key = [(murmur2(letter.key or b"") & 0x7FFFFFFF) % COUNTS[DEAD] for letter in letters]
    assert [letter.partition for letter in letters] == by_key
    assert len(set(by_key)) > 2
    good = [message.value or b"" for topic in (WIDE, NARROW) for message in read(cluster, topic)]
    assert sorted(good) == [f"v{number:02}".encode() for number in range(32) if number not in bad]
    assert sum(outcome.rows_in for outcome in outcomes) == 32
    assert sum(outcome.rows_acked for outcome in outcomes) == 32 - len(bad)
    assert sum(outcome.bad_rows for outcome in outcomes) == len(bad)
    of_letters = [part for outcome in outcomes for at, part in outcome.ranges.items() if at.topic == DEAD]
    assert sum(part.rows for part in of_letters) == len(bad)


@pytest.mark.behaviour(
    "Dead letters", "onBadRow=drop leaves rows out, and counts them; onBadRow=fail fails at the first"
)
def test_placed_rows_that_are_dropped_are_counted_each(cluster: EmbeddedCluster) -> None:
    batches, bad = bad_rows()
    outcomes = written(spec_of(cluster, onBadRow="drop"), *batches)
    # Bad rows are assigned to partition 0.
    assert [outcome.bad_rows for outcome in outcomes] == [len(bad), 0]
    assert sum(outcome.rows_in for outcome in outcomes) == 32
    assert sum(outcome.rows_acked for outcome in outcomes) == 32 - len(bad)
    assert outcomes[0].first_bad_row.startswith("row 3 of this task names partition 9 of topic narrow")
