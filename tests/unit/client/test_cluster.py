"""Cluster snapshots, and the snapshot that results from a metadata response."""

from __future__ import annotations

import uuid

import pytest

from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo, Snapshot, next_snapshot
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.messages.metadata import MetadataResponse
from tests.fakes.metadata_answers import ID_A, ID_B, ONE, TWO, answer, partition, topic
from tests.support.cases import with_each


def after(
    previous: Cluster,
    response: MetadataResponse,
    *,
    is_partial: bool = False,
    version: int = 12,
    dropped: tuple[str, ...] = (),
) -> Snapshot:
    return next_snapshot(
        previous, response, version=version, is_partial=is_partial, retain=lambda name: name not in dropped
    )


def test_an_empty_cluster_answers_every_question() -> None:
    cluster = Cluster()
    assert cluster.leader_for(TopicPartition("t", 0)) is None
    assert cluster.partition(TopicPartition("t", 0)) is None
    assert cluster.partition_count("t") is None
    assert cluster.partitions_for_topic("t") == ()
    assert cluster.available_partitions("t") == ()
    assert cluster.partitions_for_node(1) == ()
    assert cluster.topic_id("t") is None
    assert cluster.node(1) is None
    assert (cluster.topics, cluster.nodes, cluster.is_bootstrap) == ((), (), False)


def test_bootstrap_nodes_have_negative_ids() -> None:
    cluster = Cluster.bootstrap([("one", 1), ("two", 2)])
    assert cluster.is_bootstrap
    assert sorted(cluster.nodes, key=lambda node: -node.id) == [Node(-1, "one", 1), Node(-2, "two", 2)]


@pytest.mark.behaviour("Metadata", "A partition without a leader counts, but is not available")
def test_a_partition_without_leader_counts_but_is_not_available() -> None:
    cluster = Cluster([ONE, TWO], [PartitionInfo("t", 2, ONE), PartitionInfo("t", 0, None), PartitionInfo("t", 1, TWO)])
    assert cluster.partition_count("t") == 3
    assert [info.partition for info in cluster.partitions_for_topic("t")] == [0, 1, 2]
    assert [info.partition for info in cluster.available_partitions("t")] == [1, 2]
    assert cluster.partitions_for_node(1) == (TopicPartition("t", 2),)
    assert cluster.leader_for(TopicPartition("t", 0)) is None
    assert cluster.leader_for(TopicPartition("t", 1)) == TWO


def test_partitions_share_equal_replicas_and_leaders() -> None:
    cluster = after(Cluster(), answer(topic("t", *(partition(number, 1) for number in range(3))))).cluster
    first, *others = cluster.partitions_for_topic("t")
    for other in others:
        assert other.replicas is first.replicas
        assert other.isr is first.isr
        assert other.leader is first.leader
    assert cluster.available_partitions("t") is cluster.partitions_for_topic("t")


def test_an_answer_becomes_a_cluster() -> None:
    snapshot = after(Cluster.bootstrap([("x", 1)]), answer(topic("t", partition(0, 1, 5), partition(1, -1))))
    cluster = snapshot.cluster
    assert (cluster.is_bootstrap, cluster.cluster_id, cluster.controller) == (False, "c", TWO)
    assert set(cluster.nodes) == {ONE, TWO}
    assert (cluster.node(2), cluster.topic_id("t"), cluster.topics) == (TWO, ID_A, ("t",))
    unknown = Node(9, "", -1)
    assert cluster.partition(TopicPartition("t", 0)) == PartitionInfo("t", 0, ONE, 5, (ONE, TWO), (ONE,), (unknown,))
    assert cluster.partition_count("t") == 2
    assert not snapshot.is_stale


def test_brokers_before_topic_ids_give_none() -> None:
    assert after(Cluster(), answer(topic("t", topic_id=uuid.UUID(int=0)))).cluster.topic_id("t") is None


