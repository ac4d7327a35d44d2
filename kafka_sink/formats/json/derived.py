"""The JSON Schema that belongs to a column of Arrow, in draft 7, as the registries' serializers have it.

Called on the driver, before any task. Objects are closed (``additionalProperties`` is false), so that a registry takes
a new column that may be null as compatible. A field that may be null is not required, because null fields are left out.

Source: https://json-schema.org/draft-07/json-schema-validation,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from kafka_sink.formats.json.matching import writer_for
from kafka_sink.formats.kinds import is_list

#: The name of the outermost object, by which a registry may name its subject; Avro's has the same.
TITLE: Final = "topLevelRecord"

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"

_LEAVES: Final[tuple[tuple[Callable[[pa.DataType], bool], dict[str, str]], ...]] = (
    (pa.types.is_null, {"type": "null"}),
    (pa.types.is_boolean, {"type": "boolean"}),
    (pa.types.is_integer, {"type": "integer"}),
    (pa.types.is_floating, {"type": "number"}),
    (pa.types.is_decimal, {"type": "number"}),
    (pa.types.is_date, {"type": "string", "format": "date"}),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, {"type": "string", "format": "date-time"}),
    (pa.types.is_binary, {"type": "string", "contentEncoding": "base64"}),
    (pa.types.is_large_binary, {"type": "string", "contentEncoding": "base64"}),
)


def derive_schema(kind: pa.DataType, column: str) -> str:
    """The JSON Schema for *column*, whose rows have the type *kind*. Null rows have no payload, so the schema itself
    does not allow null.

    :raises FormatError: if a type has no counterpart in JSON; the text names the column.
    """
    # Refuses what cannot be written.
    writer_for(kind, column, is_strict=True)
    derived = _derive(kind)
    title = {"title": TITLE} if pa.types.is_struct(kind) else {}
    return json.dumps({"$schema": _DRAFT, **title, **derived}, separators=(",", ":"), ensure_ascii=False)


def _derive(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        required = [field.name for field in kind if not field.nullable]
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {field.name: _derive(field.type) for field in kind},
            **({"required": required} if required else {}),
        }
    if is_list(kind):
        return {"type": "array", "items": _of_item(kind.value_field)}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _of_item(kind.item_field)}
    # A timestamp without a zone is a text without a format: RFC 3339 demands an offset.
    return next((dict(declared) for fits, declared in _LEAVES if fits(kind)), {"type": "string"})


def _of_item(field: pa.Field) -> dict[str, Any]:
    declared = _derive(field.type)
    is_null = declared == {"type": "null"}
    return {"oneOf": [{"type": "null"}, declared]} if field.nullable and not is_null else declared
