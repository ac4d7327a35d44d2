"""Limits the number of open log files, whatever the number of segments.

A file is opened when it is used and stays open until its descriptor is needed for another file: the least recently used
file that is not in use is closed first. Used by handler threads and the housekeeping thread, each under its partition's
lock or, for a flush, without a lock. A descriptor that is in use must not be closed, because the operating system may
assign its number to another file at once.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import Final

from kafka_sink.common.files import OWNER_ONLY
from kafka_sink.common.threads import at_fork

#: A link is not followed: it would have another file truncated.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Descriptor:
    """One file of :class:`Descriptors`. A ``with`` block opens it, receives its descriptor and keeps it open.

    :raises OSError: if it was closed (EBADF), or cannot be reopened.
    """

    __slots__ = ("_all", "closed", "fd", "path", "users")

    def __init__(self, path: Path, all_of_them: Descriptors) -> None:
        self.path = path
        self._all = all_of_them
        self.fd = -1
        self.users = 0
        self.closed = False

    def __enter__(self) -> int:
        return self._all.acquire(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._all.release(self)

    def close(self) -> None:
        """Close the file for new users; present users are not affected. May be called again."""
        self._all.close(self)


class Descriptors:
    """At most *limit* open files, not counting those in use."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        # Guarded by the lock: the open files, least recently used first.
        self._open: OrderedDict[Descriptor, None] = OrderedDict()
        at_fork(self, Descriptors._forked)

    def create(self, path: Path) -> Descriptor:
        """The file at *path*, created if it does not exist. :raises OSError: if it cannot be opened."""
        entry = Descriptor(path, self)
        with self._lock:
            self._make_room()
            entry.fd = os.open(path, _FLAGS | os.O_CREAT, OWNER_ONLY)
            self._open[entry] = None
        return entry

    def acquire(self, entry: Descriptor) -> int:
        """Open *entry* if necessary, and keep it open until :meth:`release`.

        :raises OSError: as :class:`Descriptor`.
        """
        with self._lock:
            if entry.closed:
                raise OSError(errno.EBADF, f"{entry.path} is closed")
            if entry.fd < 0:
                self._make_room()
                entry.fd = os.open(entry.path, _FLAGS)
                self._open[entry] = None
            else:
                self._open.move_to_end(entry)
            entry.users += 1
            return entry.fd

    def release(self, entry: Descriptor) -> None:
        """End one use of *entry*."""
        with self._lock:
            entry.users -= 1
            if entry.closed and not entry.users:
                self._close(entry)

    def close(self, entry: Descriptor) -> None:
        """See :meth:`Descriptor.close`."""
        with self._lock:
            entry.closed = True
            if not entry.users:
                self._close(entry)

    def _make_room(self) -> None:
        surplus = len(self._open) - self._limit + 1
        if surplus <= 0:
            return
        for entry in tuple(itertools.islice((entry for entry in self._open if not entry.users), surplus)):
            self._close(entry)

    def _close(self, entry: Descriptor) -> None:
        if entry.fd >= 0:
            del self._open[entry]
            os.close(entry.fd)
            entry.fd = -1

    def _forked(self) -> None:
        # The logs belong to the parent: the child must neither write to them nor keep the space of deleted files.
        self._lock = threading.Lock()
        for entry in tuple(self._open):
            entry.closed = True
            self._close(entry)
