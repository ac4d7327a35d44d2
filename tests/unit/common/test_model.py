"""The text forms of values, which appear in error messages."""

from __future__ import annotations

from kafka_sink.common.model import Node, TopicPartition


def test_a_partition_prints_as_kafka_writes_it() -> None:
    assert str(TopicPartition("events", 3)) == "events-3"
    assert f"{TopicPartition('events', 3)}" == "events-3"


def test_a_partition_is_a_key_and_sorts_by_topic_then_number() -> None:
    partitions = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert sorted(partitions) == [("a", 9), ("a", 10), ("b", 0)]


def test_a_node_prints_its_address_and_whether_its_id_is_known() -> None:
    assert str(Node(2, "k2", 9092)) == "broker 2 at k2:9092"
    assert str(Node(-1, "k1", 9092)) == "bootstrap broker at k1:9092"
    assert str(Node(2, "k\n2", 9092)) == r"broker 2 at k\n2:9092"
    assert Node(2, "k2", 9092).connection_id == "2"
