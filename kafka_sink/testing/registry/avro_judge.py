"""Avro in the registry: the text by which schemas are stored and compared, the validation of new schemas, and the check
whether data of one schema can be read by another.

The text is the same as in Avro's own library, so equal schemas with different spellings have the same text. Apache's
package checks whether data can be read; it resolves names differently from Java's library, which Confluent's registry
uses, so it gets schemas with full names only. A new schema is validated by rules of Java's library that are not applied
when old schemas are read, above all for defaults. The JSON of a schema is one that
:mod:`kafka_sink.formats.avro.parsing` has accepted.

Source: https://avro.apache.org/docs/1.12.0/specification/ (names, schema resolution, default values), Schema.toString,
Schema.isValidDefault and SchemaCompatibility of https://github.com/apache/avro/tree/release-1.12.1/lang/java/avro.
"""

from __future__ import annotations

import contextlib
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from kafka_sink.formats.avro.parsing import NAMED, PART, json_of, linked
from kafka_sink.formats.avro.schema import PRIMITIVES
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import MOST_DEPTH, SchemaText
from kafka_sink.testing.registry.refusals import CannotJudgeError, Steps

#: The attributes with a meaning in a type (and in an enum), and in a field; all others are properties, and are kept.
_OF_TYPES: Final = frozenset(
    ["doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"]
)
_OF_FIELDS: Final = frozenset(["aliases", "default", "doc", "name", "order", "type"])
#: The namespace of types without one in full names: within other types they would inherit one. It is never shown.
NO_NAMESPACE: Final = "kafkalite_no_namespace"
_WORDS: Final = PRIMITIVES | NAMED | PART.keys() | {"union"}


def canonical(declared: Any, *, is_normal: bool = False) -> str:
    """The text of the schema *declared*; with *is_normal*, it does not depend on the order of properties."""
    return compact(_Writer(is_normal).type(declared, ""))


