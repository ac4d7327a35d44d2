"""Where a cluster without a data directory keeps its data: removed with it, or at the next start of another one.

Made and removed by the threads that start and stop clusters. Whoever has such a directory holds it, so one that nobody
holds is left over from a process that ended without stopping its cluster. Must never remove what another process holds,
what is not marked as temporary, or, in a forked child, what is the parent's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from kafka_sink.broker.file_lock import FileLock

_PREFIX: Final = "kafkalite-"
#: A file of this name says that the directory was made here: somebody's data directory may be called as ours are.
_MARK: Final = ".temporary"


class TemporaryDirectory:
    """A new directory at :attr:`path`; those of dead processes are removed first."""

    def __init__(self) -> None:
        """:raises OSError: it cannot be made."""
        _remove_left_over(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = FileLock(self.path)
        # Only now, so that nobody ever finds it marked and not held.
        (self.path / _MARK).touch()
        self._owner_pid = os.getpid()

    def remove(self) -> None:
        """Remove it with all it holds. A second call does nothing, and neither does one in a forked child."""
        if os.getpid() == self._owner_pid:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock.release()


def _remove_left_over(directory: Path) -> None:
    for mark in directory.glob(f"{_PREFIX}*/{_MARK}"):
        try:
            lock = FileLock(mark.parent, create=False)
        except (BlockingIOError, FileNotFoundError, PermissionError):
            # In use, removed by another start at this moment, or another user's.
            continue
        with lock:
            shutil.rmtree(mark.parent, ignore_errors=True)
