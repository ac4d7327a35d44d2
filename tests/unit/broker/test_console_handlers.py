"""The requests that consoles and admin tools send to a broker: log directories, quorum, pages of topics, quotas.

tests/compat/test_differential.py compares the same responses with those of a real Kafka.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.users import ComponentData, EntityData, OpData
from kafka_sink.protocol.registry import api
from tests.fakes.broker_node import DIRECTORY, BrokerNode
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("Admin APIs", "Consoles get what they ask for, also where it is none")


def node(nodes: int = 1) -> BrokerNode:
    made = BrokerNode(nodes)
    made.cluster.create_topic("t", 3)
    made.cluster.create_topic("u", 2)
    return made


def versions(key: ApiKey) -> range:
    return range(api(key).versions.min, api(key).versions.max + 1)


@with_each("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_directories_have_the_sizes_of_their_partitions(version: int) -> None:
    broker = node()
    records = make_batch([b"x" * 100])
    broker.call(ApiKey.PRODUCE, 9, None, -1, 1000, [{"name": "t", "partition_data": [(0, records)]}])
    answer: Any = broker.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    (directory,) = answer.results
    assert directory.log_dir == "/data/logs"
    sizes = {
        (topic.name, part.partition_index): part.partition_size
        for topic in directory.topics
        for part in topic.partitions
    }
    assert sizes == {("t", 0): len(records), ("t", 1): 0, ("t", 2): 0, ("u", 0): 0, ("u", 1): 0}
    answer = broker.call(ApiKey.DESCRIBE_LOG_DIRS, version, [("u", [1, 9]), ("none", [0])])
    assert [(topic.name, len(topic.partitions)) for topic in answer.results[0].topics] == [("u", 1)]


def test_a_node_shows_only_the_partitions_of_its_replicas() -> None:
    broker = BrokerNode(2)
    broker.cluster.create_topic("t", assignment=[[1], [2], [1]])
    answer: Any = broker.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert [part.partition_index for part in answer.results[0].topics[0].partitions] == [0, 2]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_QUORUM))
def test_the_quorum_is_the_controller(version: int) -> None:
    broker = node(nodes=3)
    asked = [("__cluster_metadata", [0])]
    answer: Any = broker.call(ApiKey.DESCRIBE_QUORUM, version, asked)
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, [each.replica_id for each in partition.current_voters]) == (1, [1])
    assert [each.replica_id for each in partition.observers] == [2, 3]
    if version >= 2:
        assert [(each.host, each.port) for each in answer.nodes[0].listeners] == [("127.0.0.1", 9001)]
    asked = [("t", [0])]
    answer = broker.call(ApiKey.DESCRIBE_QUORUM, version, asked)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@with_each("limit", [1, 2, 3, 4, 5, 6, 2_000])
def test_pages_of_topics_have_every_partition_once(limit: int) -> None:
    broker = node()
    cursor: Any | None = None
    found: list[tuple[str, int]] = []
    for number in itertools.count():
        assert number < 10
        answer: Any = broker.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, [], limit, cursor)
        page = [(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions]
        assert len(page) <= limit
        found += page
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert found == [("t", 0), ("t", 1), ("t", 2), ("u", 0), ("u", 1)]


def test_pages_tell_of_missing_topics_and_lost_leaders() -> None:
    broker = node(nodes=2)
    broker.cluster.create_topic("placed", assignment=[[2], [1]])
    broker.cluster.node_down(2)
    asked = ["placed", "none", "a/b"]
    answer: Any = broker.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "placed": 0,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    partitions = next(topic for topic in answer.topics if topic.name == "placed").partitions
    assert [(each.leader_id, each.isr_nodes, each.offline_replicas) for each in partitions] == [
        (-1, [], [2]),
        (1, [1], []),
    ]


def test_resources_quotas_and_reassignments_are_listed() -> None:
    broker = node(nodes=2)
    answer: Any = broker.call(ApiKey.LIST_CONFIG_RESOURCES, 1, [2, 4])
    assert [(item.resource_type, item.resource_name) for item in answer.config_resources] == [
        (2, "t"),
        (2, "u"),
        (4, "1"),
        (4, "2"),
    ]
    answer = broker.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0)
    assert (answer.error_code, answer.topics) == (0, [])
    for components, code in (
        ([("user", 2, None)], ErrorCode.NONE),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ):
        answer = broker.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components)
        assert (answer.error_code, answer.entries) == (code, [] if code == 0 else None)


def altered(broker: BrokerNode, entity: list[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> int:
    entry = ([EntityData(*part) for part in entity], [OpData(*op) for op in ops])
    answer: Any = broker.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, [entry])
    code: int = answer.entries[0].error_code
    return code


def described(broker: BrokerNode, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    answer: Any = broker.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, [ComponentData(*each) for each in components], strict)
    return [
        ([(part.entity_type, part.entity_name) for part in entry.entity], [(it.key, it.value) for it in entry.values])
        for entry in answer.entries
    ]


@pytest.mark.behaviour("Throttling and quotas", "Quotas are set and described by request, and outlive a restart")
def test_quotas_are_set_described_and_kept() -> None:
    broker = node()
    everyone: list[tuple[str, str | None]] = [("user", None)]
    one: list[tuple[str, str | None]] = [("user", "u"), ("client-id", "c")]
    assert altered(broker, everyone, ("producer_byte_rate", 1000.0, False)) == 0
    assert altered(broker, one, ("consumer_byte_rate", 5.0, False), ("producer_byte_rate", 7.0, False)) == 0
    of_one = (sorted(one), [("consumer_byte_rate", 5.0), ("producer_byte_rate", 7.0)])
    assert described(broker) == [(everyone, [("producer_byte_rate", 1000.0)]), of_one]
    assert described(broker, ("user", 1, None)) == [(everyone, [("producer_byte_rate", 1000.0)])]
    assert described(broker, ("user", 0, "u")) == [of_one]
    assert described(broker, ("user", 0, "u"), strict=True) == []
    assert described(broker, ("user", 2, None), ("client-id", 0, "c"), strict=True) == [of_one]
    again = ClusterState(DIRECTORY, broker.disk, BrokerConfig(), [1])
    assert again.image.quotas == broker.cluster.image.quotas
    assert altered(broker, one, ("consumer_byte_rate", 0.0, True), ("producer_byte_rate", 0.0, True)) == 0
    assert described(broker, ("client-id", 2, None)) == []


@with_each(
    ("entity", "op"),
    [
        ([], ("producer_byte_rate", 1.0, False)),
        ([("ip", "127.0.0.1")], ("connection_creation_rate", 1.0, False)),
        ([("user", "")], ("producer_byte_rate", 1.0, False)),
        ([("user", "a")], ("request_percentage", 1.0, False)),
        ([("user", "a")], ("producer_byte_rate", 0.0, False)),
        ([("user", "a")], ("producer_byte_rate", 1.5, False)),
    ],
)
def test_quotas_that_nothing_enforces_are_refused(
    entity: list[tuple[str, str | None]], op: tuple[str, float, bool]
) -> None:
    broker = node()
    assert altered(broker, entity, op) == ErrorCode.INVALID_REQUEST
    assert described(broker) == []


@pytest.mark.behaviour("Admin APIs", "Topic settings that change nothing here are accepted, and others are refused")
def test_settings_without_effect_are_accepted_and_others_refused() -> None:
    cluster = node().cluster
    accepted = {"file.delete.delay.ms": "5", "preallocate": "true", "unclean.leader.election.enable": "true"}
    assert cluster.create_topic("v", configs={**accepted, "retention.ms": "7"}).configs == {
        **accepted,
        "retention.ms": "7",
    }
    cleaner = {"log.cleaner.backoff.ms": "15001"}
    cluster.alter_broker_configs(lambda configs: {**configs, **cleaner})
    assert cluster.image.broker_configs == cleaner
    for name, value, said in (
        ("segment.jitter.ms", "5", "expected 0; the age of segments is exact"),
        ("remote.storage.enable", "true", "expected false; of remote storage"),
        ("compression.type", "zstd", "expected one of producer"),
        ("no.such.setting", "2", "no.such.setting"),
    ):
        with pytest.raises(ApiError, match=said) as refused:
            cluster.create_topic("w", configs={name: value})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
