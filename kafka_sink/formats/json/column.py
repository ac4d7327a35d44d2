"""A column in JSON, see :class:`~kafka_sink.formats.column_format.Format`: its encoder, and its JSON Schema in draft 7,
as in the registries' serializers.

The encoder is created once per task and column, and called on the task's thread for each batch of rows: one text per
row, with a constant number of numpy and Arrow passes per field, and never a loop over rows. Schemas are derived on the
driver, before any task. Objects are closed (``additionalProperties`` is false), so that a registry accepts a new
nullable column as compatible. A nullable field is not required, because null fields are left out.

Source: Spark's ``to_json`` (apache/spark ``JacksonGenerator.scala``), whose bytes these are;
https://json-schema.org/draft-07/json-schema-validation,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from kafka_sink.formats.column_format import (
    DEFAULT_SETTINGS,
    JSON,
    TOP_LEVEL,
    ColumnEncoder,
    ColumnFormat,
    Format,
    SessionSettings,
)
from kafka_sink.formats.errors import FormatError, check_unique, shown_type
from kafka_sink.formats.fields import PER_SECOND, is_list, is_text, nulls_of
from kafka_sink.formats.json import writers
from kafka_sink.formats.json.matching import Matching, NullFields
from kafka_sink.formats.json.moments import DateWriter, TimestampWriter, TimeWriter, check_of_legacy_texts, known_zone
from kafka_sink.formats.json.parsing import parse_schema
from kafka_sink.formats.payloads import leaf_checks, payloads_of
from kafka_sink.formats.schema_text import SchemaText


def writer_for(kind: pa.DataType, path: str, *, is_strict: bool, null_fields: NullFields) -> writers.TokenWriter:
    """The writer of column *path*, whose rows have the type *kind*; *is_strict*: NaN and infinite values are refused.

    :raises FormatError: if the column cannot be written as JSON; the text names it.
    """

    def inside(part: pa.DataType, at: str, within: NullFields) -> writers.TokenWriter:
        return writer_for(part, f"{path}{at}", is_strict=is_strict, null_fields=within)

    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        check_unique(names, path)
        fields = [inside(field.type, f".{field.name}", null_fields.property(field.name)) for field in kind]
        return writers.StructWriter(
            tuple(map(quoted, names)), tuple(fields), tuple(name in null_fields for name in names)
        )
    if is_list(kind):
        return writers.ArrayWriter(inside(kind.value_type, "[]", null_fields.within("items")))
    if pa.types.is_map(kind):
        values = inside(kind.item_type, "{}", null_fields.within("additionalProperties"))
        return writers.MapWriter(_key_writer(kind.key_type, f"{path}{{key}}"), values)
    if pa.types.is_timestamp(kind):
        return TimestampWriter(PER_SECOND[kind.unit], None if kind.tz is None else known_zone(kind.tz, path))
    writer = _leaf_writer(kind, path, is_strict)
    if writer is None:
        raise FormatError(
            f"column '{path}' is {shown_type(kind)}, which has no counterpart in JSON; cast it to string, or drop it"
        )
    return writer


def _leaf_writer(kind: pa.DataType, path: str, is_strict: bool) -> writers.TokenWriter | None:
    is_of = pa.types
    if is_text(kind):
        return writers.TextWriter(path)
    if is_of.is_integer(kind) or is_of.is_decimal128(kind):
        return writers.NumberWriter()
    if is_of.is_float32(kind) or is_of.is_float64(kind):
        return writers.FloatWriter(path, is_strict)
    if is_of.is_boolean(kind):
        return writers.BooleanWriter()
    if is_of.is_binary(kind) or is_of.is_large_binary(kind):
        return writers.BinaryWriter(path)
    if is_of.is_date32(kind):
        return DateWriter()
    if is_of.is_time(kind):
        return TimeWriter(PER_SECOND[kind.unit])
    return writers.NothingWriter() if is_of.is_null(kind) else None


def _key_writer(kind: pa.DataType, path: str) -> writers.TokenWriter:
    if is_text(kind):
        return writers.TextWriter(path)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return writers.QuotedWriter()
    raise FormatError(
        f"column '{path}' has the type {shown_type(kind)}, but the names of JSON's objects are texts; cast the keys: "
        "transform_keys(…, lambda key, _: key.cast('string'))"
    )


def quoted(name: str) -> bytes:
    """*name* as a text of JSON."""
    inside = b"".join(
        writers.escape(code) if code < 0x20 or code in (34, 92) else bytes([code]) for code in name.encode("utf-8")
    )
    return b'"' + inside + b'"'


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
    # Raises for a type that cannot be written.
    writer_for(kind, column, is_strict=True, null_fields=NullFields())
    derived = _derive(kind)
    title = {"title": TOP_LEVEL} if pa.types.is_struct(kind) else {}
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
    # A timestamp without a zone is a text without a format: RFC 3339 requires an offset.
    return next((dict(declared) for fits, declared in _LEAVES if fits(kind)), {"type": "string"})


def _of_item(field: pa.Field) -> dict[str, Any]:
    declared = _derive(field.type)
    is_null = declared == {"type": "null"}
    return {"oneOf": [{"type": "null"}, declared]} if field.nullable and not is_null else declared


class JsonEncoder:
    """Writes rows of one type; see :class:`~kafka_sink.formats.column_format.ColumnEncoder`."""

    def __init__(
        self,
        kind: pa.DataType,
        column: str,
        schema: Any = None,
        settings: SessionSettings = DEFAULT_SETTINGS,
        defaulted: frozenset[str] = frozenset(),
    ) -> None:
        """*kind* is the type of the rows, and *column* their name for messages. With a *schema*, a parsed JSON Schema,
        rows that it does not accept are refused, including NaN and infinite numbers, which are texts without a schema.
        *settings* and *defaulted* as in :class:`ColumnFormat`; with a schema, a null field that they keep is written
        if the schema accepts null.

        :raises FormatError: if the column has a type without a counterpart, or one that *schema* does not accept; the
            text names it.
        """
        kept = defaulted if settings.keeps_null_of_defaults else frozenset()
        nulls = NullFields(() if schema is None else (schema,), not settings.ignores_null_fields, column, kept)
        self._checks = [] if schema is None else Matching(schema).checks(kind, column, nulls)
        if settings.time_parser == "LEGACY":
            self._checks += leaf_checks(kind, column, check_of_legacy_texts)
        self._writer = writer_for(kind, column, is_strict=schema is not None, null_fields=nulls)

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        nulls = nulls_of(rows)
        for check in self._checks:
            check(rows, nulls)
        tokens = [writers.Literal(prefix, nulls), *self._writer.tokens(rows, nulls)]
        return payloads_of(writers.pieces_of(tokens, len(rows)), len(rows), nulls)


class JsonFormat(Format):
    """Schemas are JSON Schemas; the schema is empty if neither a registry nor a reader gets one."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        schema = parse_schema(SchemaText(form.schema)) if form.schema else None
        return JsonEncoder(kind, form.column, schema, form.settings, form.defaulted)

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        return ColumnFormat(column, JSON, derive_schema(kind, column))

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        JsonEncoder(kind, column, parse_schema(schema))
        return ColumnFormat(column, JSON, self.linked(schema), source=schema if schema.references else None)

    def linked(self, schema: SchemaText) -> str:
        return json.dumps(parse_schema(schema), ensure_ascii=False) if schema.references else schema.text

    def record_name(self, form: ColumnFormat) -> str | None:
        schema = json.loads(form.schema)
        title = schema.get("title") if isinstance(schema, dict) else None
        return title if isinstance(title, str) else None


FORMAT: Final = JsonFormat()
