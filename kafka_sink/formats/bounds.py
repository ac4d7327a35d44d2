"""How much of a schema or of a record is read, whatever it asks for.

Schemas and records come from others: a registry, a file, whoever may write to a topic. Everything here is far beyond
what people write. Also whether a text is JSON at all (RFC 8259).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.errors import FormatError

#: As registries have it (Confluent Cloud: 1 MB).
MOST_SCHEMA_CHARACTERS: Final = 1 << 20
#: Of types within one another in a schema, and of values in a record. Protobuf's libraries have it too.
MOST_DEPTH: Final = 100
#: Of brackets within one another in the JSON of a schema: a type within another takes up to four.
_MOST_BRACKETS: Final = 4 * MOST_DEPTH
_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


def is_too_deep(json: str, most: int = _MOST_BRACKETS) -> bool:
    """Whether the brackets of the text *json* stand more than *most* levels within one another, found out before a
    parser makes values of it, which Python then can neither show nor write.
    """
    depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub("", json)):
        depth += 1 if bracket in "[{" else -1
        if depth > most:
            return True
    return False


def check_size(text: str, what: str) -> None:
    """:raises FormatError: if the schema *text*, called *what*, is larger than any, or no text in UTF-8."""
    if len(text) > MOST_SCHEMA_CHARACTERS:
        raise FormatError(
            f"the {what} has {len(text)} characters, more than {MOST_SCHEMA_CHARACTERS}; divide it, or correct it"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"the {what} is not valid UTF-8: {error.reason} at character {error.start}") from None


def schema_json(text: str, what: str) -> Any:
    """The JSON of the schema *text*, called *what*.

    :raises FormatError: if it is none, or larger or nested more deeply than any.
    """
    check_size(text, what)
    if is_too_deep(text):
        raise FormatError(f"the {what} has brackets more than {_MOST_BRACKETS} levels deep; make it flatter")
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormatError(f"the {what} is not valid JSON: {error}; it begins with {text[:60]!r}") from None


def check_json(text: str) -> None:
    """:raises CorruptRecordError: if *text* is not one value of JSON, or one of more than MOST_DEPTH levels."""
    if is_too_deep(text, MOST_DEPTH):
        raise CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")
    try:
        # Numbers of any length are JSON; the library would refuse to make an integer of more than 4,300 digits.
        json.loads(text, parse_constant=_refuse, parse_int=_nothing, parse_float=_nothing, object_pairs_hook=_nothing)
    except json.JSONDecodeError as error:
        raise CorruptRecordError(str(error)) from None


def _nothing(part: Any) -> None:
    """Instead of a number or an object: what it is, nobody asks."""


def _refuse(constant: str) -> None:
    """NaN, Infinity and -Infinity, which Python's library reads."""
    raise CorruptRecordError(f"{constant} is not a valid value of JSON")
