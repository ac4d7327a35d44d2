"""The display of values on the pages: numbers, ages, and bytes of records.

Used by the templates, which escape the results, on the threads of the web server. Only valid text is shown as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock, within
from kafka_sink.common.errors import SerializationError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.common.text import printable

#: The maximum number of characters of a key or value that are shown.
SHOWN_CHARACTERS: Final = 2_000
#: Confluent's wire format: a zero, and the id of the schema in four bytes.
_WIRE_HEAD: Final = 5
_HIGHEST_ID: Final = 1 << 24

#: The time limit for decoding the values of a page.
_PAGE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """A key or value as text; *kind* is the kind of the bytes, *rest* the number of those that are not shown (None:
    some), and *problem* the reason why they are not decoded."""

    kind: str
    text: str
    rest: int | None
    problem: str = ""


class ByteView:
    """Shows keys and values; those in Confluent's wire format by their schemas, if *decode* finds these.

    :param decode: converts a value in the wire format to JSON; the beginning of a long one is enough.
    """

    def __init__(self, decode: Callable[[bytes], str] | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._decode = decode
        self._clock = clock

    def of_page(self) -> Callable[..., ShownBytes]:
        """The function that shows the keys and values of one page, and decodes them for at most a second."""
        return partial(self, until_ms=self._clock.monotonic_ms() + _PAGE_MS)

    def __call__(self, data: bytes | None, problem: str = "", until_ms: int | None = None) -> ShownBytes:
        """*data* as text, or in hexadecimal digits if it is no text, is not decoded *until_ms*, or has a *problem*."""
        if problem:
            return _in_hex("damaged", data or b"", printable(problem))
        if data is None:
            return ShownBytes("null", "null", 0)
        if not data:
            return ShownBytes("empty", "", 0)
        if (text := _text(data)) is not None:
            return _shown_text("JSON" if _is_json(data) else "text", text, len(text[SHOWN_CHARACTERS:].encode()))
        kind = "bytes"
        if len(data) > _WIRE_HEAD and data[0] == 0 and 0 < (schema := int.from_bytes(data[1:_WIRE_HEAD])) < _HIGHEST_ID:
            kind = f"schema {schema}"
            if _is_json(body := data[_WIRE_HEAD:]):
                return _shown_text(kind, body.decode(), 0)
            try:
                if (decoded := self._decoded(data, until_ms)) is not None:
                    return _shown_text(kind, decoded, None if len(decoded) > SHOWN_CHARACTERS else 0)
            except SerializationError as error:
                problem = printable(str(error))
        return _in_hex(kind, data, problem)

    def _decoded(self, data: bytes, until_ms: int | None) -> str | None:
        """The beginning of the JSON of *data*; None without a decoder.

        :raises SerializationError: if *data* cannot be decoded, or not in time.
        """
        if self._decode is None:
            return None
        if until_ms is not None and self._clock.monotonic_ms() > until_ms:
            raise SerializationError(f"not decoded, for this page has taken {_PAGE_MS} ms; reload it")
        with within(_PAGE_MS, self._clock):
            return self._decode(data)


def _in_hex(kind: str, data: bytes, problem: str) -> ShownBytes:
    part = data[: SHOWN_CHARACTERS // 3]
    return ShownBytes(kind, part.hex(" "), len(data) - len(part), problem)


def _shown_text(kind: str, text: str, rest: int | None) -> ShownBytes:
    return ShownBytes(kind, printable(text[:SHOWN_CHARACTERS], kept="\n\t"), rest)


def _text(data: bytes) -> str | None:
    """*data* as text; None if it is not UTF-8, or begins with a zero, as only binary formats do."""
    if data[0] == 0:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _is_json(data: bytes) -> bool:
    if data[:1] not in b'{["' or len(data) > SHOWN_CHARACTERS:
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def shown_time(timestamp_ms: int) -> str:
    """The time in UTC; empty if there is none."""
    if timestamp_ms == NO_TIMESTAMP:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def shown_number(value: float | None) -> str:
    """A whole number with separators; a dash for None."""
    return "–" if value is None else f"{value:,.0f}"


def shown_rate(value: float | None) -> str:
    """Small rates with one digit after the point, so that a slow stream is not shown as 0."""
    return f"{value:.1f}" if value is not None and 0 < value < 10 else shown_number(value)


def shown_age(seconds: int | None) -> str:
    """As h:mm:ss; a dash for None."""
    return "–" if seconds is None else str(timedelta(seconds=seconds))
