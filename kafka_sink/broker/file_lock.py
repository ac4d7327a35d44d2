"""Locks between processes: files that the operating system holds for whoever has them open.

Taken and released by the threads that start and stop brokers, and by whoever changes what several processes share. The
system drops a lock when its process dies, so a kill leaves nothing behind to clean up. Must never be taken for a lock
between threads: it is held per open file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType


class FileLock:
    """Holds *path* (created if need be; directories can be held as well) from construction to :meth:`release`.

    *shared* lets others hold it as well who say the same; *wait* blocks until it can be had.

    :raises BlockingIOError: somebody else holds it. :raises OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, shared: bool = False, wait: bool = False) -> None:
        flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(self._fd, kind if wait else kind | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._fd)
            raise

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
