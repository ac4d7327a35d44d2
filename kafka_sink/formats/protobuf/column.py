"""A column in Protobuf; see :class:`kafka_sink.formats.column_format.Format`.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kafka_sink.formats.column_format import PROTOBUF, ColumnEncoder, ColumnFormat
from kafka_sink.formats.payloads import FieldsEncoder
from kafka_sink.formats.protobuf.matching import fields_of_rows
from kafka_sink.formats.protobuf.schema import ProtobufSchema
from kafka_sink.formats.schema_text import SchemaText


class ProtobufFormat:
    """Schemas are texts of proto files, compiled on the driver; the tasks get the messages."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        return FieldsEncoder(fields_of_rows(messages_of(form), kind, form.column))

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        from kafka_sink.formats.protobuf.derived import derive_schema

        derived = derive_schema(kind, column)
        return ColumnFormat(column, PROTOBUF, derived.text, messages=derived.schema)

    def registrable(self, kind: pa.DataType, column: str) -> Sequence[ColumnFormat]:
        return (self.derived(kind, column),)

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        from kafka_sink.formats.protobuf.parsing import parse_schema

        text = self.linked(schema)
        source = schema if schema.references else None
        return ColumnFormat(column, PROTOBUF, text, messages=parse_schema(text, message), source=source)

    def linked(self, schema: SchemaText) -> str:
        from kafka_sink.formats.protobuf.descriptors import linked

        return linked(schema)

    def record_name(self, form: ColumnFormat) -> str | None:
        return messages_of(form).root

    def registered_schema(self, form: ColumnFormat) -> SchemaText:
        from kafka_sink.formats.protobuf.parsing import registered_text

        return form.source or registered_text(form.schema, messages_of(form).root)


def messages_of(form: ColumnFormat) -> ProtobufSchema:
    """The messages that the schema declares. :raises ValueError: if the column was not made by this format."""
    if not isinstance(form.messages, ProtobufSchema):
        raise ValueError(f"column {form.column!r} has no messages of Protobuf")
    return form.messages


FORMAT: Final = ProtobufFormat()
