"""Admin clients on the embedded broker: confluent-kafka, kafka-python, our own and its commands.

Java's tools are in ``compat/test_admin_tools_on_broker.py``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
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

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.admin import AdminClient as OurClient
from kafka_sink.common.errors import ApiError, ErrorCode

LIMIT_S = 60.0


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


@pytest.mark.behaviour("Admin APIs", "confluent-kafka changes settings")
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
    assert broker["num.partitions"].value == "1" and broker["num.partitions"].is_read_only
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


@pytest.mark.behaviour("Admin APIs", "kafka-python's admin client works")
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


def kafkalite(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything that was printed."""
    code = run([*arguments, "--bootstrap-server", cluster.bootstrap_servers])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


@pytest.mark.behaviour("Admin APIs", "Our commands change topics and move leaders")
def test_our_commands_change_topics_and_move_leaders(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("ours", 1, replication_factor=2, configs={"segment.bytes": "4096"})
    changes = ("--config", "retention.ms=5000", "--delete-config", "segment.bytes", "--partitions", "3")
    assert kafkalite(cluster, capsys, "topics", "alter", "ours", *changes) == (0, "altered ours\n")
    code, text = kafkalite(cluster, capsys, "topics", "describe", "ours", "--configs", "--json")
    configs = json.loads(text)[0]["configs"]
    assert code == 0 and configs["retention.ms"] == {"value": "5000", "source": "DYNAMIC_TOPIC_CONFIG"}
    assert configs["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    assert "retention.ms" in kafkalite(cluster, capsys, "topics", "describe", "ours", "--configs")[1]
    for node_id in (1, 2, 2):
        moved = kafkalite(cluster, capsys, "topics", "move-leader", "ours", "0", str(node_id))
        assert moved == (0, f"broker {node_id} leads ours-0\n")
        with OurClient(cluster.bootstrap_servers) as admin:
            leader = admin.describe_topics(["ours"])["ours"].partitions[0].leader
        assert leader is not None and leader.id == node_id


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["alter", "here"], 2, "Nothing to change"),
        (["alter", "here", "--config", "retention.mss=1"], 1, "did you mean retention.ms?"),
        (["alter", "here", "--config", "retention.ms=x"], 1, "'x' is not a whole number"),
        (["alter", "here", "--partitions", "1"], 1, "it has more already (2)"),
        (["alter", "nowhere", "--partitions", "9"], 1, "topic 'nowhere' does not exist"),
        (["move-leader", "here", "0", "7"], 1, "broker 7 is not a replica of here-0"),
        (["move-leader", "here", "5", "1"], 1, "there is no partition here-5"),
    ],
)
def test_refused_topic_changes_say_why(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str
) -> None:
    with contextlib.suppress(ApiError):
        cluster.create_topic("here", 2, replication_factor=2)
    found = kafkalite(cluster, capsys, "topics", *arguments, "--timeout", "3")
    assert found[0] == code and text in found[1]


HOSTILE = ["..", ".", "", "a/b", "../../etc/x", "x" * 250, "naïve", "a\0b", "/tmp/x", "a b"]


@pytest.mark.behaviour("Admin APIs", "No topic name makes a file outside the data directory")
def test_no_name_makes_a_file_outside_the_data_directory(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path / "in" / "data") as cluster, OurClient(cluster.bootstrap_servers) as admin:
        before = sorted(str(path) for path in tmp_path.rglob("*"))
        for name in HOSTILE:
            with pytest.raises(ApiError) as caught:
                admin.create_topic(name)
            assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION, name
            for change in (
                lambda name=name: admin.add_partitions(name, 5),
                lambda name=name: admin.alter_topic_configs(name, {"retention.ms": "1"}),
                lambda name=name: admin.topic_configs([name]),
                lambda name=name: admin.delete_topics([name]),
            ):
                with pytest.raises(ApiError):
                    change()
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before
        for partitions, code in (
            (0, ErrorCode.INVALID_PARTITIONS),
            (-5, ErrorCode.INVALID_PARTITIONS),
            (2 * 10**9, ErrorCode.POLICY_VIOLATION),
        ):
            with pytest.raises(ApiError) as caught:
                admin.create_topic("legal", partitions)
            assert caught.value.code is code


@pytest.mark.behaviour("Admin APIs", "A change of settings holds at once for a running log, and after a restart")
def test_a_running_log_keeps_to_the_settings_it_is_given(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster, OurClient(cluster.bootstrap_servers) as admin:
        cluster.create_topic("rolls", 1)

        def segments_after(records: int) -> int:
            with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                for _ in range(records):
                    producer.send(ProducerRecord("rolls", b"x" * 1000)).result()
            return len(list((tmp_path / "logs" / "rolls-0").glob("*.log")))

        assert segments_after(20) == 1
        admin.alter_topic_configs("rolls", {"segment.bytes": "4096"})
        assert segments_after(20) >= 5
