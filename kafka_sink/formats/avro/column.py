"""A column in Avro; see :class:`kafka_sink.formats.by_name.Format`.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kafka_sink.formats.avro.derived import derive_schema
from kafka_sink.formats.avro.linking import linked, without_comments
from kafka_sink.formats.avro.matching import writer_for
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.avro.schema import Record
from kafka_sink.formats.column_format import AVRO, ColumnEncoder, ColumnFormat
from kafka_sink.formats.payloads import FieldsEncoder
from kafka_sink.formats.schema_text import SchemaText


class AvroFormat:
    """Schemas are JSON texts."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        return FieldsEncoder(writer_for(parse_schema(form.schema), kind, form.column))

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        return ColumnFormat(column, AVRO, derive_schema(kind, column))

    def registrable(self, kind: pa.DataType, column: str) -> Sequence[ColumnFormat]:
        forms = (ColumnFormat(column, AVRO, derive_schema(kind, column, has_defaults=True)), self.derived(kind, column))
        return forms if forms[0] != forms[1] else forms[:1]

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        # A registry and its readers may not accept comments.
        schema = without_comments(schema)
        return ColumnFormat(column, AVRO, linked(schema), source=schema if schema.references else None)

    def linked(self, schema: SchemaText) -> str:
        return linked(schema)

    def record_name(self, form: ColumnFormat) -> str | None:
        schema = parse_schema(form.schema)
        return schema.name if isinstance(schema, Record) else None

    def registered_schema(self, form: ColumnFormat) -> SchemaText:
        return form.source or SchemaText(form.schema)


FORMAT: Final = AvroFormat()
