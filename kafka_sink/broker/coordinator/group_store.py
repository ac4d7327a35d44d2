"""Stores classic groups in the coordinators' file; a generation and its members are stored as a whole.

:class:`GroupCoordinator` calls it under its lock. Of the members' protocols only the selected one is stored, as in
Kafka: after a restart no protocol is selected before all members have joined again.

Source: apache/kafka ``GroupMetadataValue``.
"""

from __future__ import annotations

import sqlite3
from operator import attrgetter
from typing import Final

from kafka_sink.broker.coordinator.group_metadata import Group, GroupState, Member
from kafka_sink.broker.coordinator.store import CoordinatorStore

_IDENTITY: Final = attrgetter(
    "member_id", "instance_id", "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms"
)


class GroupStore:
    """Reads and writes classic groups.

    :raises ApiError: COORDINATOR_NOT_AVAILABLE, from every method, if the file cannot be read or written.
    """

    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store

    def load(self) -> list[Group]:
        """Load all groups; a group with members is Stable. :raises ConfigError: if the file is damaged."""
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
            protocols = {group.protocol_name or "": row[7]}
            member = Member(row[1], row[2], row[3], row[4], row[5], row[6], protocols, row[8])
            leader = group.leader
            group.add(member, group.protocol_type or "")
            group.leader = leader
            group.state = GroupState.STABLE
        for group in groups.values():
            group.subscribed_topics = group.read_subscriptions()
        return list(groups.values())

    def save(self, group: Group) -> None:
        """Store the current state of a group, in place of a group of the consumer protocol with its id."""
        name = group.protocol_name or ""
        row = group.group_id, group.protocol_type, group.generation, group.protocol_name, group.leader
        members = [
            (group.group_id, *_IDENTITY(member), member.protocols.get(name, b""), member.assignment)
            for member in group.members.values()
        ]
        with self._store.transaction() as connection:
            delete_group(connection, group.group_id)
            connection.execute("INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?)", (*row, group.empty_since_ms))
            connection.executemany("INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", members)

    def delete(self, group_id: str) -> None:
        """Delete a group of either protocol and all its offsets, including those of open transactions."""
        with self._store.transaction() as connection:
            delete_group(connection, group_id)
            connection.execute("DELETE FROM offsets WHERE group_id = ?", (group_id,))


def delete_group(connection: sqlite3.Connection, group_id: str) -> None:
    """Delete what is stored of a group of either protocol, except its offsets."""
    for table in ("groups", "members", "consumer_groups"):
        connection.execute(f"DELETE FROM {table} WHERE group_id = ?", (group_id,))
