"""Transactional ids in the coordinators' file.

The transaction coordinator calls it under its lock. It must not make decisions: it stores what it receives, and stored
values survive a kill.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from operator import attrgetter
from typing import Any, Final

from kafka_sink.broker.coordinator.store import CoordinatorStore
from kafka_sink.broker.coordinator.transaction_metadata import TransactionMetadata, TransactionState
from kafka_sink.common.bounded import parsed_json
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.text import words

#: The columns that have the value of the field with their name.
_PLAIN_COLUMNS: Final = words("""
    transactional_id producer_id timeout_ms last_update_ms producer_epoch last_producer_epoch previous_producer_id
    next_producer_id state start_ms version
""")
_PLAIN: Final = attrgetter(*_PLAIN_COLUMNS)
_COLUMNS: Final = ", ".join((*_PLAIN_COLUMNS, "partitions", "offset_groups"))
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
            fields = dict(zip(_PLAIN_COLUMNS, row, strict=False))
            partitions, groups = map(parsed_json, row[-2:])
            fields["state"] = TransactionState(fields["state"])
            fields["partitions"] = frozenset(TopicPartition(topic, index) for topic, index in partitions)
            yield TransactionMetadata(**fields, groups=frozenset(groups))

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
    partitions, groups = json.dumps(sorted(metadata.partitions)), json.dumps(sorted(metadata.groups))
    return (*_PLAIN(metadata), partitions, groups)
