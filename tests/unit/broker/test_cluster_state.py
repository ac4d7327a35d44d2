"""Topics, leaders and producer ids, over restarts."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest

from kafka_sink.broker.cluster.cluster_state import ClusterState
from kafka_sink.broker.cluster.topic_state import NO_LEADER, PartitionState, TopicState, validate_topic_name
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.log.filesystem import with_checksum, without_checksum
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import start_thread
from tests.fakes.memory_filesystem import Crash, MemoryFileSystem
from tests.support.cases import with_each

DIRECTORY = Path("/data")
FILE = DIRECTORY / "cluster.json"


def endpoints(node: int) -> dict[str, EndPoint]:
    return {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 9000 + node)}


def state(disk: MemoryFileSystem | None = None, nodes: int = 3, *, up: bool = True) -> ClusterState:
    cluster = ClusterState(DIRECTORY, disk or MemoryFileSystem(), BrokerConfig(), range(1, nodes + 1))
    if up:
        cluster.nodes_up({node: endpoints(node) for node in range(1, nodes + 1)})
    return cluster


def refused(cluster: ClusterState, *args: object, **options: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        cluster.create_topic(*args, **options)  # type: ignore[arg-type]
    return caught.value.code


@with_each("name", ["", ".", "..", "a/b", "../../etc", "x" * 250, "naïve", "a b", "a\0b", "a:b", "\n"])
def test_illegal_names_are_refused(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(state(), name) is ErrorCode.INVALID_TOPIC_EXCEPTION


@with_each("name", ["a", "x" * 249, "...", "a-b_c.d", "0", "-"])
def test_legal_names(name: str) -> None:
    validate_topic_name(name)


def test_leaders_are_spread_over_the_nodes() -> None:
    cluster = state()
    for number in range(4):
        cluster.create_topic(f"t{number}", 3)
    led = Counter(partition.leader for topic in cluster.topics.values() for partition in topic.partitions)
    assert led == {1: 4, 2: 4, 3: 4}
    single = Counter(cluster.create_topic(f"s{number}", 1).partitions[0].leader for number in range(9))
    assert single == {1: 3, 2: 3, 3: 3}


@with_each(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-5, 1, ErrorCode.INVALID_PARTITIONS),
        (2 * 10**9, 1, ErrorCode.POLICY_VIOLATION),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(partitions: int, factor: int, code: ErrorCode) -> None:
    cluster = state()
    assert refused(cluster, "t", partitions, factor) is code
    assert cluster.topics == {}


@with_each("assignment", [[[4]], [[1, 1]], [[]], [[1], [1, 2]]])
def test_impossible_assignments_are_refused(assignment: list[list[int]]) -> None:
    assert refused(state(), "t", assignment=assignment) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_is_followed() -> None:
    topic = state().create_topic("t", assignment=[[3, 1], [2, 3]])
    assert [(partition.leader, partition.replicas) for partition in topic.partitions] == [(3, (3, 1)), (2, (2, 3))]


@pytest.mark.parametrize("configs", [{"no.such": "1"}, {"segment.bytes": "x"}, {"retention.ms": "-2"}])
def test_impossible_settings_are_refused(configs: dict[str, str]) -> None:
    assert refused(state(), "t", configs=configs) is ErrorCode.INVALID_CONFIG


def test_settings_are_laid_over_the_brokers() -> None:
    topic = state().create_topic("t", configs={"segment.bytes": "1000", "message.timestamp.type": "LogAppendTime"})
    assert (topic.settings.log.segment_bytes, topic.settings.log.log_append_time) == (1000, True)
    assert topic.settings.batches.max_message_bytes == BrokerConfig().message_max_bytes


def test_existing_or_colliding_topic_name_is_refused() -> None:
    cluster = state()
    cluster.create_topic("a.b_c")
    assert refused(cluster, "a.b_c") is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused(cluster, "a_b.c") is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_validate_only_creates_nothing() -> None:
    disk = MemoryFileSystem()
    cluster = state(disk)
    before = bytes(disk.files[FILE].data)
    assert len(cluster.create_topic("t", 5, validate_only=True).partitions) == 5
    assert cluster.topics == {} and bytes(disk.files[FILE].data) == before


def test_a_restart_sees_the_same_topics() -> None:
    disk = MemoryFileSystem()
    cluster = state(disk)
    created = cluster.create_topic("t", 4, 2, {"retention.ms": "5"})
    again = state(disk)
    assert again.image.cluster_id == cluster.image.cluster_id
    loaded = again.topic("t")
    assert loaded is not None
    assert (loaded.topic_id, loaded.configs, loaded.settings) == (created.topic_id, created.configs, created.settings)
    for old, new in zip(created.partitions, loaded.partitions, strict=True):
        assert (new.replicas, new.leader) == (old.replicas, old.leader)
        assert new.leader_epoch > old.leader_epoch
    assert again.topic_by_id(created.topic_id) == loaded


def test_leader_epochs_grow_over_restarts() -> None:
    disk = MemoryFileSystem()
    state(disk).create_topic("t", 1)
    epochs = []
    for _ in range(3):
        topic = state(disk).topic("t")
        assert topic is not None
        epochs.append(topic.partitions[0].leader_epoch)
    assert epochs == sorted(set(epochs))


def test_fewer_nodes_lead_everything() -> None:
    disk = MemoryFileSystem()
    state(disk, 3).create_topic("t", 6)
    topic = state(disk, 1).topic("t")
    assert topic is not None
    assert {partition.leader for partition in topic.partitions} == {1}


def test_a_deleted_topic_stays_deleted() -> None:
    disk = MemoryFileSystem()
    cluster = state(disk)
    topic_id = cluster.create_topic("t").topic_id
    cluster.delete_topics(["t"], lambda topic: None)
    assert cluster.topic_by_id(topic_id) is None
    assert state(disk).topics == {}
    refused = cluster.delete_topics(["t"], lambda topic: None)["t"]
    assert isinstance(refused, ApiError) and refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.create_topic("t").topic_id != topic_id


def test_a_name_is_free_again_only_when_its_logs_are_gone() -> None:
    cluster = state()
    cluster.create_topic("t")
    creating: list[threading.Thread] = []

    def remove_logs(topic: TopicState) -> None:
        assert cluster.topic("t") is None
        creating.append(start_thread("creates it anew", lambda: cluster.create_topic("t")))
        creating[0].join(0.05)
        assert creating[0].is_alive() and cluster.topic("t") is None

    cluster.delete_topics(["t"], remove_logs)
    creating[0].join(60)
    assert cluster.topic("t") is not None


def test_a_topic_that_could_not_be_stored_does_not_exist() -> None:
    disk = MemoryFileSystem()
    cluster = state(disk)
    disk.full_after_bytes = 0
    with pytest.raises(OSError, match="No space left"):
        cluster.create_topic("t")
    assert cluster.topic("t") is None


def test_leadership_moves_to_a_replica_and_back_only_if_needed() -> None:
    cluster = state()
    cluster.create_topic("t", assignment=[[1, 2], [1, 3]])
    cluster.node_down(3)
    cluster.node_down(1)
    topic = cluster.topic("t")
    assert topic is not None
    assert [partition.leader for partition in topic.partitions] == [2, NO_LEADER]
    epochs = [partition.leader_epoch for partition in topic.partitions]
    cluster.nodes_up({1: endpoints(1)})
    topic = cluster.topic("t")
    assert topic is not None
    assert [partition.leader for partition in topic.partitions] == [2, 1]
    assert [partition.leader_epoch for partition in topic.partitions] == [epochs[0], epochs[1] + 1]


def test_producer_ids_are_never_given_out_twice() -> None:
    disk = MemoryFileSystem()
    given: list[int] = []
    for _ in range(3):
        cluster = state(disk, up=False)
        given += [cluster.allocate_producer_id() for _ in range(1500)]
    assert len(set(given)) == len(given)


def test_producer_id_is_not_given_unless_it_was_stored() -> None:
    disk = MemoryFileSystem()
    cluster = state(disk, up=False)
    disk.crash_at = disk.steps + 1
    with pytest.raises(Crash):
        cluster.allocate_producer_id()
    assert state(disk.clone(), up=False).allocate_producer_id() == 0


@with_each("data", [b"", b"{", b"[]", b'{"format":1}', b'{"format":9,"topics":[]}'])
def test_a_file_that_is_not_ours_is_refused(data: bytes) -> None:
    disk = MemoryFileSystem()
    state(disk)
    # Refused even if it is stored like a file of ours, with its checksum.
    disk.files[FILE].data = bytearray(with_checksum(data))
    with pytest.raises(ConfigError, match=r"cluster\.json"):
        state(disk)
    disk.files[FILE].data = bytearray(data)
    with pytest.raises(ConfigError, match=r"cluster\.json"):
        state(disk)


def test_coordinators_are_running_nodes_and_the_same_for_a_key() -> None:
    cluster = state()
    keys = [f"group-{number}" for number in range(30)]
    assert {cluster.coordinator_for(key) for key in keys} == {1, 2, 3}
    before = {key: cluster.coordinator_for(key) for key in keys}
    assert before == {key: cluster.coordinator_for(key) for key in keys}
    cluster.node_down(2)
    after = {key: cluster.coordinator_for(key) for key in keys}
    assert set(after.values()) == {1, 3}
    assert all(after[key] == node for key, node in before.items() if node != 2)
    assert state(up=False).coordinator_for("g") == NO_LEADER


def test_the_controller_is_the_lowest_running_node() -> None:
    cluster = state()
    assert cluster.controller_id == 1
    cluster.node_down(1)
    assert cluster.controller_id == 2


def test_cluster_file_has_only_the_needed_fields() -> None:
    disk = MemoryFileSystem()
    state(disk, 1).create_topic("t", 2)
    content = json.loads(without_checksum(bytes(disk.files[FILE].data)) or b"")
    assert sorted(content) == ["cluster_id", "format", "next_producer_id", "topics"]
    assert content["topics"][0]["partitions"] == [[1, 0], [1, 0]]


@pytest.mark.behaviour("Admin APIs", "A topic is deleted from, compacted, both or neither")
@with_each(
    ("policy", "deletes", "compacts"),
    [
        ("delete", True, False),
        ("compact", False, True),
        ("compact,delete", True, True),
        ("delete, compact", True, True),
        ("", False, False),
    ],
)
def test_every_cleanup_policy_is_that_of_the_log(policy: str, deletes: bool, compacts: bool) -> None:
    settings = state().create_topic("t", configs={"cleanup.policy": policy}).settings
    found = settings.log.deletes, settings.log.compaction is not None, settings.batches.needs_key
    assert found == (deletes, compacts, compacts)
    cluster = state()
    cluster.alter_broker_configs(lambda _: {"log.cleanup.policy": policy})
    assert cluster.create_topic("t").settings == settings


@pytest.mark.behaviour("Admin APIs", "Settings of compaction are checked as Kafka does")
@with_each(
    ("configs", "said"),
    [
        ({"cleanup.policy": "shrink"}, r"cleanup\.policy.*'shrink'.*compact, delete"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "expected from 0 to 1"),
        ({"delete.retention.ms": "-1"}, "expected at least 0"),
        ({"min.compaction.lag.ms": "-1"}, "expected at least 0"),
        ({"max.compaction.lag.ms": "0"}, "expected at least 1"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "6 ms is larger than max.compaction.lag.ms, 5"),
    ],
)
def test_settings_of_compaction_are_checked(configs: dict[str, str], said: str) -> None:
    with pytest.raises(ApiError, match=said) as refused:
        state().create_topic("u", configs=configs)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_the_largest_lag_of_a_compacted_log_rolls_its_segments() -> None:
    configs = {"max.compaction.lag.ms": "5000", "segment.ms": "9000", "delete.retention.ms": "7"}
    assert state().create_topic("t", configs=configs).settings.log.segment_ms == 9000
    log = state().create_topic("t", configs={**configs, "cleanup.policy": "compact"}).settings.log
    assert log.segment_ms == 5000 and log.compaction is not None and log.compaction.delete_retention_ms == 7


def test_leaders_are_moved_to_running_replicas_only() -> None:
    cluster = state()
    cluster.create_topic("t", assignment=[[1, 2]])
    epoch = cluster.topics["t"].partitions[0].leader_epoch
    cluster.move_leader(TopicPartition("t", 0), 2)
    assert cluster.topics["t"].partitions[0] == PartitionState((1, 2), 2, epoch + 1)
    cluster.node_down(1)
    for partition, node, code in (
        (TopicPartition("t", 0), 1, ErrorCode.BROKER_NOT_AVAILABLE),
        (TopicPartition("t", 0), 3, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (TopicPartition("t", 1), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("u", 0), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(ApiError) as caught:
            cluster.move_leader(partition, node)
        assert caught.value.code is code
