"""Files that other threads or processes read while they are written, and files that other users must not read. Any
thread."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

#: The permissions of files with records, progress or secrets.
OWNER_ONLY: Final = 0o600
_DIRECTORY_OF_OWNER: Final = 0o700


def make_own_directory(path: Path) -> None:
    """Create *path* for its owner only, and its parents, unless it exists: then its permissions are left as they are.

    :raises OSError: if it cannot be created.
    """
    path.mkdir(mode=_DIRECTORY_OF_OWNER, parents=True, exist_ok=True)


def make_own_file(path: Path) -> None:
    """Create *path* for its owner only, unless it exists. :raises OSError: if it cannot be created."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))


def require_own(path: Path) -> None:
    """Return if *path* is a file or a directory, or nothing. A link would have another file written, and a pipe would
    have its reader wait for ever.

    :raises OSError: if it is something else.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            kind = "a link" if stat.S_ISLNK(mode) else "a pipe or a device"
            raise OSError(errno.EINVAL, f"{path} is {kind}, where kafkalite has files of its own: remove it")


def replace_text(path: Path, text: str) -> None:
    """Write *text* to *path* atomically, so that no reader sees a part of it.

    :raises OSError: if the write failed; *path* is unchanged.
    """
    beside = path.with_name(path.name + ".tmp")
    # It may be a link to another file, which somebody else who may write in the folder has planted.
    beside.unlink(missing_ok=True)
    with beside.open("x", encoding="utf-8") as file:
        file.write(text)
    beside.replace(path)
