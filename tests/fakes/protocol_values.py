"""Messages for tests: from the golden values, from hypothesis, and which messages there are."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import BYTES, RECORDS, STRING, UUID, Array, FieldType, Primitive, Struct, StructField

GOLDEN = Path(__file__).parents[1] / "golden" / "protocol"


def message_kinds() -> list[type[Struct]]:
    """Every declared request and response."""
    return [kind for api in APIS.values() for kind in (api.request, api.response)]


def versions_of(kind: type[Struct]) -> range:
    versions = kind.SCHEMA.versions
    assert versions is not None
    return range(versions.min, versions.max + 1)


def message_versions() -> list[Any]:
    """Every (message, version), to be drawn from or parametrized over."""
    return [(kind, version) for kind in message_kinds() for version in versions_of(kind)]


def encoded_by(maker: str, kind: type[Struct]) -> bool:
    """Whether *maker*, a golden file, has to have *kind*: kafka-python knows only the classic protocol of groups."""
    return maker != "kafka_python.json" or not kind.__name__.startswith("ConsumerGroup")


@cache
def golden(file_name: str) -> dict[str, Any]:
    """The messages of a file that tests/golden/make_protocol_golden.py wrote."""
    messages: dict[str, Any] = json.loads((GOLDEN / file_name).read_text())["messages"]
    return messages


def golden_message(kind: type[Struct], version: int, variant: str) -> Struct:
    """The golden values of *kind*, as far as *version* has fields for them."""
    return _build(kind, golden("values.json")[kind.__name__][variant], version)


def golden_seeds() -> Iterator[tuple[type[Struct], int, bytes]]:
    """Well-formed bytes of every message and version, none of them made by us."""
    for kind, version in message_versions():
        for text in golden("kafka_clients.json")[kind.__name__][str(version)].values():
            yield kind, version, bytes.fromhex(text)


def _build(kind: type[Struct], values: dict[str, Any], version: int) -> Struct:
    found = {}
    for field in kind.SCHEMA.fields:
        if version in field.versions and field.name in values:
            value = values[field.name]
            if value is None and version not in field.nullable:
                value = [] if isinstance(field.type, Array) else ""
            found[field.name] = _convert(field.type, value, version)
    return kind(**found)


def _convert(type: FieldType, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(type, Array):
        return [_convert(type.element, item, version) for item in value]
    if not isinstance(type, Primitive):
        return _build(type, value, version)
    if type is BYTES or type is RECORDS:
        return bytes.fromhex(value)
    return uuid.UUID(value) if type is UUID else value


def messages(kind: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Any message of *kind* that *version* can carry."""
    fields = {field.name: _field_values(field, version) for field in kind.SCHEMA.fields if version in field.versions}
    return st.builds(kind, **fields)


def _field_values(field: StructField, version: int) -> st.SearchStrategy[Any]:
    values = _values(field.type, version)
    return st.none() | values if version in field.nullable else values


def _values(type: FieldType, version: int) -> st.SearchStrategy[Any]:
    if isinstance(type, Array):
        return st.lists(_values(type.element, version), max_size=3)
    if not isinstance(type, Primitive):
        return messages(type, version)
    if type is STRING:
        return st.text(max_size=5) | st.integers(120, 300).map("s".__mul__)
    if type is BYTES or type is RECORDS:
        return st.binary(max_size=200)
    if type is UUID:
        return st.uuids(allow_nil=True)
    if type.name == "bool":
        return st.booleans()
    if type.name == "float64":
        return st.floats(allow_nan=False)
    bits = int(type.name.removeprefix("u").removeprefix("int"))
    return st.integers(0, 2**bits - 1) if type.name[0] == "u" else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
