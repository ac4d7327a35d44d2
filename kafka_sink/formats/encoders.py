"""The formats by their names: the schema of a column, and what encodes its rows.

Called on the driver, which checks a column by creating its encoder, and in the tasks. Only formats in use are loaded.
"""

from __future__ import annotations

import json

import pyarrow as pa

from kafka_sink.formats.column_format import JSON, PROTOBUF, ColumnEncoder, ColumnFormat
from kafka_sink.formats.errors import FormatError


def encoder_of(form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
    """What encodes rows of the type *kind*.

    :raises FormatError: if the schema is invalid, or the column does not fit it; the text names the column.
    """
    if form.messages is not None:
        from kafka_sink.formats.protobuf.encoder import ProtobufEncoder

        return ProtobufEncoder(form.messages, kind, form.column)
    if form.name == JSON:
        from kafka_sink.formats.json.encoder import JsonEncoder

        # What has a schema must fit it, and no schema of a number allows the text "NaN".
        return JsonEncoder(kind, form.column, is_strict=bool(form.schema))
    from kafka_sink.formats.avro.encoder import AvroEncoder

    return AvroEncoder(form.schema, kind, form.column)


def derived_format(name: str, kind: pa.DataType, column: str) -> ColumnFormat:
    """*column* in the format *name*, by the schema for rows of the type *kind*.

    :raises FormatError: if a type has no counterpart; the text names the column.
    """
    if name == PROTOBUF:
        from kafka_sink.formats.protobuf.derived import derive_schema as derive_messages

        derived = derive_messages(kind, column)
        return ColumnFormat(column, name, derived.text, messages=derived.schema)
    if name == JSON:
        from kafka_sink.formats.json.derived import derive_schema as derive_json

        return ColumnFormat(column, name, derive_json(kind, column))
    from kafka_sink.formats.avro.derived import derive_schema

    return ColumnFormat(column, name, derive_schema(kind, column))


def given_format(name: str, schema: str, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
    """*column* in the format *name* by *schema*, which was not derived from its type *kind*; of Protobuf, as *message*.
    Whether the rows fit it is told by the encoder, and of JSON here.

    :raises FormatError: if *schema* is invalid, lacks the message, or the rows may not fit it.
    """
    if name == PROTOBUF:
        from kafka_sink.formats.protobuf.parsing import parse_schema

        return ColumnFormat(column, name, schema, messages=parse_schema(schema, message))
    if name == JSON:
        from kafka_sink.formats.json.compatibility import check_rows

        check_rows(schema, derived_format(name, kind, column).schema, column)
    return ColumnFormat(column, name, schema)


def record_name(form: ColumnFormat) -> str | None:
    """The full name of the record that the schema describes; None if it describes none."""
    if form.messages is not None:
        return form.messages.root
    if form.name == JSON:
        found = json.loads(form.schema)
        title = found.get("title") if isinstance(found, dict) else None
        return title if isinstance(title, str) else None
    from kafka_sink.formats.avro.parsing import parse_schema
    from kafka_sink.formats.avro.schema import Record

    avro = parse_schema(form.schema)
    return avro.name if isinstance(avro, Record) else None


def registered_schema(form: ColumnFormat) -> str:
    """The schema as a registry gets it.

    :raises FormatError: if it cannot be registered; the text names the column.
    """
    if form.messages is None:
        return form.schema
    from kafka_sink.formats.protobuf.parsing import registered_text

    try:
        return registered_text(form.schema, form.messages.root)
    except FormatError as error:
        raise FormatError(f"column '{form.column}': {error}") from None
