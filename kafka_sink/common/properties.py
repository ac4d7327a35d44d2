"""Files in the format of Java's ``.properties``: configurations, and the files that references name. Any thread."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafka_sink.common.errors import ConfigError

_BLANKS = " \t\f"
#: A name, its separator and the value; a blank is a separator only if a value follows.
_PROPERTY = re.compile(
    r"(?P<name>(?:\\.|[^\\=: \t\f])+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+(?=[^ \t\f]))(?P<value>.*)", re.DOTALL
)
_ESCAPE = re.compile(r"(?P<utf16>(?:\\u[0-9a-fA-F]{4})+)|\\(?P<character>.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def load_properties(path: str) -> dict[str, str]:
    """Read a UTF-8 file like Java's ``.properties``; for a repeated name the last value is used.

    ``=``, ``:`` or white space ends a name; ``#`` and ``!`` start comments. A backslash at the end of a line joins the
    next line to it; elsewhere it escapes the next character (``\\t``, ``\\n``, ``\\r``, ``\\f`` and ``\\uHHHH`` have
    their usual meaning). A byte order mark at the beginning, as some editors write it, is ignored. A name alone, which
    Java reads as a name with an empty value, is an error.

    :raises ConfigError: if a line is not name=value, or the file is not UTF-8; the text never shows a value, which may
        be a secret.
    """
    properties: dict[str, str] = {}
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} cannot be read: it is not UTF-8 text") from None
    with io.StringIO(text) as lines:
        for number, line in _logical_lines(lines):
            match = _PROPERTY.fullmatch(line)
            if match is None:
                raise ConfigError(f"{path} line {number}: expected name=value")
            try:
                properties[_unescape(match["name"])] = _unescape(match["value"])
            except ValueError:
                raise ConfigError(f"{path} line {number}: {match['name']} has a malformed \\uHHHH") from None
    return properties


def _logical_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each line that is not blank and not a comment; continued lines are joined."""
    joined: list[str] = []
    first = 0
    for number, raw in enumerate(lines, 1):
        line = raw.removesuffix("\n").lstrip(_BLANKS)
        if not any(joined):
            joined = []
            if not line or line[0] in "#!":
                continue
            first = number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield first, "".join(joined)
            joined = []
    if any(joined):
        yield first, "".join(joined)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    if match["utf16"]:
        # Several escapes at once, because a character beyond 16 bits is written as a pair.
        return bytes.fromhex(match["utf16"].replace("\\u", "")).decode("utf-16-be")
    character = match["character"]
    if character == "u":
        raise ValueError
    return _CONTROLS.get(character, character)
