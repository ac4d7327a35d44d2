"""Whether data of one Avro schema can be read by another, and whether a new schema is valid.

Apache's package decides the first; the second are rules of Java's library that readers of old schemas overlook:
defaults above all.

The package finds names otherwise than Java's library does, which Confluent's registry uses, so it is given schemas in
which all names stand in full.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution and #schema-record (default values),
https://github.com/apache/avro/blob/release-1.12.1/lang/java/avro/src/main/java/org/apache/avro/SchemaCompatibility.java
and Schema.isValidDefault beside it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from kafka_sink.formats.avro.linking import linked
from kafka_sink.formats.avro.parsing import json_of
from kafka_sink.formats.bounds import MOST_DEPTH
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import SchemaText
from kafka_sink.testing.registry.avro_text import NO_NAMESPACE, compact, records_of, spelled_out
from kafka_sink.testing.registry.refusals import CannotJudgeError, Steps

#: Apache's package compares the name of each field with all names before it.
_MOST_FIELDS: Final = 5_000
#: Of two schemas.
_MOST_PROBLEMS: Final = 100
#: Of fields, looked for in records of one name.
_MOST_NAMES: Final = 1_000_000
#: Of a problem: it may name all symbols of an enum.
_MOST_CHARACTERS: Final = 500


def problems(reader: SchemaText, writer: SchemaText) -> list[str]:
    """Why data of *writer* cannot be read as *reader*; nothing if it can.

    :raises CannotJudgeError: if Apache's package is missing, or does not read one of them.
    """
    try:
        from avro import compatibility
        from avro.errors import AvroException
        from avro.schema import parse
    except ImportError:
        raise CannotJudgeError(
            "Avro schemas without Apache's package avro", "pip install 'kafkalite[registry]', or "
        ) from None
    texts = [spelled_out(json_of(linked(each))) for each in (reader, writer)]
    if any(len(record["fields"]) > _MOST_FIELDS for text in texts for record in records_of(text)):
        raise CannotJudgeError(f"a record of Avro with more than {_MOST_FIELDS} fields")
    try:
        read, written = (parse(compact(each), validate_names=False) for each in texts)
        verdict = _checker(compatibility).get_compatibility(read, written)
    except (AvroException, RecursionError) as error:
        raise CannotJudgeError(f"this Avro schema ({error})".replace(f"{NO_NAMESPACE}.", "")) from None
    twice = _found_twice(*texts)
    if twice is not None:
        return [f"the field '{twice}' of the reader stands for several fields of the writer"]
    kinds = dict.fromkeys(each.name.upper() for each in verdict.incompatibilities)
    # The root is always among them.
    places = ", ".join(f"path '{each}'" for each in sorted(verdict.locations - {"/"} or {"/"}))
    messages = ", ".join(f"{each:.{_MOST_CHARACTERS}}" for each in sorted(verdict.messages)).replace(
        f"{NO_NAMESPACE}.", ""
    )
    return [f"{', '.join(kinds)}: {messages} at {places}"] if kinds else []


def _checker(package: Any) -> Any:
    """Apache's checker, which ends: its steps are counted, and of the problems that it finds some are kept, where it
    copies all of them with each."""

    class Checker(package.ReaderWriterCompatibilityChecker):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._steps = Steps("Avro schemas")
            #: By identity: Apache's schemas are compared as JSON.
            self._fields: dict[int, Mapping[str, Any]] = {}

        def get_compatibility(self, reader: Any, writer: Any, *place: Any) -> Any:
            self._steps.take()
            return _some_of(super().get_compatibility(reader, writer, *place))

        def check_reader_writer_record_fields(self, reader: Any, writer: Any, location: list[str]) -> Any:
            if id(writer) not in self._fields:
                self._fields[id(writer)] = writer.fields_dict
            fields = self._fields[id(writer)]
            problems = package.CompatibleResult
            for index, field in enumerate(reader.fields):
                names = (field.name, *(field.props.get("aliases") or ()))
                written = next((fields[each] for each in names if each in fields), None)
                place = [*location, "fields", str(index)]
                if written is not None:
                    found = self.get_compatibility(field.type, written.type, "type", place)
                elif field.has_default:
                    continue
                elif field.type.type == "enum" and field.type.props.get("default"):
                    found = self.get_compatibility(field.type, writer, "type", place)
                else:
                    kind = package.SchemaIncompatibilityType.reader_field_missing_default_value
                    found = package.incompatible(kind, field.name, place)
                problems = _some_of(package.merge(problems, found))
            return problems

    return Checker()


def _some_of(result: Any) -> Any:
    """*result* with some of its problems: one is enough to refuse a schema."""
    if len(result.incompatibilities) > _MOST_PROBLEMS:
        del result.incompatibilities[_MOST_PROBLEMS:]
        result.messages = set(sorted(result.messages)[:_MOST_PROBLEMS])
        result.locations = set(sorted(result.locations)[:_MOST_PROBLEMS])
    return result


def _found_twice(reader: Any, writer: Any) -> str | None:
    """A field of a record in *reader* that stands, by its name and aliases, for several fields of the same record in
    *writer*: Java's library refuses it, and the package takes the first.
    """
    steps = Steps("Avro schemas", _MOST_NAMES)
    written: dict[str, list[Counter[str]]] = {}
    for record in records_of(writer):
        names = Counter(each["name"] for each in record["fields"])
        for name in {record["name"], record["name"].rpartition(".")[2]}:
            written.setdefault(name, []).append(names)
    for record in records_of(reader):
        for name in (record["name"].rpartition(".")[2], *record["aliases"]):
            for names in written.get(name, ()):
                steps.take(1 + sum(1 + len(each["aliases"]) for each in record["fields"]))
                for field in record["fields"]:
                    if sum(names[each] for each in (field["name"], *field["aliases"])) > 1:
                        return str(field["name"])
    return None


#: Defaults of records within one another may stand for exponentially many values.
_MOST_VALUES: Final = 10_000
_ORDERS: Final = ("ascending", "descending", "ignore")


def check_new(declared: Any) -> None:
    """Check the JSON of the schema *declared*, in which nothing refers to others.

    :raises FormatError: if aliases, an order or a default are not valid; the text names the field.
    """
    whole = spelled_out(declared)
    named = {each["name"]: each for each in _named(whole)}
    for each in named.values():
        shown = each["name"].removeprefix(f"{NO_NAMESPACE}.")
        if "symbols" in each and each.get("default", each["symbols"][0]) not in each["symbols"]:
            raise FormatError(f"enum {shown} has the default {each['default']!r:.60}, which is not one of its symbols")
        for field in each.get("fields", ()):
            if str(field.get("order", _ORDERS[0])).lower() not in _ORDERS:
                raise FormatError(f"field {field['name']} of {shown} has an order other than {', '.join(_ORDERS)}")
            if "default" in field and not _Defaults(named).fits(field["type"], _default(field), 0):
                problem = f"field {field['name']} of {shown} has the default {field['default']!r:.60}"
                raise FormatError(f"{problem}, which is not a value of its type; correct it")


def _named(part: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(part, list):
        for each in part:
            yield from _named(each)
    elif isinstance(part, Mapping):
        if "name" in part:
            yield part
        yield from _named([*(each["type"] for each in part.get("fields", ())), part.get("items"), part.get("values")])


class _Defaults:
    def __init__(self, named: Mapping[str, Mapping[str, Any]]) -> None:
        self._named = named
        self._values = count(1)

    def fits(self, kind: Any, value: Any, depth: int) -> bool:
        """Whether *value*, of a default, is one of the type *kind*; of a union, of any of its types."""
        if next(self._values) > _MOST_VALUES or depth > MOST_DEPTH:
            return False
        if isinstance(kind, list):
            return any(self.fits(each, value, depth + 1) for each in kind)
        declared = self._named.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(declared, str):
            return _IS_VALUE[declared](value)
        match declared["type"], value:
            case "array", list():
                return all(self.fits(declared["items"], each, depth + 1) for each in value)
            case "map", dict():
                return all(self.fits(declared["values"], each, depth + 1) for each in value.values())
            case "record", dict():
                return all(self._has(each, value, depth + 1) for each in declared["fields"])
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
    """The default of *field*; where a number with a fraction is expected, a text, such as NaN, is the number in it."""
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
