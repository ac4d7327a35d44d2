"""Locks between processes: files that the operating system holds for whoever has them open.

Taken and released by the threads that start and stop brokers, and by whoever changes what several processes share. The
system drops a lock when its process dies, so a kill leaves nothing behind to clean up. A child forked meanwhile lets go
of its copy, or the lock would be held for as long as the child lives. Must never be taken for a lock between threads:
it is held per open file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from kafka_sink.common.threads import at_fork


class FileLock:
    """Holds *path* (a directory as well) from construction to :meth:`release`.

    A file is created if need be, unless *create* says that it has to be there. *shared* lets others hold it as well who
    say the same; *wait* blocks until it can be had.

    :raises BlockingIOError: somebody else holds it. :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, shared: bool = False, wait: bool = False, create: bool = True) -> None:
        flags = os.O_RDWR | os.O_CREAT if create and not path.is_dir() else os.O_RDONLY
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(self._fd, kind if wait else kind | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._fd)
            raise
        at_fork(self, FileLock.release)

    def is_at(self, path: Path) -> bool:
        """Whether *path* still leads to what is held: it may have been moved since it was opened."""
        try:
            return os.path.samestat(os.fstat(self._fd), path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others have it. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()
