"""Writes of the coordinators' store are atomic: they are applied as a whole, or not at all."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.coordinator.group_store import GroupStore
from kafka_sink.broker.coordinator.store import FILE_NAME, CoordinatorStore, TransactionStore
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.errors import ApiError, ConfigError, ErrorCode
from tests.conftest import Figure

INSERT = "INSERT INTO groups VALUES (?, 'consumer', 1, NULL, NULL, 0)"


def test_what_was_written_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    store = CoordinatorStore(tmp_path, flush_writes=False)
    with store.transaction() as connection:
        connection.execute(INSERT, ("readers",))

    # Not closed: a killed process does not close its files, either.
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


class _FullDisk(sqlite3.Connection):
    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error


def test_a_full_disk_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=_FullDisk))
    with pytest.raises(OSError, match="cannot be used now: database or disk is full; its data is intact"):
        CoordinatorStore(tmp_path, flush_writes=False)


def test_store_locked_by_another_program_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CoordinatorStore(tmp_path, flush_writes=False).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
        with pytest.raises(OSError, match="cannot be used now: database is locked"):
            CoordinatorStore(tmp_path, flush_writes=False)
    CoordinatorStore(tmp_path, flush_writes=False).close()


def test_store_opens_while_another_one_is_in_a_transaction(tmp_path: Path) -> None:
    first = CoordinatorStore(tmp_path, flush_writes=False)
    with first.transaction():
        CoordinatorStore(tmp_path, flush_writes=False).close()
    first.close()


@pytest.mark.behaviour(
    "Faults: disk and power", "Rows of the coordinators' file that make no sense are refused by the name of the file"
)
def test_invalid_rows_are_refused_with_the_file_name(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute("INSERT INTO transactions VALUES ('t', 1, 1, 1, 0, -1, -1, -1, 'Odd', 1, 2, '[]', '[]')")
        connection.commit()

    with pytest.raises(
        ConfigError, match="sqlite is damaged: 'Odd' is not a valid TransactionState; restore it from a copy"
    ):
        EmbeddedCluster(data_dir=tmp_path).start()

    (tmp_path / FILE_NAME).unlink()
    # The failed start has released the directory and every file that it had opened.
    with EmbeddedCluster(data_dir=tmp_path):
        pass


@pytest.mark.behaviour(
    "Faults: disk and power", "Flipped bits in the coordinators' file are refused, or change only what they hit"
)
def test_flipped_bits_are_refused_or_change_only_what_they_hit(tmp_path: Path, figure: Figure) -> None:
    store = CoordinatorStore(tmp_path, flush_writes=False)
    with store.transaction() as connection:
        connection.execute(INSERT, ("readers",))
        connection.execute("INSERT INTO transactions VALUES ('t', 1, 1, 1, 0, -1, -1, -1, 'Ongoing', 1, 2, '[]', '[]')")
    store.close()
    path = tmp_path / FILE_NAME
    sound = path.read_bytes()

    def read() -> object:
        again = CoordinatorStore(tmp_path, flush_writes=False)
        try:
            return list(TransactionStore(again).load()), [
                group.group_id for group in GroupStore(again, 1_000_000).load()
            ]
        finally:
            again.close()

    before, outcomes = read(), Counter[str]()
    for position in range(0, len(sound), 97):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            outcomes["unnoticed" if read() == before else "other rows"] += 1
        except (ConfigError, ApiError):
            outcomes["refused"] += 1
    figure("one bit of the coordinators' file flipped", ", ".join(f"{n} {what}" for what, n in outcomes.most_common()))
    assert outcomes["refused"] > 5