def compact(value: Any, *, is_sorted: bool = False) -> str:
    """*value* as JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)


def full_name(name: str, namespace: str) -> str:
    """The full name of *name* within *namespace*."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Rewriter:
    """Rewrites the JSON of a schema, each type within the namespace *outer*."""

    def __init__(self) -> None:
        self._declared: set[str] = set()

    def type(self, declared: Any, outer: str) -> Any:
        if isinstance(declared, str):
            return declared if declared in PRIMITIVES else self._name(self._used(declared, outer), outer)
        if isinstance(declared, list):
            return [self.type(branch, outer) for branch in declared]
        kind = declared["type"]
        if not isinstance(kind, str):
            return self.type(kind, outer)
        if kind in NAMED:
            full = full_name(declared["name"], declared.get("namespace", outer) or "")
            self._declared.add(full)
            return self._named(kind, declared, full, outer)
        more = self._properties(declared, _OF_TYPES)
        if kind in PART:
            return {"type": kind, PART[kind]: self.type(declared[PART[kind]], outer), **more}
        if kind in PRIMITIVES:
            return {"type": kind, **more} if more else kind
        return self._name(self._used(kind, outer), outer)

    def _used(self, name: str, outer: str) -> str:
        """The full name of a declared type that is used within *outer*; the name as it is written for a type of another
        schema."""
        full = full_name(name, outer)
        return name if full not in self._declared and name in self._declared else full

    @abstractmethod
    def _name(self, full: str, outer: str) -> str:
        """The name *full* as it is written within *outer*."""

    @abstractmethod
    def _named(self, kind: str, declared: Mapping[str, Any], full: str, outer: str) -> dict[str, Any]:
        """The type *declared* with the full name *full*."""

    def _properties(self, declared: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """The attributes of *declared* that are written in addition to *names*."""
        return {}


class _Writer(_Rewriter):
    def __init__(self, is_normal: bool) -> None:
        super().__init__()
        self._is_normal = is_normal

    def _name(self, full: str, outer: str) -> str:
        space, _, last = full.rpartition(".")
        return last if space == outer and last not in _WORDS else full

    def _named(self, kind: str, declared: Mapping[str, Any], full: str, outer: str) -> dict[str, Any]:
        space, _, last = full.rpartition(".")
        named: dict[str, Any] = {"type": kind, "name": last, **({"namespace": space} if space != outer else {})}
        named |= {name: declared[name] for name in ("doc",) if isinstance(declared.get(name), str)}
        if "fields" in declared:
            named["fields"] = [self._field(field, space) for field in declared["fields"]]
        for name in ("symbols", "size"):
            if name in declared:
                named[name] = declared[name]
        is_enum = kind == "enum"
        if is_enum and isinstance(declared.get("default"), str):
            named["default"] = declared["default"]
        named |= self._properties(declared, _OF_TYPES | {"default"} if is_enum else _OF_TYPES)
        if aliases := declared.get("aliases"):
            whole = [full_name(alias, space) for alias in aliases]
            named["aliases"] = [name.rpartition(".")[2] if name.rpartition(".")[0] == space else name for name in whole]
        return named

    def _field(self, declared: Mapping[str, Any], outer: str) -> dict[str, Any]:
        field: dict[str, Any] = {"name": declared["name"], "type": self.type(declared["type"], outer)}
        if isinstance(declared.get("doc"), str):
            field["doc"] = declared["doc"]
        if "default" in declared:
            field["default"] = declared["default"]
        if str(declared.get("order", "ascending")).lower() != "ascending":
            field["order"] = declared["order"]
        if aliases := declared.get("aliases"):
            field["aliases"] = aliases
        return {**field, **self._properties(declared, _OF_FIELDS)}

    def _properties(self, declared: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        properties = {name: value for name, value in declared.items() if name not in names}
        return dict(sorted(properties.items())) if self._is_normal else properties


def spelled_out(declared: Any) -> Any:
    """The JSON of the schema *declared* with full names, and without attributes that do not affect the data.

    :raises FormatError: if aliases are not names.
    """
    return _Speller().type(declared, "")


def records_of(part: Any) -> Iterator[Mapping[str, Any]]:
    """The records in *part* of a schema from :func:`spelled_out`."""
    return (kind for kind in _named_in(part) if "fields" in kind)


def _named_in(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, list):
        for inner in part:
            yield from _named_in(inner)
    elif isinstance(part, Mapping):
        if "name" in part:
            yield part
        inner = [*(field["type"] for field in part.get("fields", ())), part.get("items"), part.get("values")]
        yield from _named_in(inner)


class _Speller(_Rewriter):
    def _name(self, full: str, outer: str) -> str:
        return _whole(full)

    def _named(self, kind: str, declared: Mapping[str, Any], full: str, outer: str) -> dict[str, Any]:
        inside = full.rpartition(".")[0]
        named: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": _whole(full)}
        named["aliases"] = [_whole(full_name(alias, inside)) for alias in _aliases(declared)]
        named |= {name: declared[name] for name in ("symbols", "size") if name in declared}
        if isinstance(declared.get("default"), str):
            named["default"] = declared["default"]
        if "fields" in declared:
            named["fields"] = [self._field(field, inside) for field in declared["fields"]]
        return named

    def _field(self, declared: Mapping[str, Any], inside: str) -> dict[str, Any]:
        kept = {name: declared[name] for name in ("name", "default", "order") if name in declared}
        return {**kept, "aliases": _aliases(declared), "type": self.type(declared["type"], inside)}


def _whole(full: str) -> str:
    return full if "." in full else f"{NO_NAMESPACE}.{full}"


def _aliases(declared: Mapping[str, Any]) -> list[str]:
    aliases = declared.get("aliases")
    if aliases is not None and not (isinstance(aliases, list) and all(isinstance(alias, str) for alias in aliases)):
        raise FormatError(f"{declared['name']} has the aliases {aliases!r:.60}, expected a list of names")
    return aliases or []


#: Apache's package compares the name of each field with all names before it.
_MOST_FIELDS: Final = 5_000
#: The maximum number of problems of two schemas.
_MOST_PROBLEMS: Final = 100
#: The maximum number of lookups of fields in records with one name.
_MOST_NAMES: Final = 1_000_000
#: The maximum length of a problem, which may name all symbols of an enum.
_MOST_CHARACTERS: Final = 500


def problems(reader: SchemaText, writer: SchemaText) -> list[str]:
    """The reasons why data of *writer* cannot be read as *reader*; empty if it can.

    :raises CannotJudgeError: if Apache's package is missing, or does not accept one of the schemas.
    """
    try:
        from avro import compatibility
        from avro.errors import AvroException
        from avro.schema import parse
    except ImportError:
        raise CannotJudgeError(
            "Avro schemas without Apache's package avro", "pip install 'kafkalite[registry]', or "
        ) from None
    texts = [spelled_out(json_of(linked(schema))) for schema in (reader, writer)]
    if any(len(record["fields"]) > _MOST_FIELDS for text in texts for record in records_of(text)):
        raise CannotJudgeError(f"a record of Avro with more than {_MOST_FIELDS} fields")
    try:
        read, written = (parse(compact(text), validate_names=False) for text in texts)
        verdict = _checker(compatibility).get_compatibility(read, written)
    except (AvroException, RecursionError) as error:
        raise CannotJudgeError(f"this Avro schema ({error})".replace(f"{NO_NAMESPACE}.", "")) from None
    twice = _found_twice(*texts)
    if twice is not None:
        return [f"the field '{twice}' of the reader stands for several fields of the writer"]
    kinds = dict.fromkeys(incompatibility.name.upper() for incompatibility in verdict.incompatibilities)
    # The locations always include the root.
    paths = ", ".join(f"path '{path}'" for path in sorted(verdict.locations - {"/"} or {"/"}))
    messages = ", ".join(f"{message:.{_MOST_CHARACTERS}}" for message in sorted(verdict.messages)).replace(
        f"{NO_NAMESPACE}.", ""
    )
    return [f"{', '.join(kinds)}: {messages} at {paths}"] if kinds else []


def _checker(package: Any) -> Any:
    """Apache's checker with limits: its steps are counted, and only some problems are kept, because it copies all of
    them at each step."""

    class Checker(package.ReaderWriterCompatibilityChecker):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._steps = Steps("Avro schemas")
            #: Identity of a schema → its fields; the schemas themselves would be compared as JSON.
            self._fields: dict[int, Mapping[str, Any]] = {}

        def get_compatibility(self, reader: Any, writer: Any, *location: Any) -> Any:
            self._steps.take()
            return _some_of(super().get_compatibility(reader, writer, *location))

        def check_reader_writer_record_fields(self, reader: Any, writer: Any, location: list[str]) -> Any:
            if id(writer) not in self._fields:
                self._fields[id(writer)] = writer.fields_dict
            fields = self._fields[id(writer)]
            problems = package.CompatibleResult
            for index, field in enumerate(reader.fields):
                names = (field.name, *(field.props.get("aliases") or ()))
                written = next((fields[name] for name in names if name in fields), None)
                path = [*location, "fields", str(index)]
                if written is not None:
                    result = self.get_compatibility(field.type, written.type, "type", path)
                elif field.has_default:
                    continue
                elif field.type.type == "enum" and field.type.props.get("default"):
                    result = self.get_compatibility(field.type, writer, "type", path)
                else:
                    kind = package.SchemaIncompatibilityType.reader_field_missing_default_value
                    result = package.incompatible(kind, field.name, path)
                problems = _some_of(package.merge(problems, result))
            return problems

    return Checker()


def _some_of(result: Any) -> Any:
    """*result* with at most :data:`_MOST_PROBLEMS` problems: one is enough to refuse a schema."""
    if len(result.incompatibilities) > _MOST_PROBLEMS:
        del result.incompatibilities[_MOST_PROBLEMS:]
        result.messages = set(sorted(result.messages)[:_MOST_PROBLEMS])
        result.locations = set(sorted(result.locations)[:_MOST_PROBLEMS])
    return result


def _found_twice(reader: Any, writer: Any) -> str | None:
    """A field of a record in *reader* that matches, by its name and aliases, several fields of the same record in
    *writer*: Java's library refuses it, and the package uses the first."""
    steps = Steps("Avro schemas", _MOST_NAMES)
    written: dict[str, list[Counter[str]]] = {}
    for record in records_of(writer):
        names = Counter(field["name"] for field in record["fields"])
        for name in {record["name"], record["name"].rpartition(".")[2]}:
            written.setdefault(name, []).append(names)
    for record in records_of(reader):
        for name in (record["name"].rpartition(".")[2], *record["aliases"]):
            for names in written.get(name, ()):
                steps.take(1 + sum(1 + len(field["aliases"]) for field in record["fields"]))
                for field in record["fields"]:
                    if sum(names[name] for name in (field["name"], *field["aliases"])) > 1:
                        return str(field["name"])
    return None


#: The number of values in defaults of nested records may grow exponentially.
_MOST_VALUES: Final = 10_000
_ORDERS: Final = ("ascending", "descending", "ignore")


def check_new(declared: Any) -> None:
    """Check the JSON of the schema *declared*, which refers to no other schema.

    :raises FormatError: if aliases, an order or a default are not valid; the text names the field.
    """
    whole = spelled_out(declared)
    named = {kind["name"]: kind for kind in _named_in(whole)}
    for kind in named.values():
        shown = kind["name"].removeprefix(f"{NO_NAMESPACE}.")
        if "symbols" in kind and kind.get("default", kind["symbols"][0]) not in kind["symbols"]:
            raise FormatError(f"enum {shown} has the default {kind['default']!r:.60}, which is not one of its symbols")
        for field in kind.get("fields", ()):
            if str(field.get("order", _ORDERS[0])).lower() not in _ORDERS:
                raise FormatError(f"field {field['name']} of {shown} has an order other than {', '.join(_ORDERS)}")
            if "default" in field and not _Defaults(named).fits(field["type"], _default(field), 0):
                problem = f"field {field['name']} of {shown} has the default {field['default']!r:.60}"
                raise FormatError(f"{problem}, which is not a value of its type; correct it")


class _Defaults:
    def __init__(self, named: Mapping[str, Mapping[str, Any]]) -> None:
        self._named = named
        self._values = count(1)

    def fits(self, kind: Any, value: Any, depth: int) -> bool:
        """Whether *value* in a default is a value of the type *kind*, or of any type of a union."""
        if next(self._values) > _MOST_VALUES or depth > MOST_DEPTH:
            return False
        if isinstance(kind, list):
            return any(self.fits(branch, value, depth + 1) for branch in kind)
        declared = self._named.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(declared, str):
            return _IS_VALUE[declared](value)
        match declared["type"], value:
            case "array", list():
                return all(self.fits(declared["items"], item, depth + 1) for item in value)
            case "map", dict():
                return all(self.fits(declared["values"], item, depth + 1) for item in value.values())
            case "record", dict():
                return all(self._has(field, value, depth + 1) for field in declared["fields"])
            case "enum" | "fixed", str():
                return True
        return False

    def _has(self, field: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> bool:
        name = field["name"]
        if name not in value and "default" not in field:
            return False
        return self.fits(field["type"], value.get(name, field.get("default")), depth)


def _is_integer(value: Any, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1


def _default(field: Mapping[str, Any]) -> Any:
    """The default of *field*; for a float or double a text, such as NaN, is converted to the number."""
    value = field["default"]
    if field["type"] in ("float", "double") and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value


_IS_VALUE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": lambda value: _is_integer(value, 32),
    "long": lambda value: _is_integer(value, 64),
    **dict.fromkeys(("float", "double"), lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    **dict.fromkeys(("bytes", "string"), lambda value: isinstance(value, str)),
}
