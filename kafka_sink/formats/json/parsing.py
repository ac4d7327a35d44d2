"""JSON Schemas as columns and registries have them: read, with the values that keywords may have, and within bounds.

Source: https://json-schema.org/draft-07/json-schema-validation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka_sink.common.text import words
from kafka_sink.formats.bounds import MOST_DEPTH
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.json.references import resolved
from kafka_sink.formats.schema_text import SchemaText

OF_ALTERNATIVES: Final = ("oneOf", "anyOf")

#: Keywords that say which columns and rows fit in draft 4, and what each later draft added and took away. All others,
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
_DRAFT_2019: Final = (_DRAFT_7 - {"dependencies"}) | frozenset(
    words("""
        dependentRequired dependentSchemas minContains maxContains unevaluatedItems unevaluatedProperties $recursiveRef
    """)
)
_DRAFT_2020: Final = (_DRAFT_2019 - {"additionalItems", "$recursiveRef"}) | {"prefixItems", "$dynamicRef"}
_DRAFTS: Final[Mapping[str, frozenset[str]]] = {
    "draft-04": _DRAFT_4,
    "draft-06": _DRAFT_6,
    "draft-07": _DRAFT_7,
    "2019-09": _DRAFT_2019,
    "2020-12": _DRAFT_2020,
}
#: Those that rows are not checked against, in any place and about one type; references are left where a schema is
#: within itself.
UNCHECKED: Final = ("$ref", "$dynamicRef", "$recursiveRef")
UNCHECKED_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "array": ("prefixItems", "unevaluatedItems"),
    "object": ("unevaluatedProperties",),
}
#: Keywords that may refuse values in any draft.
CONSTRAINTS: Final = frozenset().union(*_DRAFTS.values(), ("disallow", "extends", "divisibleBy"))


def keywords_of(schema: Any) -> frozenset[str]:
    """The keywords that refuse values in the draft of *schema*; in 2020-12, as for the package jsonschema, where none
    is named.

    :raises FormatError: if it is of an unknown draft.
    """
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return _DRAFT_2020
    known = next((keywords for draft, keywords in _DRAFTS.items() if draft in named), None)
    if known is None:
        raise FormatError(f"the JSON Schema has the $schema {named:.100}, expected one of {', '.join(_DRAFTS)}")
    return known


@schema_boundary("JSON Schema")
def parse_schema(schema: SchemaText) -> Any:
    """The JSON Schema that *schema* is: an object, or a boolean, with what it refers to in the places of its ``$ref``.

    :raises FormatError: if it is none, or one beyond the bounds; the text says why.
    """
    parsed = resolved(schema)
    if not isinstance(parsed, dict | bool):
        raise FormatError(f"the JSON Schema is {schema.text[:60]!r}, expected an object")
    _check_shape(parsed)
    return parsed


def _check_shape(schema: Any) -> None:
    """Check that keywords have the values that they may have.

    :raises FormatError: if one has not; the text names it.
    """
    waiting = [(schema, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise FormatError(f"the JSON Schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
        if isinstance(part, bool):
            continue
        if not isinstance(part, dict):
            raise FormatError(f"the JSON Schema has {_shown(part)} where a schema is expected: an object or a boolean")
        for name in _EXPECTED.keys() & part.keys():
            expected, is_right = _EXPECTED[name]
            if not is_right(part[name]):
                raise FormatError(f"the JSON Schema has '{name}': {_shown(part[name])}, expected {expected}")
        parts = [
            *part.get("properties", {}).values(),
            *part.get("patternProperties", {}).values(),
            *(each for each in part.get("dependentSchemas", {}).values()),
            *(each for each in part.get("dependencies", {}).values() if not isinstance(each, list)),
            *(each for name in (*OF_ALTERNATIVES, "allOf") for each in part.get(name, ())),
        ]
        parts += [part[name] for name in _OF_ONE_SCHEMA if name in part and not is_tuple(part[name])]
        waiting += [(each, depth + 1) for each in parts]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_types(value: Any) -> bool:
    return _is_texts(value) and bool(value) and set(value) <= set(_TYPES)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_OF_ONE_SCHEMA: Final = ("additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else")
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
#: Of keywords what they may be.
_EXPECTED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "type": (f"one of {', '.join(_TYPES)}, or a list of them", lambda value: _is_types(value) or _is_types([value])),
    "required": ("a list of texts", _is_texts),
    **dict.fromkeys(
        ("properties", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas"),
        ("an object", lambda value: isinstance(value, dict)),
    ),
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


def is_tuple(items: Any) -> bool:
    """Whether *items* has a schema for each place of an array, as drafts before 2020-12 have it: it is not compared."""
    return isinstance(items, list)


def _shown(schema: Any) -> str:
    text = json.dumps(schema)
    return text if len(text) <= 60 else f"{text[:57]}..."
