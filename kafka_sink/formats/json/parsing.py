"""Reads the JSON Schemas of columns and registries, within limits: checks the values of keywords, and replaces each
reference (``$ref``) by the schema that it refers to, in the same or in another text.

Source: https://json-schema.org/draft-07/json-schema-validation,
https://json-schema.org/draft-07/json-schema-core#rfc.section.8.3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from kafka_sink.common.bounded import known_number
from kafka_sink.common.text import words
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.schema_text import MOST_DEPTH, SchemaText, schema_json

OF_ALTERNATIVES: Final = ("oneOf", "anyOf")

#: Keywords that validate columns and rows in draft 4, with the additions and removals of each later draft. All others,
#: known or not, are annotations.
_DRAFT_4: Final = frozenset(
    words("""
        type enum multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems
        minItems uniqueItems maxProperties minProperties required properties patternProperties additionalProperties
        items additionalItems dependencies allOf anyOf oneOf not $ref
    """)
)
_DRAFT_6: Final = _DRAFT_4 | {"const", "contains", "propertyNames"}
_DRAFT_7: Final = _DRAFT_6 | {"if", "then", "else"}
_ADDED_2019: Final = "dependentRequired dependentSchemas minContains maxContains unevaluatedItems unevaluatedProperties"
_DRAFT_2019: Final = (_DRAFT_7 - {"dependencies"}) | {*words(_ADDED_2019), "$recursiveRef"}
_DRAFT_2020: Final = (_DRAFT_2019 - {"additionalItems", "$recursiveRef"}) | {"prefixItems", "$dynamicRef"}
_DRAFTS: Final[Mapping[str, frozenset[str]]] = {
    "draft-04": _DRAFT_4,
    "draft-06": _DRAFT_6,
    "draft-07": _DRAFT_7,
    "2019-09": _DRAFT_2019,
    "2020-12": _DRAFT_2020,
}
#: Keywords that rows are not checked against, of all types and of one type; references only remain in schemas that
#: contain themselves.
UNCHECKED: Final = ("$ref", "$dynamicRef", "$recursiveRef")
UNCHECKED_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "array": ("prefixItems", "unevaluatedItems"),
    "object": ("unevaluatedProperties",),
}
#: Keywords that may refuse values in any draft.
CONSTRAINTS: Final = frozenset().union(*_DRAFTS.values(), ("disallow", "extends", "divisibleBy"))


def keywords_of(schema: Any) -> frozenset[str]:
    """The keywords that may refuse values in the draft of *schema*; by default in 2020-12, as in the package
    jsonschema.

    :raises FormatError: if the draft is unknown.
    """
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return _DRAFT_2020
    keywords = next((keywords for draft, keywords in _DRAFTS.items() if draft in named), None)
    if keywords is None:
        raise FormatError(f"the JSON Schema has the $schema {named:.100}, expected one of {', '.join(_DRAFTS)}")
    return keywords


@schema_boundary("JSON Schema")
def parse_schema(schema: SchemaText) -> Any:
    """The JSON Schema in *schema*: an object or a boolean, with each ``$ref`` replaced by the schema that it refers to.

    :raises FormatError: if it is no JSON Schema, or exceeds the limits; the text gives the reason.
    """
    parsed = resolved(schema)
    if not isinstance(parsed, dict | bool):
        raise FormatError(f"the JSON Schema is {schema.text[:60]!r}, expected an object")
    _check_shape(parsed)
    return parsed


def _check_shape(schema: Any) -> None:
    """Check that keywords have valid values.

    :raises FormatError: if the value of a keyword is invalid; the text names the keyword.
    """
    waiting = [(schema, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise FormatError(f"the JSON Schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise FormatError(
                f"the JSON Schema has {shown_json(part)} where a schema is expected: an object or a boolean"
            )
        for name in _EXPECTED.keys() & part.keys():
            expected, is_right = _EXPECTED[name]
            if not is_right(part[name]):
                raise FormatError(f"the JSON Schema has '{name}': {shown_json(part[name])}, expected {expected}")
        parts = [
            *part.get("properties", {}).values(),
            *part.get("patternProperties", {}).values(),
            *part.get("dependentSchemas", {}).values(),
            *({"required": held} if isinstance(held, list) else held for held in part.get("dependencies", {}).values()),
            *(schema for name in (*OF_ALTERNATIVES, "allOf") for schema in part.get(name, ())),
            *(part[name] for name in _OF_ONE_SCHEMA if name in part),
            # Before 2020-12 items may be a list of schemas, one for each position, which are not compared.
            *(items for items in (part.get("items", True),) if not isinstance(items, list)),
        ]
        waiting += [(inner, depth + 1) for inner in parts]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_object(value: Any, of: Callable[[Any], bool] = lambda _: True) -> bool:
    return isinstance(value, dict) and all(map(of, value.values()))


def _is_types(value: Any) -> bool:
    return _is_texts(value) and bool(value) and set(value) <= set(_TYPES)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_OF_ONE_SCHEMA: Final = ("additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
#: Keyword → the description of its valid values, and the check of a value.
_EXPECTED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "type": (f"one of {', '.join(_TYPES)}, or a list of them", lambda value: _is_types(value) or _is_types([value])),
    "required": ("a list of texts", _is_texts),
    **dict.fromkeys(("properties", "patternProperties", "dependencies", "dependentSchemas"), ("an object", _is_object)),
    "dependentRequired": ("an object of lists of texts", lambda value: _is_object(value, _is_texts)),
    **dict.fromkeys((*OF_ALTERNATIVES, "allOf", "enum"), ("a list", lambda value: isinstance(value, list))),
    **dict.fromkeys(("minimum", "maximum"), ("a number", _is_number)),
    "multipleOf": ("a number above 0", lambda value: _is_number(value) and value > 0),
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"),
        ("a number", lambda value: isinstance(value, bool) or _is_number(value)),
    ),
    **dict.fromkeys(
        words("minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains"),
        ("a whole number", lambda value: _is_number(value) and value == int(value)),
    ),
    "pattern": ("a text", lambda value: isinstance(value, str)),
    "uniqueItems": ("a boolean", lambda value: isinstance(value, bool)),
}


def shown_json(value: Any, most: int = 60) -> str:
    """*value* as JSON, as an error shows it, in at most *most* characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."