@with_each(
    ("code", "invalid", "unauthorized", "stale"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, True, False, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, True, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, False, True),
        (ErrorCode.LEADER_NOT_AVAILABLE, False, False, True),
    ],
)
def test_errors_of_topics(code: ErrorCode, invalid: bool, unauthorized: bool, stale: bool) -> None:
    snapshot = after(Cluster(), answer(topic("t", error=code)))
    assert ("t" in snapshot.cluster.invalid_topics) == invalid
    assert ("t" in snapshot.cluster.unauthorized_topics) == unauthorized
    assert snapshot.is_stale == stale
    assert snapshot.cluster.partition_count("t") is None


def test_partition_error_makes_metadata_stale_keeps_partition() -> None:
    snapshot = after(Cluster(), answer(topic("t", partition(0, -1, error=ErrorCode.LEADER_NOT_AVAILABLE))))
    assert snapshot.is_stale
    assert snapshot.cluster.partition_count("t") == 1


@pytest.mark.behaviour(
    "Metadata", "A full answer replaces the cluster's snapshot, and a partial one is merged into a new one"
)
def test_a_full_answer_replaces_and_a_partial_one_merges() -> None:
    before = after(Cluster(), answer(topic("old", partition(0, 1)), topic("both", partition(0, 1)))).cluster
    response = answer(topic("both", partition(0, 2), partition(1, 2)), topic("new", partition(0, 1), topic_id=ID_B))
    assert after(before, response).cluster.topics == ("both", "new")
    merged = after(before, response, is_partial=True).cluster
    assert merged.topics == ("both", "new", "old")
    assert (merged.partition_count("both"), merged.topic_id("old"), merged.topic_id("new")) == (2, ID_A, ID_B)


def test_topics_nobody_wants_are_left_out() -> None:
    before = after(Cluster(), answer(topic("old", partition(0, 1)))).cluster
    merged = after(before, answer(topic("new", partition(0, 1))), is_partial=True, dropped=("old", "new"))
    assert merged.cluster.topics == ()


def test_a_partial_answer_keeps_what_was_said_about_other_topics() -> None:
    before = after(
        Cluster(), answer(topic("bad", error=ErrorCode.INVALID_TOPIC_EXCEPTION), topic("no", error=29))
    ).cluster
    merged = after(before, answer(topic("new", partition(0, 1))), is_partial=True).cluster
    assert (merged.invalid_topics, merged.unauthorized_topics) == ({"bad"}, {"no"})
    healed = after(merged, answer(topic("bad", partition(0, 1))), is_partial=True).cluster
    assert healed.invalid_topics == frozenset()


def test_topics_that_are_kept_follow_brokers_that_moved_or_left() -> None:
    before = after(Cluster(), answer(topic("old", partition(0, 1), partition(1, 2)))).cluster
    moved = Node(1, "elsewhere", 1)
    merged = after(before, answer(topic("new"), nodes=(moved,)), is_partial=True).cluster
    assert merged.leader_for(TopicPartition("old", 0)) == moved
    assert merged.leader_for(TopicPartition("old", 1)) is None


def test_older_leader_epoch_does_not_replace_the_leader() -> None:
    before = after(Cluster(), answer(topic("t", partition(0, 2, epoch=5)))).cluster
    where = TopicPartition("t", 0)
    assert after(before, answer(topic("t", partition(0, 1, epoch=4)))).cluster.leader_for(where) == TWO
    assert after(before, answer(topic("t", partition(0, 1, epoch=5)))).cluster.leader_for(where) == ONE
    # A topic that was created again starts its leader epochs again.
    anew = answer(topic("t", partition(0, 1, epoch=0), topic_id=ID_B))
    assert after(before, anew).cluster.leader_for(where) == ONE
    # Leader epochs of old brokers are not reliable, so none is stored.
    old = after(before, answer(topic("t", partition(0, 1, epoch=4))), version=8).cluster.partition(where)
    assert old is not None
    assert (old.leader, old.leader_epoch) == (ONE, None)
