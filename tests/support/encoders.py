"""Encoders of columns by a schema, as tasks create them."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.formats.avro.matching import writer_for
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.payloads import FieldsEncoder
from kafka_sink.formats.protobuf.matching import fields_of_rows
from kafka_sink.formats.protobuf.schema import ProtobufSchema


def avro_encoder(schema: str, kind: pa.DataType, column: str) -> FieldsEncoder:
    """Writes rows of the type *kind* by the JSON of a *schema*."""
    return FieldsEncoder(writer_for(parse_schema(schema), kind, column))


def protobuf_encoder(schema: ProtobufSchema, kind: pa.DataType, column: str) -> FieldsEncoder:
    """Writes rows of the type *kind* as the root of *schema*."""
    return FieldsEncoder(fields_of_rows(schema, kind, column))
