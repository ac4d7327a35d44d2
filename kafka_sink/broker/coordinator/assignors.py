"""The assignors that the coordinator offers: which member of a consumer group is to have which partition.

Pure functions. Every partition of a subscribed topic goes to exactly one member that is subscribed to it.

Source: KIP-848; apache/kafka ``UniformAssignor``, ``RangeAssignor``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID


class TopicIdPartition(NamedTuple):
    """One partition of the topic with this id."""

    topic_id: UUID
    partition: int


Assignment: TypeAlias = frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as assignors see it: the ids of its topics that exist, and what it was to have so far."""

    topics: frozenset[UUID]
    target: Assignment
    instance_id: str | None


#: From members by id, and the number of partitions of each of their topics, to what each member is to have.
Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], dict[str, Assignment]]


def assign_uniformly(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Numbers of partitions that differ by one at most, as far as subscriptions allow; no more than that moves."""
    held: dict[str, dict[UUID, list[int]]] = {
        member_id: {topic: [] for topic in member.topics} for member_id, member in members.items()
    }
    missing = {topic: set(range(count)) for topic, count in partitions.items()}
    for member_id, member in members.items():
        for topic, partition in sorted(member.target):
            if topic in member.topics and partition in missing[topic]:
                held[member_id][topic].append(partition)
                missing[topic].discard(partition)
    load = {member_id: sum(map(len, topics.values())) for member_id, topics in held.items()}
    subscribers = {
        topic: [member_id for member_id, member in members.items() if topic in member.topics] for topic in partitions
    }

    def give(topic: UUID, partition: int, member_id: str) -> None:
        held[member_id][topic].append(partition)
        load[member_id] += 1

    # Topics with the most partitions for each subscriber come first, because they leave the least choice.
    topics = sorted(subscribers, key=lambda topic: (-partitions[topic] / len(subscribers[topic]), topic))
    for topic in topics:
        for partition in sorted(missing[topic]):
            give(topic, partition, min(subscribers[topic], key=load.__getitem__))
    moved = True
    while moved:
        moved = False
        for topic in topics:
            # Each move makes the sum of the squares of all loads smaller, so this ends.
            while True:
                most = max((each for each in subscribers[topic] if held[each][topic]), key=load.__getitem__)
                least = min(subscribers[topic], key=load.__getitem__)
                if load[most] - load[least] < 2:
                    break
                give(topic, held[most][topic].pop(), least)
                load[most] -= 1
                moved = True
    return _assignments(held)


def assign_ranges(members: Mapping[str, Subscriber], partitions: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Of each topic a range to each member in the order of their ids, so that topics with equally many partitions are
    divided alike. Static members come first, in the order of their instance ids."""
    order = sorted(members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each))
    subscribers = Counter(topic for member in members.values() for topic in member.topics)
    extra = {topic: partitions[topic] % count for topic, count in subscribers.items()}
    start = Counter[UUID]()
    held: dict[str, dict[UUID, list[int]]] = {}
    for member_id in order:
        held[member_id] = {}
        for topic in members[member_id].topics:
            end = start[topic] + partitions[topic] // subscribers[topic] + (extra[topic] > 0)
            extra[topic] -= 1
            held[member_id][topic] = list(range(start[topic], end))
            start[topic] = end
    return _assignments(held)


def _assignments(held: Mapping[str, Mapping[UUID, list[int]]]) -> dict[str, Assignment]:
    return {
        member_id: frozenset(
            TopicIdPartition(topic, partition) for topic, indexes in topics.items() for partition in indexes
        )
        for member_id, topics in held.items()
    }


#: By the name that members ask for (``group.remote.assignor``); the first is used if none of them asks.
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
DEFAULT_ASSIGNOR: Final = "uniform"
