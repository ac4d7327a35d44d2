"""Apache Kafka's own command line tools on the embedded broker."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.config import parse
from tests.support.acl_commands import acls_of
from tests.support.amounts import only_long
from tests.support.kafka_tools import run_kafka_tool
from tests.support.real_kafka import KAFKA_SCRIPT, TOOL_TIMEOUT_S, run_script, skip_without_kafka
from tests.support.secure_cluster import users

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    skip_without_kafka()
    with EmbeddedCluster(nodes=2) as running:
        yield running


def tool(cluster: EmbeddedCluster, class_name: str, *arguments: str) -> str:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    return run_script("run", class_name, *server, *arguments, timeout_s=TOOL_TIMEOUT_S)


@only_long
@pytest.mark.behaviour("Kafka's Java clients", "Kafka's own tools change topics, settings and leaders")
@pytest.mark.behaviour("Admin APIs", "Kafka's own tools change topics, settings and leaders")
def test_topics_settings_and_leaders_by_kafkas_tools(cluster: EmbeddedCluster) -> None:
    tool(cluster, TOPICS, "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "2")
    tool(cluster, TOPICS, "--alter", "--topic", "t", "--partitions", "3")
    topic = ("--entity-type", "topics", "--entity-name", "t")
    tool(cluster, CONFIGS, *topic, "--alter", "--add-config", "retention.ms=5000,segment.bytes=4096")
    tool(cluster, CONFIGS, *topic, "--alter", "--delete-config", "segment.bytes")
    everyone = ("--entity-type", "brokers", "--entity-default")
    tool(cluster, CONFIGS, *everyone, "--alter", "--add-config", "log.segment.bytes=8192")
    described = tool(cluster, TOPICS, "--describe", "--topic", "t")
    assert "PartitionCount: 3" in described and "retention.ms=5000" in described
    settings = tool(cluster, CONFIGS, *topic, "--describe", "--all")
    assert "retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000" in settings
    assert (
        "segment.bytes=8192 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=8192" in settings
    )


def test_leaders_are_elected_by_kafkas_tool(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1, replication_factor=2)
    with AdminClient(cluster.bootstrap_servers) as admin:

        def partition() -> PartitionInfo:
            return admin.describe_topics(["t"])["t"].partitions[0]

        preferred, other = (node.id for node in partition().replicas)
        cluster.move_leader("t", 0, other)
        asked = ("--election-type", "preferred", "--topic", "t", "--partition", "0")
        printed = tool(cluster, ELECTION, *asked)
        assert "Successfully completed leader election (PREFERRED) for partitions t-0" in printed
        leader = partition().leader
        assert leader is not None and leader.id == preferred


@only_long
@pytest.mark.behaviour("Kafka's Java clients", "kafka-acls adds, lists and removes ACLs, and shows what it may not do")
@pytest.mark.behaviour("ACLs", "kafka-acls adds, lists and removes ACLs, and shows what it may not do")
def test_acls_by_kafkas_tool(tmp_path: Path) -> None:
    skip_without_kafka()
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": users(alice="a"),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a";'
    client = tmp_path / "client.properties"
    client.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    with EmbeddedCluster(config=parse(BrokerConfig, properties)) as cluster:
        writer = ("--allow-principal", "User:alice", "--producer", "--topic", "t")
        tool(cluster, ACLS, "--add", *writer)
        denied = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "Read", "--group", "g")
        tool(cluster, ACLS, "--add", *denied, "--resource-pattern-type", "prefixed")
        listed = tool(cluster, ACLS, "--list")
        found = re.findall(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)", listed)
        assert sorted(found) == [
            ("User:alice", "*", "CREATE", "ALLOW"),
            ("User:alice", "*", "DESCRIBE", "ALLOW"),
            ("User:alice", "*", "WRITE", "ALLOW"),
            ("User:bob", "10.0.0.1", "READ", "DENY"),
        ]
        assert "resourceType=GROUP, name=g, patternType=PREFIXED" in listed
        tool(cluster, ACLS, "--remove", "--force", *writer)
        assert [acl.principal for acl in cluster.describe_acls()] == ["User:bob"]
        server = ("--bootstrap-server", cluster.nodes[1]["SASL_PLAINTEXT"].address, "--command-config", str(client))
        done = subprocess.run(
            ["bash", str(KAFKA_SCRIPT), "run", ACLS, *server, "--add", *writer],
            capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
        )  # fmt: skip
        assert "ClusterAuthorizationException" in done.stdout + done.stderr
        assert len(cluster.describe_acls()) == 1


@pytest.mark.behaviour("ACLs", "kafka-acls runs what 'kafkalite check --print-acls' prints")
def test_printed_commands_are_those_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    skip_without_kafka()
    with EmbeddedCluster(
        config=BrokerConfig(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    ) as cluster:
        job = ("orders", "--topic-partitions", "2", "--exactly-once", "orders-sink", "--print-acls", "User:job")
        assert run(["check", *job, "--bootstrap-server", cluster.bootstrap_servers]) == 0
        printed = capsys.readouterr().out
        for line in printed.splitlines():
            run_kafka_tool(ACLS, *shlex.split(line)[1:])
        assert set(cluster.describe_acls()) == set(acls_of(printed))
