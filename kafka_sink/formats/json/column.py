"""A column in JSON; see :class:`kafka_sink.formats.by_name.Format`."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from kafka_sink.formats.column_format import JSON, ColumnEncoder, ColumnFormat
from kafka_sink.formats.json.encoder import JsonEncoder
from kafka_sink.formats.schema_text import SchemaText

#: What was warned of in this process: a stream is prepared again for every batch.
_WARNED: Final[set[tuple[str, ...]]] = set()

_log = logging.getLogger(__name__)


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

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        from kafka_sink.formats.json.compatibility import check_rows

        others = check_rows(schema, self.derived(kind, column).schema, column)
        if others and (column, *others) not in _WARNED:
            _WARNED.add((column, *others))
            _log.warning(
                "the JSON Schema of column '%s' has constraints that the rows are not checked against, and readers may "
                "refuse what does not fit them: %s",
                column,
                ", ".join(others),
            )
        return ColumnFormat(column, JSON, schema.text, source=schema if schema.references else None)

    def linked(self, schema: SchemaText) -> str:
        return schema.text

    def record_name(self, form: ColumnFormat) -> str | None:
        found = json.loads(form.schema)
        title = found.get("title") if isinstance(found, dict) else None
        return title if isinstance(title, str) else None

    def registered_schema(self, form: ColumnFormat) -> SchemaText:
        return form.source or SchemaText(form.schema)


FORMAT: Final = JsonFormat()
