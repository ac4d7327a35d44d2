"""Assignment of partitions to members: fair, complete, and with as few moved partitions as that allows."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.broker.coordinator.consumer_group import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    TopicIdPartition,
    assign_ranges,
    assign_uniformly,
)

T, U, V = (UUID(int=number) for number in (1, 2, 3))


def subscriber(*topics: UUID, target: Assignment = frozenset(), instance_id: str | None = None) -> Subscriber:
    return Subscriber(frozenset(topics), target, instance_id)


def of(topic: UUID, *indexes: int) -> Assignment:
    return frozenset(TopicIdPartition(topic, index) for index in indexes)


def test_ranges_of_topics_alike_are_alike() -> None:
    members = {"b": subscriber(T, U), "a": subscriber(T, U)}
    assert assign_ranges(members, {T: 3, U: 3}) == {"a": of(T, 0, 1) | of(U, 0, 1), "b": of(T, 2) | of(U, 2)}


def test_static_members_come_first() -> None:
    members = {"a": subscriber(T), "z": subscriber(T, instance_id="2"), "y": subscriber(T, instance_id="3")}
    assert assign_ranges(members, {T: 4}) == {"z": of(T, 0, 1), "y": of(T, 2), "a": of(T, 3)}


def test_a_member_more_than_partitions_has_none() -> None:
    members = {"a": subscriber(T), "b": subscriber(T)}
    for assign in ASSIGNORS.values():
        assert sorted(map(len, assign(members, {T: 1}).values())) == [0, 1]


def test_only_what_fairness_takes_moves() -> None:
    before = {"a": of(T, 0, 1, 2), "b": of(T, 3, 4, 5)}
    members = {name: subscriber(T, target=target) for name, target in before.items()} | {"c": subscriber(T)}
    after = assign_uniformly(members, {T: 6})
    assert after["a"] < before["a"] and after["b"] < before["b"]
    assert {name: len(partitions) for name, partitions in after.items()} == {"a": 2, "b": 2, "c": 2}
    assert assign_uniformly({name: subscriber(T, target=after[name]) for name in after}, {T: 6}) == after


def test_who_may_choose_leaves_room_for_who_may_not() -> None:
    members = {"a": subscriber(T, U), "b": subscriber(T)}
    after = assign_uniformly(members, {T: 2, U: 2})
    assert after == {"a": of(U, 0, 1), "b": of(T, 0, 1)}


@pytest.mark.behaviour("Consumer groups", "Each partition is assigned to exactly one member that is subscribed to it")
@given(st.data())
def test_every_partition_has_one_subscriber(data: st.DataObject) -> None:
    counts = data.draw(st.dictionaries(st.sampled_from([T, U, V]), st.integers(1, 7), min_size=1))
    names = data.draw(st.lists(st.sampled_from("abcde"), unique=True, min_size=1))
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    everything = sorted(TopicIdPartition(topic, index) for topic in (T, U, V) for index in range(8))
    owners = data.draw(st.dictionaries(st.sampled_from(everything), st.sampled_from(names)))
    members = {
        name: Subscriber(data.draw(topics), frozenset(each for each, owner in owners.items() if owner == name), None)
        for name in names
    }
    wanted = frozenset().union(*(member.topics for member in members.values()))
    partitions = {topic: counts[topic] for topic in sorted(wanted)}
    for name, assign in ASSIGNORS.items():
        after = assign(members, partitions)
        assert after.keys() == members.keys()
        assert Counter(each for mine in after.values() for each in mine) == Counter(
            TopicIdPartition(topic, index) for topic, count in partitions.items() for index in range(count)
        )
        assert all(each.topic_id in members[owner].topics for owner, mine in after.items() for each in mine)
        if name == "uniform" and len({member.topics for member in members.values()}) == 1:
            sizes = [len(mine) for mine in after.values()]
            assert max(sizes) - min(sizes) <= 1
            usable = [
                {each for each in member.target if each.partition < partitions.get(each.topic_id, 0)}
                for member in members.values()
            ]
            kept = sum(len(mine & members[owner].target) for owner, mine in after.items())
            # A member gives up only the partitions above its fair share.
            assert kept >= sum(min(len(each), sum(partitions.values()) // len(members)) for each in usable)
