"""Untrusted text, such as a peer's message, a record or a schema: it must not add lines to a log, control a terminal,
or change the direction of the text around it. Also tables of words, and tables for notebooks: HTML with every cell
escaped, without a style, so that it looks like the notebook's other tables.

Pure functions, called before such text is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

#: C0 except tab and line feed, DEL, C1, the separators of lines and paragraphs, overrides of the direction, and
#: surrogates, which files and terminals do not accept.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, kept: str = "") -> str:
    """*text* with every unprintable character escaped, as in ``\\x1b``, except those in *kept*."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept else character.encode("unicode_escape").decode()
        for character in text
    )


def without_controls(text: str) -> str:
    """*text* with its lines and tabs, and JSON escapes for characters that control a terminal or the direction."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_text(value: Any) -> str:
    """*value* as JSON in one line, without controls."""
    return without_controls(json.dumps(value, ensure_ascii=False))


def words(text: str) -> tuple[str, ...]:
    """The words of a table of names."""
    return tuple(text.split())


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
