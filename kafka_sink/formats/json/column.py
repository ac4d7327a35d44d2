"""A column in JSON; see :class:`kafka_sink.formats.by_name.Format`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kafka_sink.formats.column_format import JSON, ColumnEncoder, ColumnFormat
from kafka_sink.formats.json.encoder import JsonEncoder


class JsonFormat:
    """Schemas are JSON Schemas; the schema is empty where nobody is told of one."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        # What has a schema must fit it, and no schema of a number allows the text "NaN".
        return JsonEncoder(kind, form.column, is_strict=bool(form.schema))

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        from kafka_sink.formats.json.derived import derive_schema

        return ColumnFormat(column, JSON, derive_schema(kind, column))

    def registrable(self, kind: pa.DataType, column: str) -> Sequence[ColumnFormat]:
        return (self.derived(kind, column),)

    def given(self, schema: str, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        from kafka_sink.formats.json.compatibility import check_rows

        check_rows(schema, self.derived(kind, column).schema, column)
        return ColumnFormat(column, JSON, schema)

    def record_name(self, form: ColumnFormat) -> str | None:
        found = json.loads(form.schema)
        title = found.get("title") if isinstance(found, dict) else None
        return title if isinstance(title, str) else None

    def registered_schema(self, form: ColumnFormat) -> str:
        return form.schema


FORMAT: Final = JsonFormat()
