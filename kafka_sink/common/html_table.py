"""Tables for notebooks: HTML with every cell escaped.

Called by the ``_repr_html_`` of results that a user may show. It adds no style of its own, so the table looks like the
notebook's other tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from kafka_sink.common.text import without_controls


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "") -> str:
    """An HTML table of *rows* under the names of the *columns*."""
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{escape(without_controls(caption))}</caption>")
    if columns:
        parts.append(f"<thead>{_row(columns, 'th')}</thead>")
    parts += ["<tbody>", *(_row(row, "td") for row in rows), "</tbody></table>"]
    return "".join(parts)


def _row(cells: Sequence[object], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(without_controls(str(cell)))}</{tag}>" for cell in cells) + "</tr>"
