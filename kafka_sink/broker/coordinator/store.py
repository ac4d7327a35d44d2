"""The persistent state of the coordinators, in one SQLite file, and the transactional ids in it.

Kafka stores it in the topics ``__consumer_offsets`` and ``__transaction_state``. Coordinators read the file when they
start, and write every change to it before they acknowledge it. Any thread may read and write. All changes that belong
together must be made in one :meth:`CoordinatorStore.transaction`. The store makes no decisions.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata, TransactionState
from kafka_sink.common.bounded import parsed_json
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from kafka_sink.common.files import make_own_file, require_own
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.text import words

FILE_NAME: Final = "coordinators.sqlite"
_FORMAT: Final = 1
#: SQLite errors that do not mean that the content of the file is invalid; the file may be readable later.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)

_TABLES: Final = (
    # A group and its current generation. Its members are stored when the group's leader has sent their assignments.
    """CREATE TABLE IF NOT EXISTS groups (
        group_id TEXT PRIMARY KEY, protocol_type TEXT, generation INTEGER NOT NULL, protocol_name TEXT, leader TEXT,
        empty_since_ms INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS members (
        group_id TEXT NOT NULL, member_id TEXT NOT NULL, instance_id TEXT, client_id TEXT NOT NULL,
        client_host TEXT NOT NULL, rebalance_timeout_ms INTEGER NOT NULL, session_timeout_ms INTEGER NOT NULL,
        metadata BLOB NOT NULL, assignment BLOB NOT NULL,
        PRIMARY KEY (group_id, member_id)
    )""",
    # A group of the consumer protocol is JSON, because it is always read and written as a whole.
    "CREATE TABLE IF NOT EXISTS consumer_groups (group_id TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
    # producer_id is -1 for committed offsets, or the producer id of the open transaction that will commit them.
    # sequence orders the commits of a partition; expire_ms is null if the broker's retention applies.
    """CREATE TABLE IF NOT EXISTS offsets (
        group_id TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, producer_id INTEGER NOT NULL,
        offset INTEGER NOT NULL, leader_epoch INTEGER NOT NULL, metadata TEXT NOT NULL, commit_ms INTEGER NOT NULL,
        expire_ms INTEGER, sequence INTEGER NOT NULL,
        PRIMARY KEY (group_id, topic, partition, producer_id)
    ) WITHOUT ROWID""",
    # One transactional id; participants and groups are JSON, because they are always read and written as a whole.
    """CREATE TABLE IF NOT EXISTS transactions (
        transactional_id TEXT PRIMARY KEY, producer_id INTEGER NOT NULL, timeout_ms INTEGER NOT NULL,
        last_update_ms INTEGER NOT NULL, producer_epoch INTEGER NOT NULL, last_producer_epoch INTEGER NOT NULL,
        previous_producer_id INTEGER NOT NULL, next_producer_id INTEGER NOT NULL, state TEXT NOT NULL,
        start_ms INTEGER NOT NULL, version INTEGER NOT NULL, partitions TEXT NOT NULL, offset_groups TEXT NOT NULL
    ) WITHOUT ROWID""",
)


class CoordinatorStore:
    """The file in *directory*; created if it does not exist.

    *flush_writes*: writes survive a power failure, not only the end of the process.

    :raises ConfigError: if the file is damaged, or has another format.
    :raises OSError: if the file cannot be used now, because the disk is full or another program has locked it.
    """

    def __init__(self, directory: Path, *, flush_writes: bool) -> None:
        self._path = directory / FILE_NAME
        self._lock = threading.Lock()
        for suffix in ("", "-journal", "-wal", "-shm"):
            require_own(directory / f"{FILE_NAME}{suffix}")
        try:
            # SQLite gives its additional files the same permissions.
            make_own_file(self._path)
            # Used by any thread that holds the lock.
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise OSError(f"{self._path} cannot be opened: {error}") from error
        try:
            self._prepare(flush_writes=flush_writes)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, *, flush_writes: bool) -> None:
        with self.reading():
            self._connection.execute("PRAGMA journal_mode=WAL")
            # With NORMAL a power failure may lose the last writes, but never leaves a corrupt file.
            self._connection.execute(f"PRAGMA synchronous={'FULL' if flush_writes else 'NORMAL'}")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _FORMAT):
                raise ConfigError(f"{self._path} has format {version}, expected {_FORMAT}")
            (tables,) = self._connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'").fetchone()
            # Files of earlier releases lack some of them.
            if tables < len(_TABLES):
                self._connection.execute("BEGIN IMMEDIATE")
                for table in _TABLES:
                    self._connection.execute(table)
                self._connection.execute(f"PRAGMA user_version={_FORMAT}")
                self._connection.execute("COMMIT")
            (state,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise ValueError(state)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Translate errors while the content of the file is read.

        :raises ConfigError: if the content is invalid.
        :raises OSError: if the file cannot be read or written now, which says nothing about its content.
        """
        try:
            yield
        except ConfigError:
            raise
        except (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError) as error:
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _PASSING:
                raise OSError(
                    f"{self._path} cannot be used now: {error}; its data is intact: free space on its disk, or end "
                    "the program that locks it, and start again"
                ) from error
            raise ConfigError(
                f"{self._path} is damaged: {error}; restore it from a copy, or remove it and all files whose names "
                "begin with its name: groups, their offsets and transactional ids are then lost"
            ) from error

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query. :raises ApiError: COORDINATOR_NOT_AVAILABLE if the file cannot be read."""
        with self._lock, self._errors():
            return self._connection.execute(sql, parameters).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Execute the statements of the block atomically; their changes are in the file when the block ends. The block
        holds the store's lock, so it must be short.

        :raises ApiError: COORDINATOR_NOT_AVAILABLE if the file cannot be written; nothing has changed.
        """
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # SQLite may already have rolled back, for example because the disk is full.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = f"{self._path} cannot be used: {error}"
            raise ApiError(text, ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with self._lock:
            self._connection.close()


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
        partitions, groups = json.dumps(sorted(metadata.partitions)), json.dumps(sorted(metadata.groups))
        with self._store.transaction() as connection:
            connection.execute(_SAVE, (*_PLAIN(metadata), partitions, groups))

    def delete(self, transactional_ids: Collection[str]) -> None:
        """Delete ids. :raises ApiError: COORDINATOR_NOT_AVAILABLE; nothing has changed."""
        with self._store.transaction() as connection:
            connection.executemany(
                "DELETE FROM transactions WHERE transactional_id = ?", [(each,) for each in transactional_ids]
            )
