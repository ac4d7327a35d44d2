"""Files that other threads or processes read while they are written. Any thread."""

from __future__ import annotations

from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write *text* to *path* atomically, so that no reader sees a part of it.

    :raises OSError: if the write failed; *path* is unchanged.
    """
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
