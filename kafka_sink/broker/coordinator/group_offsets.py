"""How far groups have read: committed offsets, and those that wait for the end of a transaction.

Nothing is kept in memory: the coordinators' file is asked. Called by :class:`GroupCoordinator` under its lock. Must
never judge who may commit; that depends on the group's members.

Source: apache/kafka ``OffsetMetadataManager``; KIP-98, KIP-447 (pending offsets), KIP-496 (deleting).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.broker.coordinator.group_metadata import Group, GroupState
from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.common.model import NO_OFFSET, TopicPartition

#: Stands in the file where a transaction's producer id would be.
_COMMITTED: Final = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, the leader epoch of the one before (−1 = not said), and what the group wrote to it."""

    offset: int
    leader_epoch: int
    metadata: str


#: What a partition has that nothing was committed for.
NOTHING_COMMITTED: Final = CommittedOffset(NO_OFFSET, -1, "")


class GroupOffsets:
    """Offsets by group and partition. Every method raises ApiError, COORDINATOR_NOT_AVAILABLE, if the file fails it."""

    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        *,
        expire_ms: int | None = None,
        producer_id: int = _COMMITTED,
    ) -> None:
        """Store offsets: all of them or none; for good, or until the transaction of *producer_id* ends.

        *expire_ms* is when they are forgotten, where the client says so (wall clock, as *now_ms*).
        """
        rows = [
            (
                group_id,
                partition.topic,
                partition.partition,
                producer_id,
                committed.offset,
                committed.leader_epoch,
                committed.metadata,
                now_ms,
                expire_ms,
                group_id,
                partition.topic,
                partition.partition,
            )
            for partition, committed in offsets.items()
        ]
        with self._store.transaction() as connection:
            connection.executemany(
                "REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT COALESCE(MAX(sequence), 0) + 1"
                " FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?))",
                rows,
            )

    def fetch(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Everything that is committed."""
        rows = self._store.rows(
            "SELECT topic, partition, offset, leader_epoch, metadata FROM offsets"
            " WHERE group_id = ? AND producer_id = ? ORDER BY topic, partition",
            (group_id, _COMMITTED),
        )
        return {TopicPartition(row[0], row[1]): CommittedOffset(row[2], row[3], row[4]) for row in rows}

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """Partitions with offsets of an open transaction."""
        rows = self._store.rows(
            "SELECT topic, partition FROM offsets WHERE group_id = ? AND producer_id != ?", (group_id, _COMMITTED)
        )
        return frozenset(TopicPartition(topic, partition) for topic, partition in rows)

    def complete(self, producer_id: int, groups: Collection[str], *, committed: bool) -> None:
        """The transaction of *producer_id* has ended: its offsets in *groups* count now, or never did.

        One that was overtaken by a later commit does not come back.
        """
        with self._store.transaction() as connection:
            for group_id in groups:
                mine = (group_id, producer_id)
                if committed:
                    connection.execute(
                        "DELETE FROM offsets WHERE group_id = ? AND producer_id = ? AND sequence <"
                        " (SELECT sequence FROM offsets AS other WHERE other.group_id = offsets.group_id AND"
                        " other.topic = offsets.topic AND other.partition = offsets.partition AND"
                        f" other.producer_id = {_COMMITTED})",
                        mine,
                    )
                    connection.execute(
                        f"UPDATE OR REPLACE offsets SET producer_id = {_COMMITTED}"
                        " WHERE group_id = ? AND producer_id = ?",
                        mine,
                    )
                else:
                    connection.execute("DELETE FROM offsets WHERE group_id = ? AND producer_id = ?", mine)

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was committed for *partitions*, and what open transactions would commit."""
        rows = [(group_id, partition.topic, partition.partition) for partition in partitions]
        with self._store.transaction() as connection:
            connection.executemany("DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?", rows)

    def forget_topic(self, topic: str) -> None:
        """The topic is gone, and so is everybody's place in it."""
        with self._store.transaction() as connection:
            connection.execute("DELETE FROM offsets WHERE topic = ?", (topic,))

    def expire(self, group: Group, retention_ms: int, now_ms: int) -> bool:
        """Forget offsets whose time is up (wall clock); True when the group has none left, pending ones included."""
        rows = self._store.rows(
            "SELECT topic, partition, commit_ms, expire_ms FROM offsets WHERE group_id = ? AND producer_id = ?",
            (group.group_id, _COMMITTED),
        )
        pending = self.pending(group.group_id)
        kept = len(pending)
        expired = []
        for row in rows:
            partition = TopicPartition(row[0], row[1])
            if partition not in pending and self._is_expired(group, row, retention_ms, now_ms):
                expired.append(partition)
            else:
                kept += 1
        if expired:
            self.delete(group.group_id, expired)
        return kept == 0

    @staticmethod
    def _is_expired(group: Group, row: tuple[Any, ...], retention_ms: int, now_ms: int) -> bool:
        topic, _, commit_ms, expire_ms = row
        if group.protocol_type is None:
            since_ms = commit_ms
        elif group.state is GroupState.EMPTY:
            since_ms = group.empty_since_ms
        elif group.state is GroupState.STABLE and group.subscribed_topics is not None:
            since_ms = commit_ms
        else:
            return False
        if group.is_subscribed_to(topic):
            return False
        return bool(now_ms >= expire_ms) if expire_ms is not None else bool(now_ms - since_ms >= retention_ms)
