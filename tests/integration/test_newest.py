"""The newest records of a topic, within their limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.common.errors import UnknownTopicOrPartitionError
from kafka_sink.consumer.fetched_partition import ConsumedRecord
from kafka_sink.consumer.log_reader import PeekLimits, newest_records
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.fakes.clock import FakeClock

PARTITIONS = 3
RECORDS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=2, auto_create_topics=False) as running:
        running.create_topic("t", PARTITIONS)
        running.create_topic("appended", 1, configs={"message.timestamp.type": "LogAppendTime"})
        with KafkaProducer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for number in range(RECORDS):
                value = b"%d" % number
                producer.send(ProducerRecord("t", value, partition=number % PARTITIONS, timestamp=1000 + number))
            producer.send(ProducerRecord("appended", b"x", timestamp=1000))
        yield running


def newest(
    cluster: EmbeddedCluster, count: int, limits: PeekLimits | None = None, topic: str = "t"
) -> list[ConsumedRecord]:
    # A property of producers alone, as the options of a write have.
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "100"}
    return newest_records(properties, topic, count, limits or PeekLimits())


@pytest.mark.behaviour("Log reader", "peek returns the records with the latest timestamps, the newest last")
@pytest.mark.parametrize("count", [1, 7, 20, RECORDS, 1000])
def test_records_with_the_latest_timestamps(cluster: EmbeddedCluster, count: int) -> None:
    expected = list(range(RECORDS))[-count:]
    assert [int(record.value or b"") for record in newest(cluster, count)] == expected


def test_a_producers_limit_of_answers_does_not_hinder(cluster: EmbeddedCluster) -> None:
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "receive.message.max.bytes": "1000000"}
    assert len(newest_records(properties, "t", 5, PeekLimits())) == 5


@pytest.mark.behaviour("Log reader", "peek returns the records with the latest timestamps, the newest last")
def test_times_decide_and_not_offsets(cluster: EmbeddedCluster) -> None:
    """The partition with the newest records has the fewest."""
    cluster.create_topic("skewed", 2)
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(20):
            producer.send(ProducerRecord("skewed", b"old", partition=0, timestamp=number))
        for number in range(3):
            producer.send(ProducerRecord("skewed", b"new", partition=1, timestamp=1000 + number))
    assert [(each.value, each.timestamp) for each in newest(cluster, 4, topic="skewed")] == [
        (b"old", 19), (b"new", 1000), (b"new", 1001), (b"new", 1002),
    ]  # fmt: skip


@pytest.mark.behaviour("Log reader", "consume prints the newest records, or those from a time on")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--newest", "4"], [56, 57, 58, 59]),
        (["--time", "1057"], [57, 58, 59]),
        (["--time", "1970-01-01T00:00:01.058", "--partition", "1"], [58]),
        (["--time", "1970-01-02"], []),
    ],
)
def test_consume_begins_at_the_newest_or_a_time(
    cluster: EmbeddedCluster, arguments: list[str], expected: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["consume", "t", *arguments, "--bootstrap-server", cluster.bootstrap_servers]) == 0
    assert sorted(int(json.loads(line)["value"]) for line in capsys.readouterr().out.splitlines()) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--newest", "4", "--partition", "0"], "--newest and --partition exclude each other"),
        (["--time", "5", "--offset", "0"], "--offset and --time exclude each other"),
        (["--time", "soon"], "'soon': expected ms since 1970, or a time such as 2026-01-31T12:00:00Z"),
    ],
)
def test_consume_refuses_two_starts(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "t", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_kind_of_timestamp_is_known(cluster: EmbeddedCluster) -> None:
    (appended,) = newest(cluster, 5, topic="appended")
    assert appended.is_log_append_time
    assert appended.timestamp > 1000
    assert not newest(cluster, 1)[0].is_log_append_time


@pytest.mark.behaviour("Log reader", "peek stops, with a warning, after the limit of bytes or of time")
def test_bytes_are_limited(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    assert len(newest(cluster, 50, PeekLimits(max_bytes=10))) < 10
    assert any("stopped after 30" in message and "bytes" in message for message in caplog.messages)


@pytest.mark.behaviour("Log reader", "peek stops, with a warning, after the limit of bytes or of time")
def test_time_is_limited(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    class LateClock(FakeClock):
        """A second passes at every look."""

        def monotonic_ms(self) -> int:
            self.now_ms += 1000
            return self.now_ms

    properties = {"bootstrap.servers": cluster.bootstrap_servers}
    found = newest_records(properties, "t", 50, PeekLimits(timeout_ms=20_000), LateClock())
    assert len(found) < 50
    assert "stopped after 20000 ms" in caplog.text


def test_missing_topic_is_an_error(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        newest(cluster, 1, topic="missing")
