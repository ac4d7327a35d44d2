"""A lock between processes, based on the operating system's lock on an open file.

The threads that start and stop brokers take and release it. The system releases it when its process dies, so a kill
leaves nothing to clean up. A forked child closes its copy of the file; otherwise the lock would be held for as long as
the child lives. It must not be used between threads, because a lock belongs to an open file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from kafka_sink.common.files import OWNER_ONLY, require_own
from kafka_sink.common.threads import at_fork, no_forks


class FileLock:
    """Holds a lock on *path* (which may be a directory) from construction to :meth:`release`. The file is created if it
    does not exist, unless *create* is false.

    :raises BlockingIOError: if the lock is held elsewhere. :raises OSError: if the file cannot be opened.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        flags = os.O_RDONLY
        if create and not path.is_dir():
            require_own(path)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with no_forks():
            self._fd = os.open(path, flags | os.O_CLOEXEC, OWNER_ONLY)
            at_fork(self, FileLock.release)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
