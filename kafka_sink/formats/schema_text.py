"""A schema with the schemas that it refers to, each as a separate text, as registries store them.

A format combines them into one self-contained text (``linked``), by which columns are written. It is read on the
driver, by the command line and by the registry in memory; tasks get the linked text.

Schemas and records are not trusted: they come from a registry, a file, or any client that may write to a topic. This
module limits their size and depth, far beyond those of real schemas; and checks whether a text is JSON (RFC 8259).

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#schema-references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.errors import FormatError

#: A text with its quotes, or a comment; an unterminated one extends to the end.
_TEXT_OR_COMMENT: Final = re.compile(
    r""""[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|'[^'\\]*(?:\\.[^'\\]*)*(?:'|\\?\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_VISIBLE: Final = re.compile(r"\S")
#: Large projects with Protobuf have a few hundred files.
MOST_REFERENCES: Final = 1_000


def without_comments(text: str) -> str:
    """*text* with blanks instead of its comments; all other text keeps its position."""
    if "//" not in text and "/*" not in text:
        return text
    return _TEXT_OR_COMMENT.sub(lambda match: match[0] if match[0][0] in "\"'" else _VISIBLE.sub(" ", match[0]), text)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """*schema*, by the *name* under which another one refers to it: a full name in Avro, an import in Protobuf, a
    ``$ref`` without its fragment in a JSON Schema. *subject* and *version* are its place in a registry; empty and 0 if
    none is known."""

    name: str
    schema: SchemaText
    subject: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SchemaText:
    """The *text* of a schema, and its direct references. Several schemas may refer to the same one."""

    text: str
    references: tuple[Reference, ...] = ()

    def others(self) -> dict[str, str]:
        """The texts of all schemas that it refers to, directly or indirectly, by their names: each after those that it
        refers to itself. If several have the same name, the first.

        :raises FormatError: if they exceed the limits.
        """
        texts: dict[str, str] = {}
        begun: set[str] = set()
        characters = 0
        for reference in _below(self, begun, 0):
            characters += len(reference.schema.text)
            if len(begun) > MOST_REFERENCES or characters > MOST_SCHEMA_CHARACTERS:
                raise FormatError(
                    f"the schema refers to more than {MOST_REFERENCES} others, or to more than "
                    f"{MOST_SCHEMA_CHARACTERS} characters of them; divide it, or correct it"
                )
            texts[reference.name] = reference.schema.text
        return texts


def _below(schema: SchemaText, begun: set[str], depth: int) -> Iterator[Reference]:
    if depth > MOST_DEPTH:
        raise FormatError(f"the schema refers to others more than {MOST_DEPTH} levels deep; make it flatter")
    for reference in schema.references:
        if reference.name not in begun:
            begun.add(reference.name)
            yield from _below(reference.schema, begun, depth + 1)
            yield reference


#: The limit of registries, such as Confluent Cloud's 1 MB.
MOST_SCHEMA_CHARACTERS: Final = 1 << 20
#: The maximum depth of types in a schema, and of values in a record; the same as in Protobuf's libraries.
MOST_DEPTH: Final = 100
#: The maximum depth of brackets in the JSON of a schema: a nested type takes up to four.
_MOST_BRACKETS: Final = 4 * MOST_DEPTH
_TEXT: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


def is_too_deep(json: str, most: int = _MOST_BRACKETS) -> bool:
    """Whether the brackets of the text *json* are nested more than *most* levels deep; checked before it is parsed,
    because Python can neither show nor write values of that depth."""
    depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub("", json)):
        depth += 1 if bracket in "[{" else -1
        if depth > most:
            return True
    return False


def check_size(text: str, what: str) -> None:
    """:raises FormatError: if the schema *text*, called *what*, exceeds the limit, or is no text in UTF-8."""
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

    :raises FormatError: if it is no JSON, or exceeds the limits of size and depth.
    """
    check_size(text, what)
    if is_too_deep(text):
        raise FormatError(f"the {what} has brackets more than {_MOST_BRACKETS} levels deep; make it flatter")
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormatError(f"the {what} is not valid JSON: {error}; it begins with {text[:60]!r}") from None


def check_json(text: str) -> None:
    """:raises CorruptRecordError: if *text* is not one value of JSON, or has more than MOST_DEPTH levels."""
    if is_too_deep(text, MOST_DEPTH):
        raise CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")
    try:
        # Numbers of any length are JSON; Python would refuse to parse an integer of more than 4,300 digits.
        json.loads(text, parse_constant=_refuse, parse_int=_nothing, parse_float=_nothing, object_pairs_hook=_nothing)
    except json.JSONDecodeError as error:
        raise CorruptRecordError(str(error)) from None


def _nothing(part: Any) -> None:
    """Replaces a number or an object: its value is not needed."""


def _refuse(constant: str) -> None:
    """Refuses NaN, Infinity and -Infinity, which Python's library accepts."""
    raise CorruptRecordError(f"{constant} is not a valid value of JSON")
