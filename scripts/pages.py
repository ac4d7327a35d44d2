"""Pages of which a part is generated: tables of options, types, metrics and measurements."""

from __future__ import annotations


def between_marks(page: str, begin: str, end: str, lines: str) -> str:
    """*page* with *lines*, each with its line feed, in the place of what stands between *begin* and *end*."""
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{lines}{end}{rest.partition(end)[2]}"
