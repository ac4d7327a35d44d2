"""Locks between processes; here the other process is another open file, which the system holds apart as well."""

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
