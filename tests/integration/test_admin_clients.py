"""Admin clients that we did not write, on the embedded broker: confluent-kafka and kafka-python. Java's tools are in
``compat/test_admin_tools_on_broker.py``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from kafka.admin import NewPartitions as PythonPartitions
from kafka.admin import NewTopic as PythonTopic

from kafka_sink import EmbeddedCluster

LIMIT_S = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=2) as running:
        yield running


@pytest.fixture(scope="module")
def confluent(cluster: EmbeddedCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def done(futures: dict[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return future.result(LIMIT_S)


def test_confluent_changes_settings(confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("settings", 2, 2, config={"retention.ms": "5000"})]))
    topic = ConfigResource(ResourceType.TOPIC, "settings")
    topic.add_incremental_config(ConfigEntry("segment.bytes", "4096", incremental_operation=AlterConfigOpType.SET))
    topic.add_incremental_config(ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE))
    done(confluent.incremental_alter_configs([topic]))
    configs = done(confluent.describe_configs([ConfigResource(ResourceType.TOPIC, "settings")]))
    assert configs["segment.bytes"].value == "4096"
    assert configs["segment.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert configs["retention.ms"].is_default
    broker = done(confluent.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["num.partitions"].value == "4" and broker["num.partitions"].is_read_only
    with pytest.raises(KafkaException, match="unknown option"):
        wrong = ConfigResource(ResourceType.TOPIC, "settings")
        wrong.add_incremental_config(ConfigEntry("no.such", "1", incremental_operation=AlterConfigOpType.SET))
        done(confluent.incremental_alter_configs([wrong]))


def test_confluent_adds_partitions_and_elects_leaders(cluster: EmbeddedCluster, confluent: AdminClient) -> None:
    done(confluent.create_topics([NewTopic("grows", 2, 2)]))
    done(confluent.create_partitions([NewPartitions("grows", 5)]))
    described = confluent.list_topics("grows", timeout=LIMIT_S).topics["grows"]
    assert len(described.partitions) == 5
    preferred = described.partitions[0].replicas[0]
    cluster.move_leader("grows", 0, 3 - preferred)
    assert confluent.list_topics("grows", timeout=LIMIT_S).topics["grows"].partitions[0].leader == 3 - preferred
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [TopicPartition("grows", 0)]).result(LIMIT_S)
    assert list(elected.values()) == [None]
    assert confluent.list_topics("grows", timeout=LIMIT_S).topics["grows"].partitions[0].leader == preferred
    with pytest.raises(KafkaException, match="it has more already"):
        done(confluent.create_partitions([NewPartitions("grows", 3)]))


def test_confluent_describes_the_cluster(confluent: AdminClient) -> None:
    described = confluent.describe_cluster().result(LIMIT_S)
    assert [node.id for node in described.nodes] == [1, 2]
    assert described.controller.id == 1


def test_kafka_python_does_it_all(cluster: EmbeddedCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        admin.create_topics([PythonTopic("python", 2, 2)])
        admin.create_partitions({"python": PythonPartitions(4)})
        admin.alter_configs([PythonResource(ConfigResourceType.TOPIC, "python", configs={"retention.ms": "7000"})])
        described = admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, "python")])
        assert "7000" in str(described)
        assert len(admin.describe_topics(["python"])[0]["partitions"]) == 4
        assert len(admin.describe_cluster()["brokers"]) == 2
    finally:
        admin.close()
