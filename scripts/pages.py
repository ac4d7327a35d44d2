"""Pages with a generated part: tables of options, types, metrics and measurements.

Such a part has a name, and is between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
"""

from __future__ import annotations

from pathlib import Path


def printed(page: Path, name: str) -> str:
    """Return the generated part *name* of *page*.

    :raises SystemExit: if the page does not have it.
    """
    return _around(page, name)[1]


def print_into(page: Path, name: str, lines: str) -> None:
    """Replace the generated part *name* of *page* with *lines*, each with its line feed.

    :raises SystemExit: if the page does not have it.
    """
    before, _, rest = _around(page, name)
    page.write_text(f"{before}\n{lines}{rest}", encoding="utf-8")


def _around(page: Path, name: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    part, mark, rest = rest.partition(end)
    if not mark:
        raise SystemExit(f"{page} has no {begin} … {end}")
    return before + begin, part, mark + rest
