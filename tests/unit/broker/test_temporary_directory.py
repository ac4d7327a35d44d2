"""Data of clusters without a data directory; a second open file stands for another process, as for any lock."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kafka_sink.broker import data_directory
from kafka_sink.broker.data_directory import FileLock, TemporaryDirectory
from kafka_sink.broker.embedded_broker import EmbeddedCluster

LOCKS: dict[Path, FileLock] = {}


class NotedLock(FileLock):
    def __init__(self, path: Path, *, create: bool = True) -> None:
        super().__init__(path, create=create)
        LOCKS[path] = self


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(data_directory, "FileLock", NotedLock)
    return tmp_path


def die(directory: TemporaryDirectory) -> None:
    """Simulate a killed process: the system has released the lock, and nothing else has happened."""
    LOCKS[directory.path].release()


@pytest.mark.behaviour("EmbeddedCluster", "Directories that dead processes left are removed, and no others")
def test_directory_of_a_dead_process_is_removed_at_next_start(place: Path) -> None:
    left = TemporaryDirectory()
    (left.path / "logs").mkdir()
    die(left)
    with EmbeddedCluster():
        assert not left.path.exists()
    assert list(place.iterdir()) == []


@pytest.mark.behaviour("EmbeddedCluster", "Directories that dead processes left are removed, and no others")
def test_used_or_foreign_directories_are_not_removed(place: Path) -> None:
    used, mine = TemporaryDirectory(), place / "kafkalite-mine"
    with EmbeddedCluster(data_dir=mine):
        pass
    other = TemporaryDirectory()
    assert used.path.exists() and (mine / "cluster.json").exists()
    for each in (used, other):
        each.remove()
        each.remove()
    assert list(place.iterdir()) == [mine]


def test_concurrent_cleanups_of_directories_do_not_conflict(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [TemporaryDirectory() for _ in range(3)]
    for each in left:
        die(each)
    found = sorted(place.glob("*/.temporary"))
    # This process listed the directories before the other one removed them.
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(found))
    left[0].path.joinpath("logs").mkdir()
    TemporaryDirectory().remove()
    TemporaryDirectory().remove()
    assert list(place.iterdir()) == []
