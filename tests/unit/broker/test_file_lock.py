"""Locks between processes; here the other process is another open file, which the system holds apart as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.broker.file_lock import FileLock


@pytest.mark.behaviour("Nodes in several processes", "A file lock has one holder at a time")
@pytest.mark.parametrize("is_directory", [False, True])
def test_file_lock_has_one_holder_at_a_time(tmp_path: Path, is_directory: bool) -> None:
    path = tmp_path / "held"
    if is_directory:
        path.mkdir()
    with FileLock(path):
        with pytest.raises(BlockingIOError):
            FileLock(path)
        with pytest.raises(BlockingIOError):
            FileLock(path, shared=True)
    FileLock(path).release()


def test_shared_file_locks_exclude_an_exclusive_one(tmp_path: Path) -> None:
    path = tmp_path / "held"
    with FileLock(path, shared=True), FileLock(path, shared=True), pytest.raises(BlockingIOError):
        FileLock(path)


def test_file_lock_notices_that_its_file_was_moved(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with FileLock(tmp_path / "a") as lock:
        assert lock.is_at(tmp_path / "a")
        (tmp_path / "a").rename(tmp_path / "b")
        assert not lock.is_at(tmp_path / "a")
        (tmp_path / "a").mkdir()
        assert not lock.is_at(tmp_path / "a") and lock.is_at(tmp_path / "b")
