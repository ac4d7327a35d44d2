"""Checks whether JSON that fits one schema fits another, by the rules of Confluent's registry.

It compares types, properties, items, enumerations, bounds, and alternatives. It refuses to judge a schema with any
other keyword that may refuse values in a part that was changed.

Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/schema-evolution.html#json-schema-compatibility-rules.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple

from kafka_sink.formats.json.parsing import CONSTRAINTS, parse_schema
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.testing.registry.avro_judge import compact
from kafka_sink.testing.registry.refusals import CannotJudgeError, Steps

_ALTERNATIVES: Final = ("oneOf", "anyOf", "allOf")
#: Type → the keywords that are compared.
_OF_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_OF_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "number": _OF_NUMBERS,
    "integer": _OF_NUMBERS,
    "boolean": frozenset(),
    "null": frozenset(),
}


def problems(reader: SchemaText, writer: SchemaText) -> list[str]:
    """The reasons why JSON of *writer* may not fit *reader*, with their paths in the reader's schema; empty if it fits.

    :raises CannotJudgeError: if they differ in keywords that are not compared.
    """
    try:
        return list(_Comparison().of(parse_schema(reader), parse_schema(writer), ""))
    except RecursionError:
        raise CannotJudgeError("a JSON Schema of so many levels") from None


class _Choice(NamedTuple):
    """A schema that combines others: all of them, or any."""

    is_all: bool
    is_any: bool
    parts: Sequence[Any]


class _Comparison:
    def __init__(self) -> None:
        #: A limit, because each alternative of one schema is compared with each of the other, at all levels.
        self._steps = Steps("JSON Schemas")
        #: Identity of a schema and keyword → the schema, so that its identity stays valid, and the keyword's values.
        self._values: dict[tuple[int, str], tuple[Any, frozenset[str]]] = {}

    def of(self, reader: Any, writer: Any, path: str) -> Iterator[str]:
        self._steps.take()
        if _is_same(reader, writer) or _takes_all(reader) or writer is False:
            return
        if reader is False or _takes_all(writer):
            yield _changed(path, reader, writer)
            return
        new, old = _choice(reader), _choice(writer)
        if new is None and old is None:
            yield from self._of_one_type(reader, writer, path)
        elif new is not None and old is not None:
            yield from self._of_choices(new, old, path)
        elif not self._is_one_of_them(reader, writer, new, old, path):
            yield f"TYPE_CHANGED: nothing at path '{path or '/'}' takes what was written before"

    def _fits(self, reader: Any, writer: Any, path: str) -> bool:
        return next(self.of(reader, writer, path), None) is None

    def _is_one_of_them(self, reader: Any, writer: Any, new: _Choice | None, old: _Choice | None, path: str) -> bool:
        if new is not None:
            may_be_any = len(new.parts) == 1 or not new.is_all
            return may_be_any and any(self._fits(part, writer, path) for part in new.parts)
        assert old is not None
        may_be_any = len(old.parts) == 1 or old.is_all
        return may_be_any and any(self._fits(reader, part, path) for part in old.parts)

    def _of_choices(self, new: _Choice, old: _Choice, path: str) -> Iterator[str]:
        both = len(new.parts) == len(old.parts) == 1
        is_wider = (
            new.is_any or both or (len(old.parts) == 1 and not new.is_all) or (len(new.parts) == 1 and old.is_all)
        )
        if (new.is_all, new.is_any) != (old.is_all, old.is_any) and not is_wider:
            yield f"COMBINED_TYPE_CHANGED: the alternatives at path '{path or '/'}' are of another kind"
            return
        if len(old.parts) > len(new.parts) and not old.is_all:
            yield f"SUM_TYPE_NARROWED: path '{path or '/'}' has fewer alternatives than before"
        elif len(old.parts) < len(new.parts) and new.is_all:
            yield f"PRODUCT_TYPE_EXTENDED: path '{path or '/'}' has more conditions than before"
        elif not self._are_matched(new.parts, old.parts, path):
            yield f"COMBINED_TYPE_SUBSCHEMAS_CHANGED: an alternative at path '{path or '/'}' takes less than before"

    def _are_matched(self, new: Sequence[Any], old: Sequence[Any], path: str) -> bool:
        """Whether each part of the shorter list can be paired with a different, compatible part of the other list."""
        fits = [[at for at, part in enumerate(new) if self._fits(part, one, path)] for one in old]
        taken: dict[int, int] = {}

        def finds(one: int, tried: set[int]) -> bool:
            for at in fits[one]:
                if at not in tried:
                    tried.add(at)
                    if at not in taken or finds(taken[at], tried):
                        taken[at] = one
                        return True
            return False

        return sum(finds(one, set()) for one in range(len(old))) == min(len(old), len(new))

    def _of_one_type(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[str]:
        wanted, written = _type(reader), _type(writer)
        for name in ("enum", "const"):
            yield from self._of_values(name, reader, writer, path)
        if wanted is None or written is None:
            if wanted != written and not (written is not None and "enum" not in reader and "const" not in reader):
                yield _changed(path, reader, writer)
            return
        if wanted != written and (wanted, written) != ("number", "integer"):
            yield _changed(path, wanted, written)
            return
        for name in sorted(_OF_TYPES[wanted] & _BOUNDS.keys()):
            if not _is_within(name, reader, writer):
                how = "CHANGED" if name in writer else "ADDED"
                yield f"{_upper(name)}_{how}: '{name}' at path '{path or '/'}' is {reader[name]!r:.60}"
        if wanted == "object":
            yield from self._of_objects(reader, writer, path)
        elif "items" in reader and wanted == "array":
            if "items" not in writer:
                yield f"SCHEMA_ADDED: path '{path}/items' takes less than before"
            else:
                yield from self.of(reader["items"], writer["items"], f"{path}/items")

    def _of_objects(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[str]:
        read, written = reader.get("properties", {}), writer.get("properties", {})
        others_read, others_written = (schema.get("additionalProperties", True) for schema in (reader, writer))
        newly_required = set(reader.get("required", ())) - set(writer.get("required", ()))
        for name, kind in written.items():
            if name in read:
                yield from self.of(read[name], kind, f"{path}/properties/{name}")
            elif others_read is False and kind is not False:
                yield f"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL: path '{path}/properties/{name}' is missing"
            elif isinstance(others_read, Mapping):
                yield from self.of(others_read, kind, f"{path}/additionalProperties")
        for name, kind in read.items():
            property_path = f"{path}/properties/{name}"
            is_needed = name in newly_required and not (isinstance(kind, Mapping) and "default" in kind)
            if name not in written:
                yield from self._of_new(kind, others_written, is_needed, property_path)
            elif is_needed:
                yield f"REQUIRED_ATTRIBUTE_ADDED: path '{property_path}' is required, and has no default"
        if others_read is True or others_written is False:
            return
        if others_read is False or others_written is True:
            how = "REMOVED" if others_read is False else "NARROWED"
            yield f"ADDITIONAL_PROPERTIES_{how}: path '{path}/additionalProperties' takes less than before"
        else:
            yield from self.of(others_read, others_written, f"{path}/additionalProperties")

    def _of_new(self, kind: Any, others: Any, is_needed: bool, path: str) -> Iterator[str]:
        if others is True:
            if not _takes_all(kind):
                how = "REQUIRED" if is_needed else "OPTIONAL"
                yield (
                    f"{how}_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL: path '{path}' is new, and what was written may have "
                    "anything there"
                )
            return
        if isinstance(others, Mapping):
            yield from self.of(kind, others, path)
        if is_needed:
            yield f"REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL: path '{path}' is required, and has no default"

    def _of_values(self, name: str, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[str]:
        if name in reader and (name not in writer or not self._all(name, writer) <= self._all(name, reader)):
            yield f"{_upper(name)}_NARROWED: '{name}' at path '{path or '/'}' has fewer values than before"

    def _all(self, name: str, schema: Mapping[str, Any]) -> frozenset[str]:
        key = (id(schema), name)
        if key not in self._values:
            values = [schema[name]] if name == "const" else schema[name]
            self._values[key] = schema, frozenset(compact(value) for value in values)
        return self._values[key][1]


def _takes_all(schema: Any) -> bool:
    return schema is True or (isinstance(schema, Mapping) and not (schema.keys() & CONSTRAINTS))


def _choice(schema: Mapping[str, Any]) -> _Choice | None:
    kinds = schema.get("type")
    constraints = schema.keys() & CONSTRAINTS
    names = [name for name in _ALTERNATIVES if name in schema]
    if names and len(constraints) == 1:
        parts = {compact(part, is_sorted=True): part for part in schema[names[0]]}
        return _Choice(names[0] == "allOf", names[0] == "anyOf", list(parts.values()))
    if not isinstance(kinds, list) or names:
        return None
    _check(schema, "type", "enum", *(name for kind in kinds for name in _OF_TYPES.get(kind, ())))
    if "enum" in schema:
        raise CannotJudgeError("a JSON Schema with an enum of several types")
    return _Choice(False, True, [_only(schema, kind) for kind in kinds])


def _only(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """*schema*, restricted to its type *kind*."""
    kept = _OF_TYPES.get(kind, frozenset())
    return {"type": kind, **{name: value for name, value in schema.items() if name in kept}}


def _type(schema: Mapping[str, Any]) -> str | None:
    """The type of *schema*; None if it only lists values."""
    kind = schema.get("type")
    constraints = schema.keys() & CONSTRAINTS
    if kind is None and constraints <= {"enum", "const"}:
        return None
    if kind is None:
        # Keywords that apply to one type only imply the type, as in Confluent's registry.
        kind = next((name for name, keywords in _OF_TYPES.items() if constraints <= keywords), None)
    if not isinstance(kind, str) or kind not in _OF_TYPES or isinstance(schema.get("items"), list):
        raise CannotJudgeError("a changed JSON Schema without a type that is known, or with items in a list")
    _check(schema, "type", "enum", "const", *_OF_TYPES[kind])
    return kind


def _check(schema: Mapping[str, Any], *compared: str) -> None:
    others = sorted((schema.keys() & CONSTRAINTS) - set(compared))
    if others:
        raise CannotJudgeError(f"a changed JSON Schema with {', '.join(others)}")


def _is_same(reader: Any, writer: Any) -> bool:
    # In Python 1 and True are equal.
    return reader == writer and compact(reader, is_sorted=True) == compact(writer, is_sorted=True)


def _is_within(name: str, reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
    if name not in reader or reader[name] is False:
        return True
    if name not in writer:
        return False
    new, old = reader[name], writer[name]
    if isinstance(new, bool) or isinstance(old, bool) or not isinstance(new, type(old) | int | float):
        return _is_same(new, old)
    return _BOUNDS[name](new, old)


def _upper(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).upper()


def _changed(path: str, reader: Any, writer: Any) -> str:
    return f"TYPE_CHANGED: the schema at path '{path or '/'}' is {reader!r:.60}, which does not take {writer!r:.60}"


#: Keyword → whether its first value accepts all that the second one accepts.
_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), operator.ge),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), operator.le),
    **dict.fromkeys(("pattern", "uniqueItems"), operator.eq),
    "multipleOf": lambda new, old: new != 0 and Fraction(str(old)) % Fraction(str(new)) == 0,
}
