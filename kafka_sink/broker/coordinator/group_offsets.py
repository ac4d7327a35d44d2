"""The offsets of groups: committed offsets, and pending offsets of open transactions.

Nothing is cached in memory: every call reads the coordinators' file. :class:`GroupCoordinator` calls this module under
its lock. It must not decide who may commit, which depends on the group's members.

Source: apache/kafka ``OffsetMetadataManager``; KIP-98, KIP-447 (pending offsets), KIP-496 (deleting).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Protocol

from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.common.model import NO_OFFSET, TopicPartition

#: Stored in place of a producer id for offsets that are committed.
_COMMITTED: Final = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, the leader epoch of the record before it (−1 = unknown), and the group's metadata."""

    offset: int
    leader_epoch: int
    metadata: str


_VALUES: Final = attrgetter("offset", "leader_epoch", "metadata")
#: The result for a partition without a committed offset.
NOTHING_COMMITTED: Final = CommittedOffset(NO_OFFSET, -1, "")


class KeepsOffsets(Protocol):
    """A group of either protocol, as far as it decides how long its offsets are kept."""

    group_id: str

    def kept_since_ms(self, topic: str, commit_ms: int) -> int | None:
        """The start of the retention time of an offset (wall clock); None while it may not expire."""


class GroupOffsets:
    """Offsets by group and partition.

    :raises ApiError: COORDINATOR_NOT_AVAILABLE, from every method, if the file cannot be read or written.
    """

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
        """Store all offsets or none, either committed or pending until the transaction of *producer_id* ends.

        *expire_ms* is the time at which they expire, if the client specifies one (wall clock, as *now_ms*).
        """
        rows = [
            (group_id, *partition, producer_id, *_VALUES(committed), now_ms, expire_ms, group_id, *partition)
            for partition, committed in offsets.items()
        ]
        with self._store.transaction() as connection:
            connection.executemany(
                "REPLACE INTO offsets VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT COALESCE(MAX(sequence), 0) + 1"
                " FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?))",
                rows,
            )

    def fetch(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
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
        """Complete the transaction of *producer_id*: its pending offsets in *groups* become committed, or are
        discarded.

        A pending offset that is older than a later commit is discarded in either case.
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
        """Delete the committed and the pending offsets of *partitions*."""
        rows = [(group_id, partition.topic, partition.partition) for partition in partitions]
        with self._store.transaction() as connection:
            connection.executemany("DELETE FROM offsets WHERE group_id = ? AND topic = ? AND partition = ?", rows)

    def forget_topics(self, topics: Sequence[str]) -> None:
        """Delete all offsets of topics that were deleted."""
        with self._store.transaction() as connection:
            connection.executemany("DELETE FROM offsets WHERE topic = ?", [(topic,) for topic in topics])

    def expire(self, group: KeepsOffsets, retention_ms: int, now_ms: int) -> bool:
        """Delete expired offsets (wall clock); returns True if the group has no offsets left, pending ones included."""
        rows = self._store.rows(
            "SELECT topic, partition, commit_ms, expire_ms FROM offsets WHERE group_id = ? AND producer_id = ?",
            (group.group_id, _COMMITTED),
        )
        pending = self.pending(group.group_id)
        kept = len(pending)
        expired = []
        for topic, index, commit_ms, expire_ms in rows:
            since_ms = group.kept_since_ms(topic, commit_ms)
            until_ms = expire_ms if expire_ms is not None else (since_ms or 0) + retention_ms
            partition = TopicPartition(topic, index)
            if since_ms is not None and until_ms <= now_ms and partition not in pending:
                expired.append(partition)
            else:
                kept += 1
        if expired:
            self.delete(group.group_id, expired)
        return kept == 0
