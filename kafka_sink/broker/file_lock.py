"""Locks between processes, based on operating system locks on open files.

The threads that start and stop brokers take and release them, and code that changes what several processes share. The
system releases a lock when its process dies, so a kill leaves nothing to clean up. A forked child closes its copy of
the file; otherwise the lock would be held for as long as the child lives. These locks must not be used between threads,
because a lock belongs to an open file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from kafka_sink.common.files import OWNER_ONLY
from kafka_sink.common.threads import at_fork, no_forks


class FileLock:
    """Holds a lock on *path* (which may be a directory) from construction to :meth:`release`.

    The file is created if it does not exist, unless *create* is false. *shared* takes a shared lock, which other shared
    locks do not exclude; *wait* blocks until the lock is available.

    :raises BlockingIOError: if the lock is held elsewhere. :raises OSError: if the file cannot be opened.
    """

    def __init__(self, path: Path, *, shared: bool = False, wait: bool = False, create: bool = True) -> None:
        flags = os.O_RDWR | os.O_CREAT if create and not path.is_dir() else os.O_RDONLY
        with no_forks():
            self._fd = os.open(path, flags | os.O_CLOEXEC, OWNER_ONLY)
            at_fork(self, FileLock.release)
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(self._fd, kind if wait else kind | fcntl.LOCK_NB)
        except BaseException:
            self.release()
            raise

    def is_at(self, path: Path) -> bool:
        """Whether *path* is still the locked file; it may have been moved since it was opened."""
        try:
            return os.path.samestat(os.fstat(self._fd), path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
