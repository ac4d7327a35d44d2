"""Parses the JSON of an Avro schema and checks it; and combines a schema with those that it refers to into one text, in
which each type is declared at its first use. Called on the driver and once per task; it reads no rows.

A schema comes from a registry, or is named by the producer of a record, so it is not trusted: see
:mod:`kafka_sink.formats.schema_text`.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-declaration,
https://avro.apache.org/docs/1.12.0/specification/#names.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafka_sink.common.text import words
from kafka_sink.formats.avro.schema import (
    NAME,
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    RecordField,
    TypeReference,
    Union,
)
from kafka_sink.formats.errors import FormatError, schema_boundary, shown
from kafka_sink.formats.schema_text import MOST_DEPTH, SchemaText, check_size, schema_json
from kafka_sink.formats.schema_text import without_comments as text_without_comments

#: The maximum number of types in a schema, with every name expanded to its declaration.
MOST_TYPES: Final = 100_000
#: A longer fixed exceeds the default limit of a record.
MOST_FIXED_BYTES: Final = 1 << 20
#: Arrow's decimals have at most 76 digits, and Spark's 38.
MOST_PRECISION: Final = 1_000

NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
#: Types that contain another type → the attribute with it.
PART: Final = {"array": "items", "map": "values"}
#: Type → its supported logical types. Others are ignored, as Avro requires.
_LOGICAL: Final[Mapping[str, Sequence[str]]] = {
    "int": ("date", "time-millis"),
    "long": words("""
        time-micros timestamp-millis timestamp-micros timestamp-nanos local-timestamp-millis local-timestamp-micros
        local-timestamp-nanos
    """),
}


@schema_boundary("Avro schema")
def parse_schema(text: str, *, is_read: bool = False) -> AvroType:
    """The type that the JSON *text* declares; a bare name of a primitive type is accepted without its quotes.

    :param is_read: the schema is for reading data, not for writing columns, so it may refer to itself.
    :raises FormatError: if it is no valid schema, refers to itself although it is for writing, or exceeds the limits;
        the text names the place.
    """
    return _Parser(is_read).type(json_of(text), "", "the schema")


def json_of(text: str) -> Any:
    """The JSON in *text*; a bare name of a primitive type is accepted without its quotes, and so are comments, as in
    Java's parser.

    :raises FormatError: if it is no JSON, or too large.
    """
    check_size(text, "Avro schema")
    stripped = text.strip()
    if stripped in PRIMITIVES:
        return stripped
    plain = text_without_comments(stripped)
    return schema_json(plain, "Avro schema")


class _Parser:
    """The named types of one schema; None stands for one whose declaration has not ended."""

    def __init__(self, is_read: bool) -> None:
        self._named: dict[str, AvroType | None] = {}
        self._is_read = is_read
        # The number of types with all names expanded, and the number of each name's.
        self._count = 0
        self._counts: dict[str, int] = {}
        self._depth = 0

    def type(self, declared: Any, namespace: str, location: str) -> AvroType:
        """:raises FormatError: see :func:`parse_schema`."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise FormatError(f"the Avro schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
        parsed = self._type(declared, namespace, location)
        self._depth -= 1
        self._counted(1)
        return parsed

    def _counted(self, more: int) -> None:
        self._count += more
        if self._count > MOST_TYPES and not self._is_read:
            raise FormatError(
                f"a row of the Avro schema has more than {MOST_TYPES} values, with all named types expanded; correct it"
            )

    def _type(self, declared: Any, namespace: str, location: str) -> AvroType:
        if isinstance(declared, str):
            return self._by_name(declared, namespace, location)
        if isinstance(declared, list):
            return self._union(declared, namespace, location)
        if not isinstance(declared, dict) or "type" not in declared:
            raise FormatError(f"{location} is {shown(declared)}, expected a type of Avro: a name, an object or a list")
        kind = declared["type"]
        if isinstance(kind, dict | list):
            return self.type(kind, namespace, location)
        if not isinstance(kind, str):
            raise FormatError(f"{location} has the type {shown(kind)}, expected a name")
        return self._declared(kind, declared, namespace, location)

    def _declared(self, kind: str, declared: Mapping[str, Any], namespace: str, location: str) -> AvroType:
        match kind:
            case "record" | "error":
                return self._record(declared, namespace, location)
            case "enum":
                return self._enum(declared, namespace, location)
            case "fixed":
                return self._fixed(declared, namespace, location)
            case "array":
                return Array(self.type(declared.get("items"), namespace, f"{location}[]"))
            case "map":
                return Map(self.type(declared.get("values"), namespace, f"{location}{{}}"))
            case "bytes" if (decimal := _decimal(declared, None)) is not None:
                return decimal
        if kind not in PRIMITIVES:
            return self._by_name(kind, namespace, location)
        logical = declared.get("logicalType")
        is_known = isinstance(logical, str) and logical in _LOGICAL.get(kind, ())
        return Primitive(kind, logical if is_known else None)

    def _by_name(self, name: str, namespace: str, location: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._named:
                named_type = self._named[candidate]
                if named_type is None and self._is_read:
                    return TypeReference(candidate)
                if named_type is None:
                    raise FormatError(
                        f"{location} refers to {candidate}, which contains it; a row cannot contain itself"
                    )
                self._counted(self._counts[candidate])
                return named_type
        raise FormatError(f"{location} has the unknown type {shown(name)}; declare it where it is used first")

    def _union(self, declared: list[Any], namespace: str, location: str) -> Union:
        branches = tuple(self.type(branch, namespace, location) for branch in declared)
        if not branches:
            raise FormatError(f"{location} is a union without types")
        if any(isinstance(branch, Union) for branch in branches):
            raise FormatError(f"{location} is a union within a union; write its types into the outer one")
        # A union may contain each named type once, and each other kind once.
        kinds = Counter(getattr(branch, "name", None) or str(branch) for branch in branches)
        twice = next((kind for kind, count in kinds.items() if count > 1), None)
        if twice is not None:
            raise FormatError(f"{location} is a union that has {twice} twice")
        return Union(branches)

    def _begin(self, declared: Mapping[str, Any], namespace: str, location: str) -> tuple[str, str]:
        """Register a named type; returns its full name and its namespace."""
        name = declared.get("name")
        if not isinstance(name, str) or not all(NAME.fullmatch(part) for part in name.split(".")):
            raise FormatError(
                f"{location} has the name {shown(name)}; Avro allows letters, digits and _, and no digit first"
            )
        if "." in name:
            full = name
        else:
            inside = declared.get("namespace", namespace)
            if not isinstance(inside, str | None):
                raise FormatError(f"{location} has the namespace {shown(inside)}, expected names with dots between")
            full = f"{inside}.{name}" if inside else name
        if full in self._named:
            raise FormatError(f"{location} declares {full} a second time; refer to it by its name")
        self._named[full] = None
        return full, full.rpartition(".")[0]

    def _record(self, declared: Mapping[str, Any], namespace: str, location: str) -> Record:
        full, inside = self._begin(declared, namespace, location)
        listed = declared.get("fields")
        if not isinstance(listed, list):
            raise FormatError(f"{location} (record {full}) has no list of fields")
        fields: dict[str, RecordField] = {}
        before = self._count
        for field in listed:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not NAME.fullmatch(name) or name in fields:
                raise FormatError(
                    f"record {full} has the field {shown(field)}; a field needs a name of its own, of letters, digits "
                    "and _, and no digit first"
                )
            kind = self.type(field.get("type"), inside, f"field {name} of record {full}")
            fields[name] = RecordField(name, kind, field.get("default", NO_DEFAULT))
        record = Record(full, tuple(fields.values()))
        self._named[full], self._counts[full] = record, self._count - before
        return record

    def _enum(self, declared: Mapping[str, Any], namespace: str, location: str) -> Enum:
        full, _ = self._begin(declared, namespace, location)
        symbols = declared.get("symbols")
        if (
            not isinstance(symbols, list)
            or not all(isinstance(symbol, str) and NAME.fullmatch(symbol) for symbol in symbols)
            or len(set(symbols)) != len(symbols)
        ):
            raise FormatError(f"{location} (enum {full}) has the symbols {shown(symbols)}, expected names, each once")
        enum = Enum(full, tuple(symbols))
        self._named[full], self._counts[full] = enum, 0
        return enum

    def _fixed(self, declared: Mapping[str, Any], namespace: str, location: str) -> Fixed | Decimal:
        full, _ = self._begin(declared, namespace, location)
        size = declared.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MOST_FIXED_BYTES:
            raise FormatError(
                f"{location} (fixed {full}) has the size {shown(size)}, expected a number of bytes up to "
                f"{MOST_FIXED_BYTES}"
            )
        parsed = _decimal(declared, size) or Fixed(full, size)
        self._named[full], self._counts[full] = parsed, 0
        return parsed


def _decimal(declared: Mapping[str, Any], size: int | None) -> Decimal | None:
    """The decimal of *declared*; None if it declares none, or an invalid one, which is plain bytes in Avro.

    :raises FormatError: if its precision exceeds :data:`MOST_PRECISION`.
    """
    precision, scale = declared.get("precision"), declared.get("scale", 0)
    if declared.get("logicalType") != "decimal" or not isinstance(precision, int) or not isinstance(scale, int):
        return None
    if not 0 <= scale <= precision or precision < 1:
        return None
    if precision > MOST_PRECISION:
        raise FormatError(f"the Avro schema has a decimal of {shown(precision)} digits, more than {MOST_PRECISION}")
    if size is not None and (size == 0 or precision > math.floor(math.log10(2) * (8 * size - 1))):
        return None
    return Decimal(precision, scale, size)


def names_of(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The full names of the types that the schema *text* declares, the outermost first; and for each name that it uses
    the full names that this may resolve to.

    :raises FormatError: if it is no JSON, or nested too deeply.
    """
    named_types = list(_named_types(json_of(text), "", 0))
    declared = [_full_name(named.type, named.namespace) for named in named_types if isinstance(named.type, Mapping)]
    used = [_meanings(named.type, named.namespace) for named in named_types if isinstance(named.type, str)]
    return tuple(declared), tuple(used)


def without_comments(schema: SchemaText) -> SchemaText:
    """*schema*, and the schemas that it refers to, without comments. Registered schemas are not changed."""
    references = tuple(
        reference if reference.version else replace(reference, schema=without_comments(reference.schema))
        for reference in schema.references
    )
    return SchemaText(text_without_comments(schema.text), references)


def linked(schema: SchemaText) -> str:
    """The text of *schema* with all schemas that it refers to.

    :raises FormatError: if one of the texts is no JSON, or they exceed the limits.
    """
    others = schema.others()
    if not others:
        return schema.text
    return json.dumps(_Linker(others).written(json_of(schema.text), "", is_own=True), ensure_ascii=False)


class _NamedType(NamedTuple):
    """A named type that is declared (an object), or the name of one that is used, within *namespace*."""

    type: Any
    namespace: str


def _named_types(declared: Any, namespace: str, depth: int) -> Iterator[_NamedType]:
    if depth > MOST_DEPTH:
        raise FormatError(f"the Avro schema is nested more than {MOST_DEPTH} levels deep; make it flatter")
    parts: Sequence[Any] = ()
    if isinstance(declared, str):
        if declared not in PRIMITIVES:
            yield _NamedType(declared, namespace)
    elif isinstance(declared, list):
        parts = declared
    elif isinstance(declared, dict):
        kind = declared.get("type")
        if isinstance(kind, str) and kind in NAMED:
            yield _NamedType(declared, namespace)
            namespace = _full_name(declared, namespace).rpartition(".")[0]
            parts = [field.get("type") for field in _fields(declared) if isinstance(field, dict)]
        else:
            parts = [declared.get(PART.get(kind, "type") if isinstance(kind, str) else "type")]
    for part in parts:
        yield from _named_types(part, namespace, depth + 1)


class _Linker:
    """Writes types, with the declarations of *others* at their first use."""

    def __init__(self, others: Mapping[str, str]) -> None:
        self._others: dict[str, _NamedType] = {}
        for text in others.values():
            for named in _named_types(json_of(text), "", 0):
                if isinstance(named.type, dict):
                    self._others.setdefault(_full_name(named.type, named.namespace), named)
        self._written: set[str] = set()
        self._depth = 0

    def written(self, declared: Any, namespace: str, *, is_own: bool) -> Any:
        """*declared*, used within *namespace*, as it is written; *is_own*: in the schema itself, so its names stay."""
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
            return [self.written(branch, namespace, is_own=is_own) for branch in declared]
        if not isinstance(declared, dict):
            return declared
        kind = declared.get("type")
        if isinstance(kind, str) and kind in NAMED:
            return self._declared(declared, namespace, is_own)
        part = PART.get(kind, "type") if isinstance(kind, str) else "type"
        if part not in declared:
            return declared
        return {**declared, part: self.written(declared[part], namespace, is_own=is_own)}

    def _by_name(self, name: str, namespace: str) -> Any:
        for full in _meanings(name, namespace):
            if full in self._written:
                return full
            if full in self._others:
                named = self._others[full]
                return self.written(named.type, named.namespace, is_own=False)
        return name

    def _declared(self, declared: dict[str, Any], namespace: str, is_own: bool) -> Any:
        full = _full_name(declared, namespace)
        if full in self._written and not is_own:
            return full
        self._written.add(full)
        inside = full.rpartition(".")[0]
        # A type without a namespace must not inherit the namespace of the place where it is written now.
        written = declared if is_own else {**declared, "name": full, "namespace": inside}
        if "fields" not in declared:
            return written
        fields = [
            {**field, "type": self.written(field["type"], inside, is_own=is_own)}
            if isinstance(field, dict) and "type" in field
            else field
            for field in _fields(declared)
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
