"""Locks between processes; a second open file stands for the other process, as the system treats both alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.broker.data_directory import FileLock


@pytest.mark.behaviour("EmbeddedCluster", "A data directory is in use by one process at a time")
@pytest.mark.parametrize("is_directory", [False, True])
def test_file_lock_has_one_holder_at_a_time(tmp_path: Path, is_directory: bool) -> None:
    path = tmp_path / "held"
    if is_directory:
        path.mkdir()
    lock = FileLock(path)
    with pytest.raises(BlockingIOError):
        FileLock(path)
    lock.release()
    FileLock(path).release()
