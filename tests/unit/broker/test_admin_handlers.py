"""Configurations, partitions and leaders by requests, with the error codes of a real Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.cluster import DescribeClusterResponse
from kafka_sink.protocol.messages.replicas import AlterPartitionReassignmentsResponse, ElectLeadersResponse
from tests.fakes.broker_node import DIRECTORY, BrokerNode
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def node(nodes: int = 1, **properties: Any) -> BrokerNode:
    made = BrokerNode(nodes, **properties)
    made.cluster.create_topic("t", 2, nodes, {"retention.ms": "5000"})
    return made


def describe(
    broker: BrokerNode, kind: int, name: str, keys: list[str] | None = None, *, all_there_is: bool = False
) -> Any:
    answer = broker.call(ApiKey.DESCRIBE_CONFIGS, 4, [(kind, name, keys)], all_there_is, all_there_is)
    return answer.results[0]


def described(broker: BrokerNode, kind: int, name: str, key: str) -> Any:
    return describe(broker, kind, name, [key], all_there_is=True).configs[0]


def alter(broker: BrokerNode, kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> Any:
    answer = broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, [(kind, name, list(changes))], dry)
    return answer.responses[0].error_code


def replace(broker: BrokerNode, name: str, *configs: tuple[str, str | None]) -> Any:
    resource = (TOPIC, name, list(configs))
    answer = broker.call(ApiKey.ALTER_CONFIGS, 2, [resource], validate_only=False)
    return answer.responses[0].error_code


@with_each("version", range(1, 5))
def test_every_setting_of_a_topic_is_described(version: int) -> None:
    answer = node().call(ApiKey.DESCRIBE_CONFIGS, version, [(TOPIC, "t", None)])
    shown = {config.name: config for config in answer.results[0].configs}
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("5000", 1)
    assert (shown["max.message.bytes"].value, shown["max.message.bytes"].config_source) == ("1048588", 5)


@pytest.mark.behaviour("Admin APIs", "DescribeConfigs shows each level of a setting, from the one in force")
def test_config_levels_are_listed_from_the_one_in_force() -> None:
    broker = node(log_retention_ms=70_000)
    assert alter(broker, BROKER, "", ("log.retention.ms", SET, "60000")) == 0
    shown = described(broker, TOPIC, "t", "retention.ms")
    assert [(level.name, level.value, level.source) for level in shown.synonyms] == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "60000", 3),
        ("log.retention.ms", "70000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    assert shown.config_type == 5 and shown.documentation and not shown.read_only
    assert describe(broker, TOPIC, "t", ["retention.ms"]).configs[0].synonyms == []


def test_a_brokers_options_are_described_by_itself_alone() -> None:
    broker = node(nodes=2, num_partitions=7)
    shown = described(broker, BROKER, "1", "num.partitions")
    assert (shown.value, shown.config_source, shown.read_only) == ("7", 4, True)
    assert described(broker, BROKER, "1", "log.retention.ms").read_only is False
    assert described(broker, BROKER, "1", "auto.create.topics.enable").value == "true"
    assert describe(broker, BROKER, "").configs == []
    assert describe(broker, BROKER, "2").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.behaviour("Admin APIs", "Entries are appended to lists and subtracted from them, as Kafka does")
def test_entries_of_lists_are_appended_and_subtracted() -> None:
    broker = node()

    def policy(kind: int, name: str, setting: str, *changes: tuple[str, int, str]) -> Any:
        assert alter(broker, kind, name, *changes) == 0
        shown = described(broker, kind, name or "1", setting)
        assert shown.config_type == 7
        return shown.value

    for kind, name, setting in ((TOPIC, "t", "cleanup.policy"), (BROKER, "", "log.cleanup.policy")):
        assert policy(kind, name, setting, (setting, APPEND, "compact")) == "delete,compact"
        assert policy(kind, name, setting, (setting, APPEND, "compact,delete")) == "delete,compact"
        assert policy(kind, name, setting, (setting, SUBTRACT, "delete")) == "compact"
        assert policy(kind, name, setting, (setting, DELETE, "")) == "delete"
    assert alter(broker, TOPIC, "t", ("cleanup.policy", APPEND, "shrink")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, TOPIC, "t", ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, BROKER, "1", ("log.cleaner.backoff.ms", SET, "7")) == ErrorCode.INVALID_REQUEST
    assert alter(broker, BROKER, "", ("log.cleaner.backoff.ms", SET, "7")) == 0
    assert described(broker, BROKER, "1", "log.cleaner.backoff.ms").value == "7"


@with_each(
    ("kind", "name", "code"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "../x", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (8, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_of_missing_resources_are_refused(kind: int, name: str, code: ErrorCode) -> None:
    broker = node()
    assert describe(broker, kind, name).error_code == code
    assert alter(broker, kind, name, ("retention.ms", SET, "1")) == code


def append(log: PartitionLog, timestamp: int) -> None:
    batch, header = with_header([b"x" * 50], base_timestamp=timestamp)
    log.append(batch, header, 0, 0)


@pytest.mark.behaviour("Admin APIs", "A change of settings holds at once for a running log, and after a restart")
def test_topic_config_change_holds_at_once() -> None:
    broker = node()
    topic = broker.cluster.topic("t")
    assert topic is not None
    log = broker.context.log_of(topic, 0)
    for _ in range(2):
        append(log, timestamp=1000)
    now_ms = 60_000
    assert alter(broker, TOPIC, "t", ("segment.bytes", SET, "100"), ("retention.ms", DELETE, None)) == 0
    # Each append rolls a segment now, and no segment is older than the broker's retention time.
    for _ in range(2):
        append(log, timestamp=1000)
    assert log.apply_retention(now_ms) == 0
    changed = broker.cluster.topic("t")
    assert changed is not None and changed.configs == {"segment.bytes": "100"}
    assert (changed.settings.log.segment_bytes, changed.settings.log.retention_ms) == (100, 604_800_000)
    assert replace(broker, "t", ("retention.ms", "1")) == 0
    assert (log.apply_retention(now_ms), log.start_offset) == (2, 3)
    again = broker.cluster.topic("t")
    assert again is not None and again.configs == {"retention.ms": "1"}
    restarted = ClusterState(DIRECTORY, broker.disk, broker.context.config, [1]).topic("t")
    assert restarted is not None and restarted.configs == {"retention.ms": "1"}
    assert restarted.settings == again.settings


def test_a_dry_run_changes_nothing() -> None:
    broker = node()
    assert alter(broker, TOPIC, "t", ("retention.ms", SET, "1"), dry=True) == 0
    assert alter(broker, TOPIC, "t", ("retention.ms", SET, "x"), dry=True) == ErrorCode.INVALID_CONFIG
    assert described(broker, TOPIC, "t", "retention.ms").value == "5000"


@with_each(
    ("change", "code"),
    [
        (("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_impossible_changes_are_refused_and_change_nothing(change: tuple[str, int, str | None], code: int) -> None:
    broker = node()
    assert alter(broker, TOPIC, "t", ("segment.bytes", SET, "100"), change) == code
    topic = broker.cluster.topic("t")
    assert topic is not None and topic.configs == {"retention.ms": "5000"}


def test_naming_something_twice_is_refused() -> None:
    broker = node()
    twice = ("retention.ms", SET, "1")
    assert alter(broker, TOPIC, "t", twice, twice) == ErrorCode.INVALID_REQUEST
    resource = (TOPIC, "t", [twice])
    answer = broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, [resource, resource], validate_only=False)
    assert {item.error_code for item in answer.responses} == {ErrorCode.INVALID_REQUEST}


def test_only_dynamic_broker_configs_can_be_changed() -> None:
    broker = node()
    broker.cluster.create_topic("own", 1, 1)
    assert alter(broker, BROKER, "", ("num.io.threads", SET, "9")) == ErrorCode.INVALID_REQUEST
    assert alter(broker, BROKER, "", ("log.retention.mss", SET, "9")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, BROKER, "", ("log.retention.ms", SET, "x")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, BROKER, "1", ("log.retention.ms", SET, "9")) == ErrorCode.INVALID_REQUEST
    assert alter(broker, BROKER, "", ("log.retention.ms", SET, "9")) == 0
    found = {name: topic.settings.log.retention_ms for name, topic in broker.cluster.topics.items()}
    assert found == {"t": 5000, "own": 9}
    assert [config.name for config in describe(broker, BROKER, "").configs] == ["log.retention.ms"]


def add(
    broker: BrokerNode, name: str, count: int, assignment: list[list[int]] | None = None, *, dry: bool = False
) -> Any:
    answer = broker.call(ApiKey.CREATE_PARTITIONS, 3, [(name, count, assignment)], 1000, dry)
    return answer.results[0].error_code


@pytest.mark.behaviour("Admin APIs", "Impossible numbers of partitions are refused")
@with_each(
    ("count", "assignment", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (-5, None, ErrorCode.INVALID_PARTITIONS),
        (2 * 10**9, None, ErrorCode.POLICY_VIOLATION),
        (3, [[1, 2], [2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 2, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_partitions_are_refused(count: int, assignment: list[list[int]] | None, code: int) -> None:
    broker = node(nodes=3)
    assert add(broker, "t", count, assignment) == code
    assert add(broker, "nowhere", count, assignment) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = broker.cluster.topic("t")
    assert topic is not None and len(topic.partitions) == 2


def test_partitions_are_added_where_they_are_wanted() -> None:
    broker = node(nodes=3)
    before = broker.cluster.topic("t")
    assert add(broker, "t", 4, [[3, 2, 1], [2, 1, 3]], dry=True) == 0
    assert broker.cluster.topic("t") == before
    assert add(broker, "t", 4, [[3, 2, 1], [2, 1, 3]]) == 0
    assert add(broker, "t", 6) == 0
    topic = broker.cluster.topic("t")
    assert before is not None and topic is not None and topic.partitions[:2] == before.partitions
    assert [partition.leader for partition in topic.partitions[2:4]] == [3, 2]
    assert len(topic.partitions) == 6 and all(len(partition.replicas) == 3 for partition in topic.partitions)


def test_the_cluster_is_described_as_its_listener_shows_it() -> None:
    answer = node(nodes=2).call(ApiKey.DESCRIBE_CLUSTER, 2)
    assert [(item.broker_id, item.host, item.port) for item in answer.brokers] == [
        (1, "127.0.0.1", 9001),
        (2, "127.0.0.1", 9002),
    ]
    assert answer.controller_id == 1 and answer.cluster_id
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        answer = node().call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
        assert isinstance(answer, DescribeClusterResponse) and answer.error_code == code


def elect(broker: BrokerNode, partitions: list[int] | None, kind: int = 0) -> dict[int, int]:
    asked = None if partitions is None else [("t", partitions)]
    answer = broker.call(ApiKey.ELECT_LEADERS, 2, kind, asked)
    assert isinstance(answer, ElectLeadersResponse) and answer.error_code == 0
    return {
        item.partition_id: item.error_code
        for topic in answer.replica_election_results
        for item in topic.partition_result
    }


def reassign(broker: BrokerNode, index: int, replicas: list[int] | None, *, version: int = 1) -> int:
    answer = broker.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=[("t", [(index, replicas)])])
    assert isinstance(answer, AlterPartitionReassignmentsResponse) and answer.error_code == 0
    return answer.responses[0].partitions[0].error_code


@pytest.mark.behaviour("Admin APIs", "ElectLeaders gives leaders back to the preferred replica in new epochs")
def test_leaders_go_back_to_the_preferred_replica_in_new_epochs() -> None:
    broker = node(nodes=2)
    cluster = broker.cluster
    cluster.move_leader(TopicPartition("t", 0), 2)
    cluster.move_leader(TopicPartition("t", 0), 1)
    topic = cluster.topic("t")
    assert topic is not None
    first = topic.partitions[0].replicas[0]
    other = 3 - first
    cluster.move_leader(TopicPartition("t", 0), other)
    moved = cluster.topic("t")
    assert moved is not None and moved.partitions[0].leader == other
    assert elect(broker, [0, 1, 9]) == {0: 0, 1: ErrorCode.ELECTION_NOT_NEEDED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    back = cluster.topic("t")
    assert back is not None and back.partitions[0].leader == first
    assert back.partitions[0].leader_epoch == moved.partitions[0].leader_epoch + 1
    assert elect(broker, None) == {}
    cluster.move_leader(TopicPartition("t", 0), other)
    cluster.node_down(first)
    assert elect(broker, [0]) == {0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert elect(broker, [0], kind=1) == {0: ErrorCode.ELECTION_NOT_NEEDED}


def test_reassignment_keeps_the_leader_while_it_is_a_replica() -> None:
    broker = node(nodes=3)
    broker.cluster.move_leader(TopicPartition("t", 0), 2)
    assert reassign(broker, 0, [3, 2]) == 0
    topic = broker.cluster.topic("t")
    assert topic is not None and (topic.partitions[0].replicas, topic.partitions[0].leader) == ((3, 2), 2)
    epoch = topic.partitions[0].leader_epoch
    assert reassign(broker, 0, [1]) == 0
    topic = broker.cluster.topic("t")
    assert topic is not None and (topic.partitions[0].leader, topic.partitions[0].leader_epoch) == (1, epoch + 1)
    assert reassign(broker, 0, [4]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(broker, 0, []) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(broker, 0, None, version=0) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(broker, 7, [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
