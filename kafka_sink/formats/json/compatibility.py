"""Whether JSON that fits one schema fits another too, for the keywords that derived schemas have.

The driver asks it when a schema is given. Other keywords, such as ``minimum``, are not compared; :func:`not_compared`
finds them. The embedded registry has a judge of its own, by the rules of registries.

Source: https://json-schema.org/draft-07/json-schema-validation,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/schema-evolution.html#json-schema-compatibility-rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import UnionType
from typing import Any, Final

from kafka_sink.common.text import words
from kafka_sink.formats.bounds import MOST_DEPTH
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.json.references import resolved
from kafka_sink.formats.schema_text import SchemaText

#: Keywords that are compared here.
COMPARED: Final = frozenset({"type", "oneOf", "anyOf", "properties", "required", "additionalProperties", "items"})
#: Keywords that may refuse values, in any draft; all others, known or not, are annotations.
OTHER_CONSTRAINTS: Final = frozenset(
    words("""
        multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern maxItems minItems
        uniqueItems contains maxContains minContains maxProperties minProperties patternProperties propertyNames
        dependencies dependentRequired dependentSchemas enum const allOf not if then else prefixItems additionalItems
        unevaluatedItems unevaluatedProperties disallow extends divisibleBy $ref $dynamicRef $recursiveRef
    """)
)
_OF_ALTERNATIVES: Final = ("oneOf", "anyOf")
#: Each alternative of one is compared with each of the other, down to the leaves.
_MOST_COMPARED: Final = 100_000


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
            *(each for name in (*_OF_ALTERNATIVES, "allOf") for each in part.get(name, ())),
        ]
        parts += [
            part[name] for name in ("additionalProperties", "items") if name in part and not _is_tuple(part[name])
        ]
        waiting += [(each, depth + 1) for each in parts]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_types(value: Any) -> bool:
    return _is_texts(value) and bool(value) and set(value) <= set(_TYPES)


def _is_number(value: Any, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
#: Of keywords what they may be.
_EXPECTED: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "type": (f"one of {', '.join(_TYPES)}, or a list of them", lambda value: _is_types(value) or _is_types([value])),
    "required": ("a list of texts", _is_texts),
    "properties": ("an object", lambda value: isinstance(value, dict)),
    **dict.fromkeys((*_OF_ALTERNATIVES, "allOf", "enum"), ("a list", lambda value: isinstance(value, list))),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), ("a number", lambda value: _is_number(value, int | float))),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        ("a whole number", lambda value: _is_number(value, int)),
    ),
    "pattern": ("a text", lambda value: isinstance(value, str)),
    "uniqueItems": ("a boolean", lambda value: isinstance(value, bool)),
}


def _is_tuple(items: Any) -> bool:
    """Whether *items* has a schema for each place of an array, as drafts before 2020-12 have it: it is not compared."""
    return isinstance(items, list)


def not_compared(schema: Any) -> set[str]:
    """The keywords in *schema* that are not compared and may refuse values."""
    keywords: set[str] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        keywords |= part.keys() & OTHER_CONSTRAINTS
        for name in COMPARED & part.keys():
            value = part[name]
            if name == "items" and _is_tuple(value):
                keywords.add(name)
            elif name == "properties":
                waiting += value.values()
            else:
                waiting += value if isinstance(value, list) else [value]
    return keywords


def check_rows(schema: SchemaText, derived: str, column: str) -> list[str]:
    """Check that rows whose schema is *derived* fit *schema*; the keywords of *schema* that are not compared.

    :raises FormatError: if they may not; the text names the column.
    """
    reader = parse_schema(schema)
    problem = next(problems(reader, parse_schema(SchemaText(derived))), None)
    if problem is not None:
        raise FormatError(
            f"column '{column}' does not fit the JSON Schema ({problem}); change the column, or the schema. The "
            f"column's own is {derived:.500}"
        )
    return sorted(not_compared(reader))


def problems(reader: Any, writer: Any) -> Iterator[str]:
    """Why JSON of *writer* may not fit *reader*, each with its path in the reader's schema; nothing if it does.

    :raises FormatError: if so many alternatives stand within one another that they cannot be compared.
    """
    return _problems(reader, writer, "", count(1))


def _problems(reader: Any, writer: Any, path: str, compared: Iterator[int]) -> Iterator[str]:
    if next(compared) > _MOST_COMPARED:
        raise FormatError(
            f"the JSON Schema has alternatives within alternatives, of more than {_MOST_COMPARED} combinations; "
            "make it flatter"
        )
    if reader is True or reader == {}:
        return
    if not isinstance(reader, dict) or not isinstance(writer, dict):
        if reader != writer:
            yield f"TYPE_NARROWED: the schema at path '{path or '/'}' takes less than before"
        return
    alternatives = _alternatives(writer)
    if alternatives is not None:
        for each in alternatives:
            yield from _problems(reader, each, path, compared)
        return
    accepted = _alternatives(reader)
    if accepted is not None:
        if not any(next(_problems(each, writer, path, compared), None) is None for each in accepted):
            yield f"SUM_TYPE_NARROWED: nothing at path '{path or '/'}' takes {_shown(writer)}"
        return
    yield from _of_one_type(reader, writer, path, compared)


def _of_one_type(reader: dict[str, Any], writer: dict[str, Any], path: str, compared: Iterator[int]) -> Iterator[str]:
    wanted, written = reader.get("type"), writer.get("type")
    if wanted is not None and wanted != written and (wanted, written) != ("number", "integer"):
        yield f"TYPE_CHANGED: the type at path '{path or '/'}' is {wanted!r}, which does not take {written!r}"
    elif written == "object":
        yield from _of_objects(reader, writer, path, compared)
    elif written == "array" and not _is_tuple(reader.get("items")):
        yield from _problems(reader.get("items", True), writer.get("items", True), f"{path}/items", compared)


def _of_objects(reader: dict[str, Any], writer: dict[str, Any], path: str, compared: Iterator[int]) -> Iterator[str]:
    read, written = reader.get("properties", {}), writer.get("properties", {})
    others_read, others_written = (each.get("additionalProperties", True) for each in (reader, writer))
    for name, kind in written.items():
        if name in read:
            yield from _problems(read[name], kind, f"{path}/properties/{name}", compared)
        elif others_read is False:
            yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL: path '{path}/properties/{name}' is missing"
        else:
            yield from _problems(others_read, kind, f"{path}/additionalProperties", compared)
    for name in read:
        if name not in written and others_written is not False:
            yield (
                f"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL: path '{path}/properties/{name}' is new, and what was written "
                "may have anything there"
            )
    required = set(writer.get("required", ()))
    for name in reader.get("required", ()):
        if name not in required:
            yield f"REQUIRED_ATTRIBUTE_ADDED: path '{path}/properties/{name}' is required, and was not"
    if others_written is not False:
        yield from _problems(others_read, others_written, f"{path}/additionalProperties", compared)


def _alternatives(schema: dict[str, Any]) -> list[Any] | None:
    """The schemas of which a value has to fit one."""
    for name in _OF_ALTERNATIVES:
        if name in schema:
            return list(schema[name])
    kind = schema.get("type")
    return [{**schema, "type": each} for each in kind] if isinstance(kind, list) else None


def _shown(schema: Any) -> str:
    text = json.dumps(schema)
    return text if len(text) <= 60 else f"{text[:57]}..."