REF: Final = "$ref"
#: The maximum number of parts of a schema, with all references expanded.
_MOST_PARTS: Final = 100_000
#: Keywords with schemas by names; keywords with schemas for a ``$ref`` only; and keywords with data (``_DATA``).
_BY_NAME: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
_FOR_REFERENCES: Final = frozenset({"definitions", "$defs"})
#: In these drafts all other keywords beside a ``$ref`` are ignored; these keywords are always ignored.
_DRAFTS_OF_LONE_REFERENCES: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
_ANNOTATIONS: Final = frozenset({*_FOR_REFERENCES, "title", "description", "default", "examples", "$comment", "$id"})
_DATA: Final = frozenset({"default", "examples", "enum", "const"})


def json_of(text: str) -> Any:
    """The JSON of the schema *text*.

    :raises FormatError: if it is no JSON, or exceeds the limits; the text gives the reason.
    """
    return schema_json(text, "JSON Schema")


def id_of(text: str) -> str:
    """The ``$id`` of the schema *text*; empty if it has none. :raises FormatError: if it is no JSON."""
    return _id(json_of(text))


def meanings_of(text: str) -> tuple[tuple[str, ...], ...]:
    """The other schemas that *text* refers to: the absolute address of each, and the value of the ``$ref``, without the
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
    """The JSON of *schema*, with each ``$ref`` replaced by the schema that it refers to. A ``$ref`` whose schema is
    missing, or contains the ``$ref`` itself, is not replaced.

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
        reference_key = id(target), fragment
        referred = _at(target, unquote(fragment))
        if referred is None or reference_key in inside or len(inside) > MOST_DEPTH:
            return part
        written = self.written(referred, target, (*inside, reference_key))
        beside = {name: part[name] for name in part if name not in (REF, *_ANNOTATIONS)}
        if self._is_alone or not beside:
            return written
        beside = {name: self._held(name, schema, within, inside) for name, schema in beside.items()}
        return {**beside, "allOf": [*beside.get("allOf", ()), written]}

    def _held(self, name: str, value: Any, within: Any, inside: tuple[tuple[int, str], ...]) -> Any:
        """The *value* of the keyword *name*."""
        if name in _DATA:
            return value
        if name in _BY_NAME and isinstance(value, dict):
            return {key: self.written(part, within, inside) for key, part in value.items()}
        return self.written(value, within, inside)

    def _target(self, address: str, within: Any) -> Any:
        """The schema at *address*, relative to the schema *within*."""
        if not address or urljoin(_id(within), address) == _id(within):
            return within
        return self._others.get(address, self._others.get(urljoin(_id(within), address)))


def _id(schema: Any) -> str:
    name = schema.get("$id") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else ""


def _at(schema: Any, pointer: str) -> Any:
    """The part of *schema* at *pointer* (RFC 6901); None if there is none."""
    if pointer and (not pointer.startswith("/") or pointer.count("/") > 4 * MOST_DEPTH):
        return None
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, list):
            number = known_number(name, 0, len(schema) - 1)
            schema = None if number is None else schema[number]
        else:
            schema = schema.get(name) if isinstance(schema, dict) else None
    return schema
