"""What Avro's own library refuses in a new schema, and readers of old ones overlook: defaults above all.

Source: Schema.isValidDefault of https://github.com/apache/avro/tree/release-1.12.1/lang/java/avro, which Confluent's
registry uses, and https://avro.apache.org/docs/1.12.0/specification/#schema-record (field default values).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from kafka_sink.formats.bounds import MOST_DEPTH
from kafka_sink.formats.errors import FormatError
from kafka_sink.testing.registry.avro_text import NO_NAMESPACE, spelled_out

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
                said = f"field {field['name']} of {shown} has the default {field['default']!r:.60}"
                raise FormatError(f"{said}, which is not a value of its type; correct it")


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
