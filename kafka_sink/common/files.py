"""Files that others read while we write them. Any thread."""

from __future__ import annotations

from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Put *text* into *path* as a whole, so that nobody reads half of it.

    :raises OSError: the disk refused; *path* is as it was.
    """
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
