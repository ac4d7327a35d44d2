"""A schema with those that it refers to, as registries keep schemas: each text for itself.

A format makes of it one text that stands alone (``linked``), which columns are written by. It is read on the driver, by
the command line and by the registry in memory; tasks get the linked text.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#schema-references.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kafka_sink.formats.bounds import MOST_DEPTH, MOST_SCHEMA_CHARACTERS
from kafka_sink.formats.errors import FormatError

#: A text with its quotes, or a comment; what does not end goes to the end.
_TEXT_OR_COMMENT: Final = re.compile(
    r""""[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|'[^'\\]*(?:\\.[^'\\]*)*(?:'|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_VISIBLE: Final = re.compile(r"\S")
#: Large projects of Protobuf have some hundred files.
MOST_REFERENCES: Final = 1_000


def without_comments(text: str) -> str:
    """*text* with blanks instead of its comments; everything else stays where it was."""
    if "//" not in text and "/*" not in text:
        return text
    return _TEXT_OR_COMMENT.sub(lambda match: match[0] if match[0][0] in "\"'" else _VISIBLE.sub(" ", match[0]), text)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """*schema*, by the *name* under which another one refers to it: a full name in Avro, an import in Protobuf, a
    ``$ref`` without its fragment in a JSON Schema. *subject* and *version* are its place in a registry; empty and 0 if
    none is known.
    """

    name: str
    schema: SchemaText
    subject: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SchemaText:
    """The *text* of a schema, and what it refers to itself. Several may refer to the same one."""

    text: str
    references: tuple[Reference, ...] = ()

    def others(self) -> dict[str, str]:
        """The texts of all that it refers to, also through others, by their names: each after those that it refers to
        itself. Of several with the same name, the first.

        :raises FormatError: if they are beyond the bounds.
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
