"""Stores groups of both protocols in the coordinators' file, each as a whole.

:class:`GroupCoordinator` calls it under its lock. Of the protocols of a classic group's members only the selected one
is stored, as in Kafka: after a restart no protocol is selected before all members have joined again. Kafka stores a
group in one record batch of limited size; the same limit applies here to the metadata and assignments of a group.

Source: apache/kafka ``GroupMetadataValue``; ``ConsumerGroupMemberMetadataValue``,
``ConsumerGroupCurrentMemberAssignmentValue`` and ``ConsumerGroupTargetAssignmentMemberValue``, for the stored fields.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from kafka_sink.broker.coordinator.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Owned,
    TopicIdPartition,
)
from kafka_sink.broker.coordinator.group_metadata import CONSUMER, ClassicMember, Group, GroupState, subscribed_topics
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.common.bounded import parsed_json
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.text import words

_IDENTITY: Final = attrgetter(
    *words("member_id instance_id client_id client_host rebalance_timeout_ms session_timeout_ms")
)
#: The fields of a member of the consumer protocol that are stored without conversion.
_PLAIN: Final = words("""
    member_id instance_id rack_id client_id client_host rebalance_timeout_ms topic_regex assignor epoch previous_epoch
""")


def too_large(group_id: str, size: int) -> ApiError:
    """The error for a group that cannot be stored, because its members' data has *size* bytes; Kafka's code."""
    text = f"{size} bytes of metadata and assignments of group {group_id} exceed message.max.bytes"
    return ApiError(text, ErrorCode.UNKNOWN_SERVER_ERROR)


class GroupStore:
    """Reads and writes groups, whose members' metadata and assignments have at most *most_bytes*.

    :raises ApiError: COORDINATOR_NOT_AVAILABLE, from every method, if the file cannot be read or written.
    """

    def __init__(self, store: CoordinatorStore, most_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes

    def load(self) -> list[Group]:
        """Load all classic groups; one with members is Stable. :raises ConfigError: if the file is damaged."""
        with self._store.reading():
            return self._load()

    def _load(self) -> list[Group]:
        groups = {
            row[0]: Group(*row)
            for row in self._store.rows(
                "SELECT group_id, empty_since_ms, protocol_type, protocol_name, generation, leader FROM groups"
            )
        }
        members = self._store.rows(
            "SELECT group_id, member_id, instance_id, client_id, client_host, rebalance_timeout_ms,"
            " session_timeout_ms, metadata, assignment FROM members ORDER BY rowid"
        )
        for row in members:
            group = groups[row[0]]
            name = group.protocol_name or ""
            topics = {name: subscribed_topics(row[7])} if group.protocol_type == CONSUMER else {}
            member = ClassicMember(row[1], row[2], row[3], row[4], row[5], row[6], {name: row[7]}, row[8], topics)
            leader = group.leader
            group.add(member, group.protocol_type or "")
            group.leader = leader
            group.state = GroupState.STABLE
        for group in groups.values():
            group.subscribed_topics = group.read_subscriptions()
        return list(groups.values())

    def load_consumers(self) -> list[ConsumerGroup]:
        """Load all groups of the consumer protocol. :raises ConfigError: if the file is damaged."""
        with self._store.reading():
            rows = self._store.rows("SELECT group_id, content FROM consumer_groups")
            return [_decoded(group_id, parsed_json(content)) for group_id, content in rows]

    def save(self, group: Group) -> None:
        """Store the current state of a classic group, in place of a group of the consumer protocol with its id.

        :raises ApiError: UNKNOWN_SERVER_ERROR, if it is too large.
        """
        name = group.protocol_name or ""
        row = group.group_id, group.protocol_type, group.generation, group.protocol_name, group.leader
        members = [
            (group.group_id, *_IDENTITY(member), member.protocols.get(name, b""), member.assignment)
            for member in group.members.values()
        ]
        self._check(group.group_id, chain.from_iterable(members))
        with self._store.transaction() as connection:
            _delete(connection, group.group_id)
            connection.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)", (*row, group.empty_since_ms))
            connection.executemany("INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", members)

    def save_consumers(self, group: ConsumerGroup) -> None:
        """Store the current state of a group of the consumer protocol, in place of a classic group with its id.

        :raises ApiError: UNKNOWN_SERVER_ERROR, if it is too large.
        """
        said = (
            (each.instance_id, each.rack_id, each.topic_regex, *each.topic_names) for each in group.members.values()
        )
        self._check(group.group_id, chain.from_iterable(said))
        with self._store.transaction() as connection:
            _delete(connection, group.group_id)
            connection.execute(
                "INSERT INTO consumer_groups VALUES (?, ?)", (group.group_id, json.dumps(_encoded(group)))
            )

    def _check(self, group_id: str, said: Iterable[object]) -> None:
        size = sum(len(part) for part in said if isinstance(part, str | bytes))
        if size > self._most_bytes:
            raise too_large(group_id, size)

    def delete(self, group_id: str) -> None:
        """Delete a group of either protocol and all its offsets, including those of open transactions."""
        with self._store.transaction() as connection:
            _delete(connection, group_id)
            connection.execute("DELETE FROM offsets WHERE group_id = ?", (group_id,))


def _delete(connection: sqlite3.Connection, group_id: str) -> None:
    """Delete a group of either protocol, except its offsets."""
    for table in ("groups", "members", "consumer_groups"):
        connection.execute(f"DELETE FROM {table} WHERE group_id = ?", (group_id,))


def _encoded(group: ConsumerGroup) -> dict[str, Any]:
    return {
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topics": {topic_id.hex: count for topic_id, count in group.topics.items()},
        "regexes": {regex: sorted(topics) for regex, topics in group.regexes.items()},
        "targets": {member_id: _listed(target) for member_id, target in group.targets.items()},
        "members": [
            {
                **{name: getattr(member, name) for name in _PLAIN},
                "topic_names": sorted(member.topic_names),
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
