"""Makes one text of an Avro schema and of those that it refers to, by declaring each type where it is used first.

Called where schemas are parsed, except in tasks.

Source: https://avro.apache.org/docs/1.12.0/specification/#names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafka_sink.formats.avro.parsing import json_of
from kafka_sink.formats.avro.schema import PRIMITIVES
from kafka_sink.formats.bounds import MOST_DEPTH
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.formats.schema_text import without_comments as text_without_comments

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


class Names(NamedTuple):
    """What a schema declares, the outermost type first, and what it uses: of each name the full names that it may
    stand for."""

    declared: tuple[str, ...]
    used: tuple[tuple[str, ...], ...]


def names_of(text: str) -> Names:
    """The names in the schema *text*.

    :raises FormatError: if it is no JSON, or nested too deep.
    """
    places = list(_places(json_of(text), "", 0))
    declared = [_full_name(each.type, each.namespace) for each in places if isinstance(each.type, Mapping)]
    used = [_meanings(each.type, each.namespace) for each in places if isinstance(each.type, str)]
    return Names(tuple(declared), tuple(used))


def without_comments(schema: SchemaText) -> SchemaText:
    """*schema*, and what it refers to, without comments. What a registry has already stays as it is."""
    references = tuple(
        each if each.version else replace(each, schema=without_comments(each.schema)) for each in schema.references
    )
    return SchemaText(text_without_comments(schema.text), references)


def linked(schema: SchemaText) -> str:
    """The text of *schema* with all that it refers to.

    :raises FormatError: if one of the texts is no JSON, or they are beyond the bounds.
    """
    others = schema.others()
    if not others:
        return schema.text
    return json.dumps(_Linker(others).written(json_of(schema.text), "", is_own=True), ensure_ascii=False)


class _Place(NamedTuple):
    """A named type that is declared (an object), or the name of one that is used, within *namespace*."""

    type: Any
    namespace: str


def _places(declared: Any, namespace: str, depth: int) -> Iterator[_Place]:
    if depth > MOST_DEPTH:
        raise FormatError(f"the Avro schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
    parts: Sequence[Any] = ()
    if isinstance(declared, str):
        if declared not in PRIMITIVES:
            yield _Place(declared, namespace)
    elif isinstance(declared, list):
        parts = declared
    elif isinstance(declared, dict):
        kind = declared.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            yield _Place(declared, namespace)
            namespace = _full_name(declared, namespace).rpartition(".")[0]
            parts = [each.get("type") for each in _fields(declared) if isinstance(each, dict)]
        else:
            parts = [declared.get(_PART.get(kind, "type") if isinstance(kind, str) else "type")]
    for part in parts:
        yield from _places(part, namespace, depth + 1)


#: Where the type within another one stands.
_PART: Final = {"array": "items", "map": "values"}


class _Linker:
    """Writes types, and those of *others* where they are used first."""

    def __init__(self, others: Mapping[str, str]) -> None:
        self._others: dict[str, _Place] = {}
        for text in others.values():
            for place in _places(json_of(text), "", 0):
                if isinstance(place.type, dict):
                    self._others.setdefault(_full_name(place.type, place.namespace), place)
        self._written: set[str] = set()
        self._depth = 0

    def written(self, declared: Any, namespace: str, *, is_own: bool) -> Any:
        """*declared*, which stands in *namespace*; *is_own*: in the schema itself, whose words are kept."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise FormatError(f"the Avro schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
        written = self._written_type(declared, namespace, is_own)
        self._depth -= 1
        return written

    def _written_type(self, declared: Any, namespace: str, is_own: bool) -> Any:
        if isinstance(declared, str):
            return self._by_name(declared, namespace)
        if isinstance(declared, list):
            return [self.written(each, namespace, is_own=is_own) for each in declared]
        if not isinstance(declared, dict):
            return declared
        kind = declared.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            return self._declared(declared, namespace, is_own)
        part = _PART.get(kind, "type") if isinstance(kind, str) else "type"
        if part not in declared:
            return declared
        return {**declared, part: self.written(declared[part], namespace, is_own=is_own)}

    def _by_name(self, name: str, namespace: str) -> Any:
        for full in _meanings(name, namespace):
            if full in self._written:
                return full
            if full in self._others:
                place = self._others[full]
                return self.written(place.type, place.namespace, is_own=False)
        return name

    def _declared(self, declared: dict[str, Any], namespace: str, is_own: bool) -> Any:
        full = _full_name(declared, namespace)
        if full in self._written and not is_own:
            return full
        self._written.add(full)
        inside = full.rpartition(".")[0]
        # A type without a namespace must not get that of the place where it is written now.
        written = declared if is_own else {**declared, "name": full, "namespace": inside}
        if "fields" not in declared:
            return written
        fields = [
            {**each, "type": self.written(each["type"], inside, is_own=is_own)}
            if isinstance(each, dict) and "type" in each
            else each
            for each in _fields(declared)
        ]
        return {**written, "fields": fields}


def _fields(declared: Mapping[str, Any]) -> Sequence[Any]:
    fields = declared.get("fields")
    return fields if isinstance(fields, list) else ()


def _full_name(declared: Mapping[str, Any], namespace: str) -> str:
    name, inside = str(declared.get("name")), declared.get("namespace", namespace)
    return name if "." in name or not inside else f"{inside}.{name}"


def _meanings(name: str, namespace: str) -> tuple[str, ...]:
    return (f"{namespace}.{name}", name) if namespace and "." not in name else (name,)
