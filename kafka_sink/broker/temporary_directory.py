"""The data directory of a cluster without *data_dir*: removed with the cluster, or at the next start of another one.

Created and removed by the threads that start and stop clusters. A process locks its directory, so an unlocked one is
left over from a process that ended without stopping its cluster. A directory must not be removed if another process has
it locked, if it is not marked as temporary, or, in a forked child, if it belongs to the parent.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from kafka_sink.broker.file_lock import FileLock

_PREFIX: Final = "kafkalite-"
#: A file of this name marks the directory as temporary; a user's data directory may have a similar name.
_MARK: Final = ".temporary"


class TemporaryDirectory:
    """A new directory at :attr:`path`; those of dead processes are removed first."""

    def __init__(self) -> None:
        """:raises OSError: if it cannot be created."""
        _remove_left_over(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = FileLock(self.path)
        # Marked after it is locked, so that no other process finds it marked but unlocked.
        (self.path / _MARK).touch()
        self._owner_pid = os.getpid()

    def remove(self) -> None:
        """Remove the directory and its content. A second call, or a call in a forked child, does nothing."""
        if os.getpid() == self._owner_pid:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock.release()


def _remove_left_over(directory: Path) -> None:
    for mark in directory.glob(f"{_PREFIX}*/{_MARK}"):
        try:
            lock = FileLock(mark.parent, create=False)
        except (BlockingIOError, FileNotFoundError, PermissionError):
            # In use, being removed by another start, or owned by another user.
            continue
        with lock:
            shutil.rmtree(mark.parent, ignore_errors=True)
