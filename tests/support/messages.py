"""Messages of the protocol written as literals, for tests that need no more of a message than its fields.

A tuple has a struct's fields in the order in which the message declares them, a dictionary has them by name, and any
other value is its first field: ``request_body(ApiKey.FETCH, topics=[{"topic": "t", "partitions": [0]}])``.
"""

from __future__ import annotations

from typing import Any

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Array, FieldType, Struct


def request_body(key: ApiKey, *values: Any, **named: Any) -> Any:
    """The request of an API with these fields, or the one that is given. :raises TypeError: if it has no such field."""
    if len(values) == 1 and type(values[0]) is api(key).request:
        return values[0]
    return _struct(api(key).request, values, named)


def response_body(key: ApiKey, *values: Any, **named: Any) -> Any:
    """The response of an API with these fields. :raises TypeError: if it has no such field."""
    return _struct(api(key).response, values, named)


def _struct(kind: type[Struct], values: tuple[Any, ...], named: dict[str, Any]) -> Struct:
    fields = kind.SCHEMA.fields
    if len(values) > len(fields):
        raise TypeError(f"{kind.__name__} has {len(fields)} fields, not {len(values)}")
    types = {field.name: field.type for field in fields}
    given = dict(zip(types, values, strict=False)) | named
    return kind(**{name: _value(types[name], value) if name in types else value for name, value in given.items()})


def _value(type_: FieldType, value: Any) -> Any:
    if isinstance(type_, Array):
        return [_value(type_.element, each) for each in value] if isinstance(value, list) else value
    if not isinstance(type_, type) or value is None or isinstance(value, Struct):
        return value
    if isinstance(value, dict):
        return _struct(type_, (), value)
    return _struct(type_, value if isinstance(value, tuple) else (value,), {})
