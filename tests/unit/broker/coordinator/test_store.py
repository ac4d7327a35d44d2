"""What coordinators store is there as a whole, or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kafka_sink.broker.coordinator.store import FILE_NAME, CoordinatorStore
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode

INSERT = "INSERT INTO groups VALUES (?, 'consumer', 1, NULL, NULL, 0)"


def test_what_was_written_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path, flush_writes=False)
    with store.transaction() as connection:
        connection.execute(INSERT, ("readers",))

    # Not closed: a killed process does not close its files either.
    again = CoordinatorStore(tmp_path, flush_writes=True)

    assert again.rows("SELECT group_id FROM groups WHERE generation = ?", (1,)) == [("readers",)]
    again.close()
    store.close()
    store.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path, flush_writes=False)

    with pytest.raises(RuntimeError), store.transaction() as connection:
        connection.execute(INSERT, ("readers",))
        raise RuntimeError("half-way")
    with pytest.raises(ApiError) as caught, store.transaction() as connection:
        connection.execute(INSERT, ("writers",))
        connection.execute(INSERT, ("writers",))

    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert store.rows("SELECT * FROM groups") == []
    with store.transaction() as connection:
        connection.execute(INSERT, ("readers",))
    assert len(store.rows("SELECT * FROM groups")) == 1
    store.close()


def test_a_file_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database, and longer than the header of one would be" * 40)
    with pytest.raises(ConfigError, match="damaged"):
        CoordinatorStore(tmp_path, flush_writes=False)

    (tmp_path / FILE_NAME).unlink()
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("PRAGMA user_version=7")
    connection.close()
    with pytest.raises(ConfigError, match="format 7"):
        CoordinatorStore(tmp_path, flush_writes=False)
