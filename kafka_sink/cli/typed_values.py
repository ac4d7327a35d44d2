"""Keys and values in a format, one at a time: shown as JSON, and made of JSON.

Runs on the main thread. The schemas of a registry are asked for once each.
"""

from __future__ import annotations

import contextlib
import io
import json
from functools import cache
from typing import Any

from kafka_sink.cli import avro_json, protobuf_values
from kafka_sink.cli.json_records import Read, Shown, bytes_text, json_text
from kafka_sink.cli.value_schemas import TypedColumn, registered
from kafka_sink.common.errors import ConfigError, SerializationError
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.column_format import AVRO, JSON, PROTOBUF, ColumnFormat
from kafka_sink.formats.errors import FormatError
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.subjects import split_wire, wire_header


def shown(form: str | None, column: str, registry: RegistryClient | None) -> Shown:
    """What makes JSON of the keys or values, called *column*, in the format *form*; None: text or base64.

    :raises ConfigError: if the format needs a registry and there is none, or if its package is not installed.
    """
    if form is None:
        return bytes_text
    if form == JSON:
        return lambda payload: "null" if payload is None else _json_of(payload, column)
    if registry is None:
        raise ConfigError(f"{form.capitalize()} is read by the schemas of a registry; give --registry URL")
    return protobuf_values.shown(column, registry) if form == PROTOBUF else _shown_avro(column, registry)


def shown_by_schema(registry: RegistryClient) -> Shown:
    """What makes JSON of values of Avro and of Protobuf, as the types of their schemas say; of Protobuf, if its
    packages are installed.

    :raises ConfigError: if the package of Avro is not installed.
    """
    by_kind = {AVRO.upper(): shown(AVRO, "value", registry)}
    # Who has no such schemas needs no such packages.
    with contextlib.suppress(FormatError):
        by_kind[PROTOBUF.upper()] = shown(PROTOBUF, "value", registry)
    kind_of = cache(registry.kind)

    def decoded(payload: bytes | None) -> str:
        if payload is None:
            return "null"
        schema_id, _ = split_wire(payload)
        kind = kind_of(schema_id)
        if kind not in by_kind:
            raise SerializationError(f"schema {schema_id} is {kind}, which is not decoded here")
        return by_kind[kind](payload)

    return decoded


def _shown_avro(column: str, registry: RegistryClient) -> Shown:
    fastavro = _fastavro()

    @cache
    def schema(schema_id: int) -> Any:
        return fastavro.parse_schema(json.loads(registry.schema(schema_id)))

    def decoded(payload: bytes | None) -> str:
        if payload is None:
            return "null"
        schema_id, data = split_wire(payload)
        source = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(source, schema(schema_id), None)
        except (EOFError, ValueError, IndexError, KeyError, OverflowError, RecursionError) as error:
            raise SerializationError(f"the {column} is no Avro of schema {schema_id} ({error!r})") from None
        if source.tell() != len(data):
            raise SerializationError(f"the {column} has bytes after the Avro of schema {schema_id}")
        return json_text(avro_json.to_json(value))

    return decoded


def _json_of(payload: bytes, column: str) -> str:
    """The payload itself, in one line: parsed and written again, numbers would lose digits."""
    data = split_wire(payload)[1] if payload[:1] == b"\0" else payload
    try:
        text = data.decode("utf-8")
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"the {column} is no JSON ({error})") from None
    # In JSON a line feed stands between values, never within a text.
    return text.replace("\n", " ").replace("\r", " ")


def payload_writer(registry: RegistryClient, written: TypedColumn) -> Read:
    """What makes payloads of JSON, by the schema in the file, which is registered or looked up as the options say, or
    by the latest one of the subject.

    :raises ConfigError: if the schema is invalid, or a package of the format is not installed.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    return protobuf_values.writer(registry, written) if written.form == PROTOBUF else _avro_writer(registry, written)


def _avro_writer(registry: RegistryClient, written: TypedColumn) -> Read:
    fastavro, file = _fastavro(), written.schema_file
    given = None if file is None else ColumnFormat(written.column, AVRO, file.read_text(encoding="utf-8"))
    found = registered(registry, written, given)
    kind, parsed = parse_schema(found.schema), fastavro.parse_schema(json.loads(found.schema))
    header = wire_header(found.schema_id)

    def encoded(value: Any, field: str) -> bytes | None:
        if value is None:
            return None
        datum, target = avro_json.from_json(value, kind, field), io.BytesIO()
        try:
            fastavro.validation.validate(datum, parsed, strict=False)
            fastavro.schemaless_writer(target, parsed, datum)
        except fastavro.validation.ValidationError as error:
            raise SerializationError(f"field {field}: {_first(error.errors)}") from None
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            raise SerializationError(f"field {field}: {error}") from None
        return header + target.getvalue()

    return encoded


def _first(errors: Any) -> str:
    return str(next(iter(errors), "does not fit the schema"))


def _fastavro() -> Any:
    """:raises ConfigError: if it is not installed."""
    try:
        import fastavro
        import fastavro.validation
    except ImportError:
        raise ConfigError(
            "Avro on the command line needs the package fastavro, which pip install 'kafkalite[avro]' installs"
        ) from None
    return fastavro
