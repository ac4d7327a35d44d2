"""Hides secrets in the texts of the peer that received them: a refusal may repeat a password or a token, unchanged or
in another form.

Pure functions and values, used on any thread. The secrets never appear in a text.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import groupby
from typing import Final
from urllib.parse import unquote

from kafka_sink.common.config import REDACTED

#: Every part of a longer secret with this many characters is hidden, because a text may be cut within a secret.
_PIECE: Final = 16
#: The encoding of fewer bytes may occur in any text by chance.
_SHORTEST_ENCODED: Final = 4
_SHORTEST_KNOWN: Final = 8
#: The most characters of a refusal that are shown.
_MOST_CHARACTERS: Final = 1 << 16
#: An escaped text may be part of one that is escaped again.
_LEVELS: Final = 2
#: Characters as URLs, JSON, Python, Java and HTML escape them.
_ESCAPED: Final = re.compile(
    r"(?P<url>(?:%[0-9a-f]{2})+)|\\(?:u(?P<u>[0-9a-f]{4})|x(?P<x>[0-9a-f]{2})|(?P<itself>[\"'/\\]))"
    r"|(?P<html>&\#?[0-9a-z]{1,8};)",
    re.IGNORECASE,
)


class RepeatedSecrets:
    """The *secrets* that a peer received, in the forms in which its texts may repeat them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        plain = {reading for secret in secrets if secret for reading in _readings(secret)}
        self._forms = {form for reading in plain for form in _forms(reading)}
        self._pieces = {
            form[at : at + _PIECE] for form in self._forms if len(form) > _PIECE for at in range(len(form) - _PIECE + 1)
        }
        short = sorted((re.escape(form) for form in self._forms if len(form) <= _PIECE), key=len, reverse=True)
        self._short = re.compile("|".join(short)) if short else None

    def hidden_in(self, text: str) -> str:
        """The beginning of *text* without the secrets: unchanged, escaped as in URLs, JSON or HTML, in base64 or in
        hexadecimal digits. If a secret is only found behind escapes, the text is returned without them."""
        readings = _readings(text[:_MOST_CHARACTERS])
        for reading in reversed(readings):
            hidden = REDACTED.join(map(self._without, reading.split(REDACTED)))
            if hidden != reading:
                return hidden
        return readings[0]

    def are_in(self, text: str) -> bool:
        """Whether *text* contains a whole secret that is too long to occur by chance."""
        long_forms = [form for form in self._forms if len(form) >= _SHORTEST_KNOWN]
        return any(form in reading for reading in _readings(text) for form in long_forms)

    def _without(self, text: str) -> str:
        marks = bytearray(len(text))
        for match in self._short.finditer(text) if self._short else ():
            marks[match.start() : match.end()] = b"\1" * len(match[0])
        for at in range(len(text) - _PIECE + 1) if self._pieces else ():
            if text[at : at + _PIECE] in self._pieces:
                marks[at : at + _PIECE] = b"\1" * _PIECE
        runs = groupby(zip(marks, text, strict=True), key=lambda each: each[0])
        return "".join(REDACTED if is_secret else "".join(each for _, each in run) for is_secret, run in runs)


def _readings(text: str) -> list[str]:
    """*text* as it is, and with its escapes replaced once and twice."""
    readings = [text]
    for _ in range(_LEVELS):
        readings.append(_ESCAPED.sub(_plain, readings[-1]))
    return readings


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield secret.replace(" ", "+")
    data = secret.encode(errors="surrogatepass")
    if len(data) < _SHORTEST_ENCODED:
        return
    yield data.hex()
    yield data.hex().upper()
    # The position within the encoded data changes all characters; the first and the last depend on the adjacent bytes.
    for before in range(3):
        encoded = binascii.b2a_base64(bytes(before) + data, newline=False).decode()
        form = encoded[(0, 2, 3)[before] : (before + len(data)) * 4 // 3]
        yield form
        yield form.translate({ord("+"): "-", ord("/"): "_"})


def _plain(match: re.Match[str]) -> str:
    if match["url"]:
        return unquote(match["url"])
    if match["html"]:
        return unescape(match["html"])
    code = match["u"] or match["x"]
    return chr(int(code, 16)) if code else match["itself"]
