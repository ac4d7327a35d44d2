"""The formats by their names: the schema of a column, and what encodes its rows.

Called on the driver, which checks a column by creating its encoder, and in the tasks. Only formats in use are loaded.
"""

from __future__ import annotations

import json

import pyarrow as pa

from kafka_sink.formats.column_format import JSON, ColumnEncoder, ColumnFormat


def encoder_of(form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
    """What encodes rows of the type *kind*.

    :raises FormatError: if the schema is invalid, or the column does not fit it; the text names the column.
    """
    if form.name == JSON:
        from kafka_sink.formats.json.encoder import JsonEncoder

        # What has a schema must fit it, and no schema of a number allows the text "NaN".
        return JsonEncoder(kind, form.column, is_strict=bool(form.schema))
    from kafka_sink.formats.avro.encoder import AvroEncoder

    return AvroEncoder(form.schema, kind, form.column)


def derived_schema(name: str, kind: pa.DataType, column: str) -> str:
    """The schema in the format *name* for rows of the type *kind*.

    :raises FormatError: if a type has no counterpart; the text names the column.
    """
    if name == JSON:
        from kafka_sink.formats.json import derived

        return derived.derive_schema(kind, column)
    from kafka_sink.formats.avro.derived import derive_schema

    return derive_schema(kind, column)


def check_given(name: str, schema: str, kind: pa.DataType, column: str) -> None:
    """Check that rows of the type *kind* fit *schema*, which was not derived from them; for Avro the encoder does.

    :raises FormatError: if they may not, or if it cannot be told.
    """
    if name == JSON:
        from kafka_sink.formats.json.compatibility import check_rows

        check_rows(schema, derived_schema(name, kind, column), column)


def record_name(name: str, schema: str) -> str | None:
    """The full name of the record that *schema* describes; None if it describes none."""
    if name == JSON:
        found = json.loads(schema)
        title = found.get("title") if isinstance(found, dict) else None
        return title if isinstance(title, str) else None
    from kafka_sink.formats.avro.parsing import parse_schema
    from kafka_sink.formats.avro.schema import Record

    avro = parse_schema(schema)
    return avro.name if isinstance(avro, Record) else None
