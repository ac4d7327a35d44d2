"""Blocks of code on a page of the documentation, for tests that run them."""

from __future__ import annotations

import re
from pathlib import Path


def blocks(page: Path, language: str = r"\w+") -> list[str]:
    """The blocks of code of *page*, all or those in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def block(page: Path, having: str) -> str:
    """The one block of code of *page* with this text."""
    (found,) = (code for code in blocks(page) if having in code)
    return found
