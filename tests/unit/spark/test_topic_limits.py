"""Rows that the configuration of their topic refuses are bad rows, before any of them is sent."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.errors import SinkWriteError
from kafka_sink.producer.topic_limits import TimeLimit, TopicLimits
from kafka_sink.spark.driver import before_write
from kafka_sink.spark.driver.before_write import limits_of
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.dead_letters import PREFIX
from kafka_sink.spark.task.task_writer import write_task
from kafka_sink.spark.write_spec import ProducerSpec, WriteSpec, producer_spec
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each
from tests.support.readback import read_topic

NUMBERS = itertools.count()
HOUR_MS = 3_600_000
NOW = datetime.now(UTC)
NOISE = random.Random(1).randbytes(4000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        yield cluster


def asked_options(cluster: EmbeddedCluster, settings: dict[str, str], **more: str) -> WriteSpec:
    """The options of a task that writes to new topics, after the driver has requested their configuration."""
    number = next(NUMBERS)
    rows, dead = f"rows-{number}", more.pop("dead", f"rejected-{number}")
    cluster.create_topic(rows, 1, configs=settings)
    if dead == f"rejected-{number}":
        cluster.create_topic(dead, 1)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": rows}
    given |= {"deadLetterTopic": dead} if dead else {}
    options = parse_options({**given, **{name.replace("_", "."): value for name, value in more.items()}})
    return replace(options.spec, limits=limits_of(options.spec.producer, rows, *filter(None, [dead])))


def at(**changes: int) -> datetime:
    return NOW.replace(**changes)  # type: ignore[arg-type]


REFUSED: list[tuple[dict[str, str], dict[str, Any], dict[str, str], list[int], str, str]] = [
    (
        {},
        {"timestamp": [NOW, at(year=9999), None, NOW, at(year=2100)]},
        {},
        [1, 4],
        "invalid-timestamp",
        f"{HOUR_MS} ms after the time of the write, which message.timestamp.after.max.ms of topic",
    ),
    (
        {"message.timestamp.before.max.ms": "1000"},
        {"timestamp": [NOW.replace(year=2001), None, None, NOW.replace(year=2002), None]},
        {},
        [0, 3],
        "invalid-timestamp",
        "1000 ms before the time of the write, which message.timestamp.before.max.ms of topic",
    ),
    (
        {"cleanup.policy": "delete,compact"},
        {"key": ["a", None, "c", "d", None]},
        {},
        [1, 4],
        "missing-key",
        "has no key, and topic",
    ),
    ({"cleanup.policy": "compact"}, {}, {}, [0, 1, 2, 3, 4], "missing-key", "fill the column key"),
    (
        {"max.message.bytes": "1500"},
        {"key": ["a", "x" * 3000, None, "x" * 1400, "x" * 1500]},
        {},
        [1, 4],
        "too-large",
        " bytes in a batch of its own, more than max.message.bytes of the topic (1500 bytes)",
    ),
    (
        {"max.message.bytes": "1500"},
        {"key": [b"a", b"x" * 3000, NOISE[:1400], NOISE[:3000], NOISE]},
        {"kafka_compression_type": "zstd"},
        [3, 4],
        "too-large",
        "more than max.message.bytes of the topic (1500 bytes)",
    ),
]


def rows_of(columns: dict[str, Any]) -> pa.RecordBatch:
    values = {"value": pa.array([f"v{number}" for number in range(5)])}
    values |= {name: pa.array(given) for name, given in columns.items()}
    return pa.record_batch(list(values.values()), names=list(values))


@pytest.mark.behaviour("Dead letters", "What the settings of a topic refuse is a bad row before it is sent")
@pytest.mark.parametrize(("settings", "columns", "options", "bad", "reason", "message"), REFUSED)
def test_rows_that_a_setting_refuses_are_dead_letters(
    cluster: EmbeddedCluster,
    settings: dict[str, str],
    columns: dict[str, Any],
    options: dict[str, str],
    bad: list[int],
    reason: str,
    message: str,
) -> None:
    given = asked_options(cluster, settings, **options)
    commit = write_task(iter([rows_of(columns)]), given)
    assert (commit.rows_in, commit.rows_acked, commit.bad_rows) == (5, 5 - len(bad), len(bad))
    assert message in commit.first_bad_row
    written = read_topic(cluster.bootstrap_servers, str(given.topic))
    assert [each.value for each in written] == [b"v%d" % row for row in range(5) if row not in bad]
    letters = read_topic(cluster.bootstrap_servers, str(given.dead_letter_topic))
    headers = [dict(letter.headers) for letter in letters]
    assert [int(each[f"{PREFIX}row"] or b"") for each in headers] == bad
    assert {each[f"{PREFIX}reason"] for each in headers} == {reason.encode()}


def test_a_row_that_a_setting_refuses_is_named_in_the_error(cluster: EmbeddedCluster) -> None:
    options = asked_options(cluster, {"cleanup.policy": "compact"}, dead="")
    with pytest.raises(SinkWriteError, match=r"row 3 of this task has no key.*0 rows were acknowledged"):
        write_task(iter([rows_of({"key": ["a", "b", "c", None, "e"]})]), options)
    assert read_topic(cluster.bootstrap_servers, str(options.topic)) == []


def test_a_dead_letter_fits_into_its_own_topic(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("narrow", 1, configs={"max.message.bytes": "2000"})
    options = asked_options(cluster, {"max.message.bytes": "1500"}, dead="narrow")
    assert write_task(iter([rows_of({"key": ["x" * 9000] * 5})]), options).bad_rows == 5
    headers = [dict(each.headers) for each in read_topic(cluster.bootstrap_servers, "narrow")]
    assert {each[f"{PREFIX}key.size"] for each in headers} == {b"9000"}


@pytest.mark.behaviour("Batch split", "Batches are as small as the topic's settings say")
@pytest.mark.parametrize(("codec", "lines"), [("none", 0), ("lz4", 1)])
def test_batches_are_as_small_as_the_topic_takes(
    cluster: EmbeddedCluster, codec: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    options = asked_options(cluster, {"max.message.bytes": "1500"}, dead="", kafka_compression_type=codec)
    noise = random.Random(2)
    rows = pa.record_batch({"value": pa.array([noise.randbytes(100) for _ in range(3000)])})
    assert write_task(iter([rows, rows]), options).rows_acked == 6000
    assert sum("is split and sent again" in message for message in caplog.messages) == lines


@with_each(
    ("settings", "expected"),
    [
        ({}, TopicLimits()),
        ({"max.message.bytes": "7", "cleanup.policy": "compact,delete"}, TopicLimits(7, None, None, True)),
        (
            {"message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": "5"},
            TopicLimits(after=TimeLimit("message.timestamp.after.max.ms", 5)),
        ),
        (
            {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "5"},
            TopicLimits(),
        ),
        (
            {"message.timestamp.difference.max.ms": "9", "message.timestamp.after.max.ms": "5"},
            TopicLimits(
                before=TimeLimit("message.timestamp.difference.max.ms", 9),
                after=TimeLimit("message.timestamp.after.max.ms", 5),
            ),
        ),
    ],
)
def test_the_limits_that_settings_set(settings: dict[str, str], expected: TopicLimits) -> None:
    assert TopicLimits.of(settings) == expected


def test_settings_that_nobody_shows_are_unknown(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("hidden", 1)
    producer = producer_spec({"bootstrap.servers": cluster.bootstrap_servers})
    with set_fault(cluster.faults, "describe_configs:error=unsupported_version"):
        assert limits_of(producer, "hidden") == {}


def test_brokers_that_cannot_be_asked_are_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    asked: list[int] = []

    def refuse(_: object) -> None:
        asked.append(clock.monotonic_ms())
        raise OSError("no such file")

    monkeypatch.setattr(before_write, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr("kafka_sink.spark.task.shared_client.shared_client", refuse)
    for advance_ms in (0, 0, 59_999, 1):
        clock.advance(advance_ms)
        assert limits_of(producer_spec({"bootstrap.servers": "nowhere:1"}), "t") == {}
    assert len(asked) == 2


def test_answers_of_the_latest_topics_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(producer: ProducerSpec) -> None:
        asked.extend(producer.bootstrap_servers)
        raise OSError("no such file")

    monkeypatch.setattr(before_write, "SYSTEM_CLOCK", FakeClock())
    monkeypatch.setattr("kafka_sink.spark.task.shared_client.shared_client", refuse)
    for server in (*range(1001), 1000, 1, 0):
        limits_of(producer_spec({"bootstrap.servers": f"latest-{server}:1"}), "t")
    assert asked == [f"latest-{server}:1" for server in (*range(1001), 0)]
