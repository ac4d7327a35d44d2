"""Requests with arrays of many small things, for every API of the embedded broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_request
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Array, Primitive, Struct, StructField


def arrays() -> Iterator[tuple[ApiKey, StructField]]:
    """Each API with each array that its requests have in the latest version."""
    for key, handler in HANDLERS.items():
        for field in api(key).request.SCHEMA.fields:
            if isinstance(field.type, Array) and handler.versions.max in field.versions and field.tag is None:
                yield key, field


def frame_of(key: ApiKey, field: StructField, numbers: list[int]) -> bytes:
    """A request with an item for each of *numbers* in *field*. :raises ValueError: if it needs more than its array."""
    assert isinstance(field.type, Array)
    body = api(key).request()
    setattr(body, field.name, [_item(field.type.element, number) for number in numbers])
    return b"".join(map(bytes, encode_request(key, HANDLERS[key].versions.max, 7, "c", body)))


def _item(element: Primitive | type[Struct], number: int) -> Any:
    """An item that is told from others by its number, with one item in each of its arrays."""
    if isinstance(element, Primitive):
        if element.name == "string":
            return f"n{number}"
        if element.name == "uuid":
            return uuid.UUID(int=number + 1)
        return number % 100 if element.format == "b" else number
    made = element()
    for field in element.SCHEMA.fields:
        if field.tag is None and isinstance(field.type, Primitive) and field.type.name == "string":
            setattr(made, field.name, f"n{number}")
        elif field.tag is None and isinstance(field.type, Array):
            setattr(made, field.name, [_item(field.type.element, number)])
    return made


def bodies_of(key: ApiKey, version: int, text: str | None, topic_id: uuid.UUID, number: int | None) -> Iterator[Struct]:
    """Requests of a version in which each string is *text* (None: null, where it may be), each UUID is *topic_id*, each
    number is *number* (None: its default), and each array has no item, or one, on up to three levels."""
    for levels in range(4):
        yield _filled(api(key).request, version, levels, {"string": text, "uuid": topic_id, "number": number})


def _filled(kind: type[Struct], version: int, levels: int, values: Mapping[str, Any]) -> Struct:
    made = kind()
    for field in kind.SCHEMA.fields:
        if version not in field.versions or field.tag is not None:
            continue
        if values["string"] is None and version in field.nullable:
            setattr(made, field.name, None)
        elif isinstance(field.type, Array):
            item = _value(field.type.element, version, levels - 1, values)
            if item is None and isinstance(field.type.element, Primitive):
                item = field.type.element.default
            setattr(made, field.name, [item] if levels else [])
        else:
            value = _value(field.type, version, levels, values)
            if value is not None:
                setattr(made, field.name, value)
    return made


def _value(type_: Primitive | type[Struct], version: int, levels: int, values: Mapping[str, Any]) -> Any:
    """A field's value; None stands for its default."""
    if not isinstance(type_, Primitive):
        return _filled(type_, version, levels, values)
    return values["number"] if type_.format in ("b", "h", "i", "q") else values.get(type_.name)
