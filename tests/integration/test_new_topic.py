"""topicPartitions: a missing topic is created once, and nothing else is changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckReport, CheckTarget, ExactlyOnceTarget, NewTopicTarget
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.job_topics import ensure_topic


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=2, auto_create_topics=False) as running:
        yield running


def config(cluster: EmbeddedCluster) -> ProducerConfig:
    return producer_config.read({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "1"})


def shape(cluster: EmbeddedCluster, topic: str) -> tuple[int, int]:
    """Partitions and replicas of each."""
    with AdminClient(cluster.bootstrap_servers) as admin:
        partitions = admin.describe_topics([topic])[topic].partitions
        return len(partitions), len(partitions[0].replicas)


@pytest.mark.behaviour("Sink options and commit messages", "topicPartitions creates a missing topic, once")
def test_missing_topic_is_created_once(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    assert ensure_topic(config(cluster), "new", 3, 2)
    assert shape(cluster, "new") == (3, 2)
    assert not ensure_topic(config(cluster), "new", 3)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        assert not ensure_topic(config(cluster), "new", 7)
    assert "exists with 3 partitions and is not changed to 7" in caplog.text
    assert shape(cluster, "new") == (3, 2)


@pytest.mark.behaviour("Sink options and commit messages", "Jobs that create a topic at the same time all succeed")
def test_race_has_one_winner(cluster: EmbeddedCluster) -> None:
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda _: ensure_topic(config(cluster), "race", 5), range(6)))
    assert made.count(True) == 1
    assert shape(cluster, "race")[0] == 5
    with cluster.faults.on("create_topics", error=ErrorCode.TOPIC_ALREADY_EXISTS):
        assert not ensure_topic(config(cluster), "lost-race", 5)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "grant CREATE on the topic"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, "lower topicReplicationFactor"),
        (ErrorCode.POLICY_VIOLATION, "create.topic.policy"),
    ],
)
def test_refusal_says_what_to_do(cluster: EmbeddedCluster, code: ErrorCode, advice: str) -> None:
    with cluster.faults.on("create_topics", error=code), pytest.raises(ApiError, match=advice) as raised:
        ensure_topic(config(cluster), "refused", 1)
    assert raised.value.code is code


def check(cluster: EmbeddedCluster, new: NewTopicTarget, sink: ExactlyOnceTarget | None = None) -> CheckReport:
    target = CheckTarget({"bootstrap.servers": cluster.bootstrap_servers}, (new.name,), sink, "", (new,))
    return CheckReport(check_all(target, "here"))


@pytest.mark.behaviour("kafkalite check", "A check only validates the creation of a topic")
def test_check_of_a_topic_that_the_job_creates(cluster: EmbeddedCluster) -> None:
    new = NewTopicTarget("later", 4, 2)
    report = check(cluster, new, ExactlyOnceTarget("sink", "later"))
    assert report.is_ok, report
    (found,) = [each.found for each in report.findings if each.step == "topic"]
    assert found == "does not exist; the job creates it with 4 partitions"
    (problem,) = check(cluster, NewTopicTarget("later", 4, 3)).problems
    assert "INVALID_REPLICATION_FACTOR" in problem.found
    assert "topicReplicationFactor" in problem.what_to_do
    with AdminClient(cluster.bootstrap_servers) as admin:
        assert "later" not in admin.list_topics()
