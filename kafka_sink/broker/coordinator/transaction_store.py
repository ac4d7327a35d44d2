"""Transactional ids in the coordinators' file.

The transaction coordinator calls it under its lock. It must not make decisions: it stores what it receives, and stored
values survive a kill.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.coordinator.transaction_metadata import TransactionMetadata, TransactionState
from kafka_sink.common.model import TopicPartition

_COLUMNS: Final = (
    "transactional_id, producer_id, timeout_ms, last_update_ms, producer_epoch, last_producer_epoch, "
    "previous_producer_id, next_producer_id, state, start_ms, version, partitions, offset_groups"
)
_SAVE: Final = f"INSERT OR REPLACE INTO transactions ({_COLUMNS}) VALUES ({', '.join('?' * 13)})"


class TransactionStore:
    """Rows of the table ``transactions``."""

    def __init__(self, store: CoordinatorStore) -> None:
        self._store = store

    def load(self) -> list[TransactionMetadata]:
        """Load all transactional ids.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE if the file cannot be read. :raises ConfigError: if it is damaged.
        """
        with self._store.reading():
            return list(self._load())

    def _load(self) -> Iterator[TransactionMetadata]:
        for row in self._store.rows(f"SELECT {_COLUMNS} FROM transactions"):
            (
                transactional_id,
                producer_id,
                timeout_ms,
                last_update_ms,
                producer_epoch,
                last_producer_epoch,
                previous_producer_id,
                next_producer_id,
                state,
                start_ms,
                version,
                partitions,
                groups,
            ) = row
            yield TransactionMetadata(
                transactional_id,
                producer_id,
                timeout_ms,
                last_update_ms,
                producer_epoch,
                last_producer_epoch,
                previous_producer_id,
                next_producer_id,
                TransactionState(state),
                start_ms,
                version,
                frozenset(TopicPartition(topic, index) for topic, index in json.loads(partitions)),
                frozenset(json.loads(groups)),
            )

    def save(self, metadata: TransactionMetadata) -> None:
        """Store one id. :raises ApiError: COORDINATOR_NOT_AVAILABLE; nothing has changed."""
        with self._store.transaction() as connection:
            connection.execute(_SAVE, _row(metadata))

    def delete(self, transactional_ids: Collection[str]) -> None:
        """Delete ids. :raises ApiError: COORDINATOR_NOT_AVAILABLE; nothing has changed."""
        with self._store.transaction() as connection:
            connection.executemany(
                "DELETE FROM transactions WHERE transactional_id = ?", [(each,) for each in transactional_ids]
            )


def _row(metadata: TransactionMetadata) -> tuple[Any, ...]:
    return (
        metadata.transactional_id,
        metadata.producer_id,
        metadata.timeout_ms,
        metadata.last_update_ms,
        metadata.producer_epoch,
        metadata.last_producer_epoch,
        metadata.previous_producer_id,
        metadata.next_producer_id,
        metadata.state,
        metadata.start_ms,
        metadata.version,
        json.dumps(sorted(metadata.partitions)),
        json.dumps(sorted(metadata.groups)),
    )
