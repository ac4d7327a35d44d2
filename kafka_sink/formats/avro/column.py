"""A column in Avro; see :class:`kafka_sink.formats.by_name.Format`.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kafka_sink.formats.avro.derived import derive_schema
from kafka_sink.formats.avro.matching import writer_for
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.avro.schema import Record
from kafka_sink.formats.column_format import AVRO, ColumnEncoder, ColumnFormat
from kafka_sink.formats.payloads import FieldsEncoder


class AvroFormat:
    """Schemas are JSON texts."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        return FieldsEncoder(writer_for(parse_schema(form.schema), kind, form.column))

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        return ColumnFormat(column, AVRO, derive_schema(kind, column))

    def registrable(self, kind: pa.DataType, column: str) -> Sequence[ColumnFormat]:
        forms = (ColumnFormat(column, AVRO, derive_schema(kind, column, has_defaults=True)), self.derived(kind, column))
        return forms if forms[0] != forms[1] else forms[:1]

    def given(self, schema: str, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        return ColumnFormat(column, AVRO, schema)

    def record_name(self, form: ColumnFormat) -> str | None:
        schema = parse_schema(form.schema)
        return schema.name if isinstance(schema, Record) else None

    def registered_schema(self, form: ColumnFormat) -> str:
        return form.schema


FORMAT: Final = AvroFormat()
