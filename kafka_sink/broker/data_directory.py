"""The data directory of a cluster: locked while the cluster runs, and temporary without *data_dir*.

The threads that start and stop clusters lock, create and remove it. The lock is the operating system's on an open file,
which the system releases when its process dies, so a kill leaves nothing to clean up. A forked child closes its copy of
the file; otherwise the lock would be held for as long as the child lives. It must not be used between threads, because
a lock belongs to an open file.

A temporary directory is removed with its cluster, or at the next start of another one: an unlocked one is left over
from a process that ended without stopping its cluster. A directory must not be removed if another process has it
locked, if it is not marked as temporary, or, in a forked child, if it belongs to the parent.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

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


def hold(path: Path, owner: str) -> FileLock:
    """Lock *path*. :raises OSError: if another *owner* has locked it; the text names the directory."""
    try:
        return FileLock(path)
    except BlockingIOError:
        raise OSError(f"data directory {path.parent} is in use by another {owner}") from None


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
        shutil.rmtree(mark.parent, ignore_errors=True)
        lock.release()
