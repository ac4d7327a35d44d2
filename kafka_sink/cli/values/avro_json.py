"""Values in JSON as those of Avro, by their schema. Pure functions.

It is the JSON that :mod:`kafka_sink.formats.avro.reading` makes: bytes are ``{"base64": "…"}`` or text; decimals,
dates, times and timestamps are texts, and so are numbers that JSON does not have.

Source: https://avro.apache.org/docs/1.12.0/specification/#logical-types; the JSON is not Avro's own JSON encoding,
which names the types of unions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from kafka_sink.cli.values.json_records import bytes_from_json
from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.avro.schema import NULL, Array, AvroType, Fixed, Map, Primitive, Record, Union
from kafka_sink.formats.avro.schema import Decimal as AvroDecimal


def from_json(value: Any, kind: AvroType, path: str) -> Any:
    """*value* as fastavro writes it by the schema *kind*; what is no such JSON is left for fastavro to refuse.

    :raises SerializationError: if a text is no number or time of its type, or a field is unknown; the text names the
        path.
    """
    if isinstance(kind, Union):
        return _of_union(value, kind, path)
    if isinstance(kind, Record) and isinstance(value, dict):
        return _of_record(value, kind, path)
    if isinstance(kind, Array) and isinstance(value, list):
        return [from_json(each, kind.items, f"{path}[]") for each in value]
    if isinstance(kind, Map) and isinstance(value, dict):
        return {name: from_json(each, kind.values, f"{path}{{{name}}}") for name, each in value.items()}
    if isinstance(kind, Fixed) or kind == Primitive("bytes"):
        return bytes_from_json(value, path)
    if isinstance(kind, AvroDecimal) and isinstance(value, str | int | float) and not isinstance(value, bool):
        return _read(Decimal, str(value), kind, path)
    if isinstance(kind, Primitive) and isinstance(value, str):
        read = _TEXTS.get(kind.name if kind.logical is None else kind.logical.removeprefix("local-"))
        return value if read is None else _read(read, value, kind, path)
    return value


_TEXTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "float": float,
    "double": float,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
}


def _read(read: Callable[[str], Any], text: str, kind: AvroType, path: str) -> Any:
    try:
        value = read(text)
    except (ValueError, ArithmeticError):
        raise SerializationError(f"field {path}: {text[:60]!r} is not valid for {kind}") from None
    if isinstance(value, datetime) and value.tzinfo is None:
        # A timestamp without an offset is meant in UTC, and so is one of local time for fastavro.
        return value.replace(tzinfo=UTC)
    return value


def _of_union(value: Any, kind: Union, path: str) -> Any:
    if value is None:
        return None
    problem: SerializationError | None = None
    for branch in kind.branches:
        if branch == NULL:
            continue
        try:
            return from_json(value, branch, path)
        except SerializationError as error:
            problem = problem or error
    raise problem or SerializationError(f"field {path}: has a value, and the schema only allows null")


def _of_record(value: dict[str, Any], kind: Record, path: str) -> dict[str, Any]:
    types = {field.name: field.type for field in kind.fields}
    for name in value:
        if name not in types:
            raise SerializationError(f"field {path}.{name}: the schema has no such field in its {kind}")
    return {name: from_json(each, types[name], f"{path}.{name}") for name, each in value.items()}
