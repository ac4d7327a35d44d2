"""Files that other threads or processes read while they are written, and files that other users must not read. Any
thread.

It also divides the limit on open files of a process between log files, connections of a broker, and HTTP connections.
Log files use at most half of it. Connections may use the other half and the unused part of the first, but never the
last part: with it a broker can still open logs and answer connected clients. Each server of pages or metrics has a
small part, which connections of a broker leave to it: so operators can still inspect a broker that is at its limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
from pathlib import Path
from typing import Final

#: The permissions of files with records, progress or secrets.
OWNER_ONLY: Final = 0o600
_DIRECTORY_OF_OWNER: Final = 0o700


def make_own_directory(path: Path) -> None:
    """Create *path* for its owner only, and its parents. If it exists, its permissions are not changed.

    :raises OSError: if it cannot be created.
    """
    path.mkdir(mode=_DIRECTORY_OF_OWNER, parents=True, exist_ok=True)


def make_own_file(path: Path) -> None:
    """Create *path* for its owner only, unless it exists. :raises OSError: if it cannot be created."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))


def require_own(path: Path) -> None:
    """Check that *path* is a file or a directory, or does not exist. Through a link another file would be written, and
    the reader of a pipe would wait for ever.

    :raises OSError: if it is something else.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "a pipe or a device"
            raise OSError(errno.EINVAL, f"{path} is {kind}, where kafkalite stores its own files: remove it")


def replace_text(path: Path, text: str) -> None:
    """Write *text* to *path* atomically, so that no reader sees a part of it.

    :raises OSError: if the write failed; *path* is unchanged.
    """
    beside = path.with_name(path.name + ".tmp")
    # It may be a link to another file, which another user with write access to the folder has created.
    beside.unlink(missing_ok=True)
    with beside.open("x", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)


#: The minimum with which a log can be rolled, copied and read at the same time.
_FEWEST: Final = 16
_MOST: Final = 1 << 15
_KEPT_FREE: Final = 1 / 8
_KEPT_LOCAL: Final = 1 / 8
_FEWEST_LOCAL: Final = 8
_MOST_LOCAL: Final = 64


def most_log_files() -> int:
    """The number of log files that may be open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(max(soft // 2, _FEWEST), _MOST)


def most_local_connections() -> int:
    """The number of connections that one HTTP server for this machine may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_LOCAL if soft == resource.RLIM_INFINITY else min(max(soft // 16, _FEWEST_LOCAL), _MOST_LOCAL)


def is_reserved(descriptor: int) -> bool:
    """Whether *descriptor* is among the last ones, which are for log files. The system assigns the lowest free number,
    so few are left then."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - max(int(soft * _KEPT_FREE), _FEWEST)


def is_reserved_for_local(descriptor: int) -> bool:
    """Whether *descriptor* is among the last ones, which are for log files and HTTP servers for this machine."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return is_reserved(descriptor + max(int(soft * _KEPT_LOCAL), _FEWEST_LOCAL))
