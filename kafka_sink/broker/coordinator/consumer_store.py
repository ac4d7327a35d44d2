"""Stores groups of the consumer protocol in the coordinators' file, each as a whole.

:class:`GroupCoordinator` calls it under its lock.

Source: apache/kafka ``ConsumerGroupMemberMetadataValue``, ``ConsumerGroupCurrentMemberAssignmentValue`` and
``ConsumerGroupTargetAssignmentMemberValue``, for what is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kafka_sink.broker.coordinator.assignors import TopicIdPartition
from kafka_sink.broker.coordinator.consumer_group import ConsumerGroup, ConsumerMember, MemberState, Owned
from kafka_sink.broker.coordinator.group_store import delete_group
from kafka_sink.broker.coordinator.store import CoordinatorStore


class ConsumerStore:
    """Reads and writes groups of the consumer protocol.

    :raises ApiError: COORDINATOR_NOT_AVAILABLE, from every method, if the file cannot be read or written.
    """

    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store

    def load(self) -> list[ConsumerGroup]:
        """Load all groups. :raises ConfigError: if the file is damaged."""
        with self._store.reading():
            rows = self._store.rows("SELECT group_id, content FROM consumer_groups")
            return [_decoded(group_id, json.loads(content)) for group_id, content in rows]

    def save(self, group: ConsumerGroup) -> None:
        """Store the current state of a group, in place of a classic group with its id."""
        with self._store.transaction() as connection:
            delete_group(connection, group.group_id)
            connection.execute(
                "INSERT INTO consumer_groups VALUES (?, ?)", (group.group_id, json.dumps(_encoded(group)))
            )


def _encoded(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topics": {topic_id.hex: count for topic_id, count in group.topics.items()},
        "regexes": {regex: sorted(topics) for regex, topics in group.regexes.items()},
        "targets": {member_id: _listed(target) for member_id, target in group.targets.items()},
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "rack_id": member.rack_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "topic_names": sorted(member.topic_names),
                "topic_regex": member.topic_regex,
                "assignor": member.assignor,
                "epoch": member.epoch,
                "previous_epoch": member.previous_epoch,
                "state": member.state.value,
                "assigned": _epochs(member.assigned),
                "revoking": _epochs(member.revoking),
            }
            for member in group.members.values()
        ],
    }


def _listed(partitions: Iterable[TopicIdPartition]) -> list[tuple[str, int]]:
    return [(topic_id.hex, partition) for topic_id, partition in sorted(partitions)]


def _epochs(owned: Owned) -> list[tuple[str, int, int]]:
    return [(topic_id.hex, partition, epoch) for (topic_id, partition), epoch in owned.items()]


def _decoded(group_id: str, content: Mapping[str, Any]) -> ConsumerGroup:
    members = [
        ConsumerMember(
            **{
                **each,
                "topic_names": frozenset(each["topic_names"]),
                "state": MemberState(each["state"]),
                "assigned": _owned(each["assigned"]),
                "revoking": _owned(each["revoking"]),
            }
        )
        for each in content["members"]
    ]
    return ConsumerGroup(
        group_id,
        content["epoch"],
        content["assignment_epoch"],
        {member.member_id: member for member in members},
        {
            member_id: frozenset(TopicIdPartition(UUID(topic_id), partition) for topic_id, partition in target)
            for member_id, target in content["targets"].items()
        },
        {regex: frozenset(topics) for regex, topics in content["regexes"].items()},
        {UUID(topic_id): count for topic_id, count in content["topics"].items()},
    )


def _owned(rows: Iterable[tuple[str, int, int]]) -> dict[TopicIdPartition, int]:
    return {TopicIdPartition(UUID(topic_id), partition): epoch for topic_id, partition, epoch in rows}
