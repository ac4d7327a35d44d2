"""The references of a JSON Schema (``$ref``): parts of itself, and other schemas.

Called where schemas are read and compared.

Source: https://json-schema.org/draft-07/json-schema-core#rfc.section.8.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from kafka_sink.common.bounded import known_number
from kafka_sink.formats.bounds import MOST_DEPTH, schema_json
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import SchemaText

REF: Final = "$ref"
#: A schema has at most so many parts, with all that it refers to written out.
_MOST_PARTS: Final = 100_000
#: What holds schemas by names that are no keywords; what holds schemas for a ``$ref`` only; and what holds no schema.
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_FOR_REFERENCES: Final = frozenset({"definitions", "$defs"})
#: In these drafts nothing beside a ``$ref`` counts; these words never do.
_DRAFTS_OF_LONE_REFERENCES: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
_ANNOTATIONS: Final = frozenset({*_FOR_REFERENCES, "title", "description", "default", "examples", "$comment", "$id"})
_DATA: Final = frozenset({"default", "examples", "enum", "const"})


def json_of(text: str) -> Any:
    """The JSON that the schema *text* is.

    :raises FormatError: if it is none, or beyond the bounds; the text says why.
    """
    return schema_json(text, "JSON Schema")


def id_of(text: str) -> str:
    """The ``$id`` of the schema *text*; empty if it has none.

    :raises FormatError: if it is no JSON.
    """
    schema = json_of(text)
    name = schema.get("$id") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else ""


def meanings_of(text: str) -> tuple[tuple[str, ...], ...]:
    """The other schemas that *text* refers to: of each the whole address, and the words of the ``$ref``, without the
    fragment.

    :raises FormatError: if it is no JSON.
    """
    own = id_of(text)
    named = dict.fromkeys(urldefrag(ref).url for ref in _refs(json_of(text), 0))
    return tuple((urljoin(own, reference), reference.removeprefix("./"), reference) for reference in named if reference)


def _refs(part: Any, depth: int) -> Iterator[str]:
    if depth > 3 * MOST_DEPTH:
        raise FormatError(f"the JSON Schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
    if isinstance(part, dict):
        if isinstance(reference := part.get(REF), str):
            yield reference
        part = [item for name, item in part.items() if name not in _DATA]
    for item in part if isinstance(part, list) else ():
        yield from _refs(item, depth + 1)


def resolved(schema: SchemaText) -> Any:
    """The JSON of *schema*, with what each ``$ref`` refers to in its place. One that is not there, and one within what
    it refers to, stays.

    :raises FormatError: if a text is no JSON, or if there are too many parts.
    """
    own = json_of(schema.text)
    others = {name: json_of(text) for name, text in schema.others().items()}
    return _Resolver(own, others).written(own, own, ())


class _Resolver:
    def __init__(self, own: Any, others: Mapping[str, Any]) -> None:
        named = own.get("$schema") if isinstance(own, dict) else None
        self._is_alone = isinstance(named, str) and any(draft in named for draft in _DRAFTS_OF_LONE_REFERENCES)
        self._others = {**others}
        for name, schema in others.items():
            for base in (own, schema):
                self._others.setdefault(urljoin(_id(base), name), schema)
            self._others.setdefault(_id(schema) or name, schema)
        self._parts = 0

    def written(self, part: Any, within: Any, inside: tuple[tuple[int, str], ...]) -> Any:
        """*part* of the schema *within*; *inside* are the references that led here."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise FormatError(
                f"the JSON Schema has more than {_MOST_PARTS} parts, with all its references expanded; correct it"
            )
        if isinstance(part, list):
            return [self.written(item, within, inside) for item in part]
        if not isinstance(part, dict):
            return part
        reference = part.get(REF)
        if not isinstance(reference, str):
            return {
                name: self._held(name, schema, within, inside)
                for name, schema in part.items()
                if name not in _FOR_REFERENCES
            }
        address, fragment = urldefrag(reference)
        target = self._target(address, within)
        place = id(target), fragment
        referred = _at(target, unquote(fragment))
        if referred is None or place in inside or len(inside) > MOST_DEPTH:
            return part
        found = self.written(referred, target, (*inside, place))
        beside = {name: part[name] for name in part if name not in (REF, *_ANNOTATIONS)}
        if self._is_alone or not beside:
            return found
        beside = {name: self._held(name, schema, within, inside) for name, schema in beside.items()}
        return {**beside, "allOf": [*beside.get("allOf", ()), found]}

    def _held(self, name: str, value: Any, within: Any, inside: tuple[tuple[int, str], ...]) -> Any:
        """The *value* of the keyword *name*."""
        if name in _DATA:
            return value
        if name in _BY_NAME and isinstance(value, dict):
            return {key: self.written(part, within, inside) for key, part in value.items()}
        return self.written(value, within, inside)

    def _target(self, address: str, within: Any) -> Any:
        """The schema at *address*, as the schema *within* calls it."""
        if not address or urljoin(_id(within), address) == _id(within):
            return within
        return self._others.get(address, self._others.get(urljoin(_id(within), address)))


def _id(schema: Any) -> str:
    name = schema.get("$id") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else ""


def _at(schema: Any, pointer: str) -> Any:
    """The part of *schema* that the *pointer* (RFC 6901) leads to; None if there is none."""
    if pointer and not pointer.startswith("/"):
        return None
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list):
            number = known_number(name, 0, len(schema) - 1)
            schema = None if number is None else schema[number]
        else:
            schema = schema.get(name) if isinstance(schema, dict) else None
    return schema
