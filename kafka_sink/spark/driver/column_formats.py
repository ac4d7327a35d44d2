"""The schemas of key and value and their ids in a schema registry, which the driver determines before any task
begins.

Called in Spark's planner process or in the user's. A schema is derived from the column, or given in an option: itself,
a file, several files, or a folder. Columns that do not fit are refused here. It never reads a row. The ids of a
registry are cached, because a stream needs them in every micro-batch. Only writes with a format load this module, and
Arrow with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructType, UserDefinedType

from kafka_sink.common.bounded import Latest, known_number
from kafka_sink.common.config import as_properties
from kafka_sink.common.errors import (
    ConfigError,
    IncompatibleSchemaError,
    KafkaError,
    SchemaNotFoundError,
    UnusableSchemaError,
)
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.formats.column_format import JSON, PROTOBUF, ColumnFormat, format_of
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import Reference, SchemaText
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.registry.references import references_in, with_versions
from kafka_sink.registry.subjects import message_position, subject_name, wire_header
from kafka_sink.spark.options import SinkOptions, WantedFormat
from kafka_sink.spark.write_spec import digest_of

if TYPE_CHECKING:
    from kafka_sink.registry.client import RegisteredSchema, RegistryClient

#: The path in a schema's JSON that a registry refuses.
_POINTER: Final = re.compile(r"path '((?:/[^/']+)+)'")
#: The message and the field number in a Protobuf schema that a registry refuses.
_FIELD_POINTER: Final = re.compile(r"path '#/([\w.]+)/(\d+)'")


@dataclass
class Registration:
    """The ids of one registry's schemas, for rows of *topic*. Each is requested once; a RegistryError says what the
    registry refuses or does not have, or why a request failed."""

    client: RegistryClient
    config: RegistryConfig
    _ids: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _chosen: dict[str, RegisteredSchema] = field(default_factory=dict)
    _referred: dict[tuple[str, int], RegisteredSchema] = field(default_factory=dict)
    topic: str | None = None

    def with_references(self, schema: SchemaText, form: str) -> SchemaText:
        """*schema*, of the format *form*, with the texts of the registry's schemas that it refers to."""
        references = []
        for reference in schema.references:
            if reference.version:
                key = reference.subject, reference.version
                if key not in self._referred:
                    self._referred[key] = self.client.version(*key, form.upper())
                registered = self._referred[key]
                reference = replace(reference, schema=registered.schema, version=registered.version)
            references.append(reference)
        return SchemaText(schema.text, tuple(references))

    def chosen(self, column: str, form: str) -> RegisteredSchema | None:
        """The schema of the column's subject, of the format *form*, that the options choose: the latest one, or the one
        with an id; None if they choose none."""
        option = self.config.chosen(column)
        if option is None:
            return None
        subject = subject_name(self.config.strategy(column), column, self.topic, None)
        if subject not in self._chosen:
            schema_id, kind = self.config.id_for(column), form.upper()
            try:
                if schema_id is None:
                    self._chosen[subject] = self.client.latest(subject, kind)
                else:
                    from kafka_sink.registry.client import RegisteredSchema

                    schema = self.client.version_with(schema_id, subject, kind)
                    self._chosen[subject] = RegisteredSchema(schema_id, 0, schema)
            except SchemaNotFoundError as error:
                raise SchemaNotFoundError(
                    f"column '{column}': subject {subject} has no schema for {option} ({error}); register one, or set "
                    f"auto.register.schemas=true and remove {option.partition('=')[0]}"
                ) from None
        return self._chosen[subject]

    def id_of(self, form: ColumnFormat) -> int:
        """The id of the column's schema, which is registered if the options allow it."""
        subject, schema = subject_of(form, self.config, self.topic)
        key = _key(subject, schema)
        if key not in self._ids:
            self._ids[key] = self._ask(form, schema, subject)
        return self._ids[key]

    def registered(self, forms: Sequence[ColumnFormat]) -> tuple[ColumnFormat, int]:
        """The form among those of :meth:`Format.registrable` that a column is written in, and the id of its schema: an
        earlier one if its schema is a version of the subject, so that none is registered; else the first."""
        named = [(form, *subject_of(form, self.config, self.topic)) for form in forms]
        for form, subject, schema in named:
            if (key := _key(subject, schema)) in self._ids:
                return form, self._ids[key]
        for form, subject, schema in named[1:]:
            schema_id = self.client.find(subject, schema, form.name.upper())
            if schema_id is not None:
                self._ids[_key(subject, schema)] = schema_id
                return form, schema_id
        return forms[0], self.id_of(forms[0])

    def _ask(self, form: ColumnFormat, schema: SchemaText, subject: str) -> int:
        column, kind, is_registered = form.column, form.name.upper(), self.config.auto_register
        try:
            schema = with_versions(
                schema, kind, self.client, self.config.reference_subject, is_registered=is_registered
            )
            if is_registered:
                return self.client.register(subject, schema, kind)
            return self.client.id_of(subject, schema, kind)
        except IncompatibleSchemaError as error:
            raise IncompatibleSchemaError(
                f"column '{_column_of(str(error), form)}': the registry refuses the schema of subject "
                f"{subject} ({error}); {_remedy(str(error), column)}"
            ) from None
        except SchemaNotFoundError as error:
            if is_registered:
                raise SchemaNotFoundError(
                    f"column '{column}': the schema of {subject} cannot be registered, because nothing is there "
                    f"({error}); check that schema.registry.url is the address of a schema registry"
                ) from None
            raise SchemaNotFoundError(
                f"column '{column}': its schema is not a version of subject {subject} ({error}); register it, or set "
                f"auto.register.schemas=true. The schema is {schema.text:.500}"
            ) from None


def _key(subject: str, schema: SchemaText) -> tuple[str, str, str]:
    """The key of *schema* of *subject* in the cache: its text, and its references."""
    references = [(reference.name, reference.subject, reference.version) for reference in schema.references]
    return subject, schema.text, repr((references, schema.others()))


def subject_of(form: ColumnFormat, config: RegistryConfig, topic: str | None) -> tuple[str, SchemaText]:
    """The subject of the column's schema, and the schema as a registry gets it.

    :raises ConfigError: if the subject has no name; the text names the option.
    """
    written = format_of(form.name)
    subject = subject_name(config.strategy(form.column), form.column, topic, written.record_name(form))
    return subject, written.registered_schema(form)


def _remedy(refusal: str, column: str) -> str:
    """The remedy for a registry's *refusal* of the schema of *column*."""
    if "NAME_MISMATCH" in refusal:
        own = f"records of several types in one topic need {column}.subject.name.strategy=TopicRecordNameStrategy"
    elif "READER_FIELD_MISSING_DEFAULT_VALUE" in refusal:
        own = (
            "a new column has to be nullable, which nullif(column, lit(None)) makes it, or needs a schema with a "
            f"default for it (option {column}.schema)"
        )
    elif "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in refusal:
        own = "keep the column, with nulls in it: lit(None).cast(…)"
    elif "REQUIRED_ATTRIBUTE_ADDED" in refusal or "REQUIRED_PROPERTY_ADDED_TO_UNOPEN" in refusal:
        own = "the column has to be nullable, which nullif(column, lit(None)) makes it"
    else:
        own = "change the column"
    return f"{own}; or change the subject's compatibility, or write to another topic (docs/changing-a-schema.md)"


#: Each holds a client with its credentials, so the least recently used ones are discarded.
_MOST: Final = 50
#: By the digest of the registry's options, and the topic.
_registrations: Final[Latest[tuple[bytes, str | None], Registration]] = Latest(_MOST)


def registration_of(config: RegistryConfig, tls: ClientSslConfig, topic: str | None) -> Registration | None:
    """The registry of these options, for rows of *topic*; None if they name none."""
    if not config.urls:
        return None
    key = digest_of(as_properties(config) | as_properties(tls)), topic
    registration = _registrations.get(key)
    if registration is None:
        # Only writes with a registry load its client.
        from kafka_sink.registry.client import RegistryClient

        registration = _registrations.put(key, Registration(RegistryClient(config, tls), config, topic=topic))
    return registration


def _column_of(refusal: str, form: ColumnFormat) -> str:
    """The path of the column that a registry's refusal points to, as far as it can be resolved."""
    if form.name == PROTOBUF:
        from kafka_sink.formats.protobuf.column import messages_of

        match = _FIELD_POINTER.search(refusal)
        declared = messages_of(form)
        message = declared.messages[declared.root]
        # For a nested message the registry does not report the field that uses it.
        is_root = match is not None and message.name in (match[1], f"{message.name.rpartition('.')[0]}.{match[1]}")
        number = known_number(match[2]) if match and is_root else None
        names = [item.name for item in message.fields if item.number == number]
        return ".".join([form.column, *names])
    match = _POINTER.search(refusal)
    part: Any = json.loads(form.schema) if match else None
    path, before = form.column, ""
    for step in match[1].split("/")[1:] if match else ():
        if isinstance(part, Mapping):
            part = part.get(step)
        else:
            index = known_number(step, 0, len(part) - 1) if isinstance(part, list) else None
            part = None if index is None else part[index]
        if before == "fields" and isinstance(part, Mapping):
            path += f".{part.get('name')}"
        elif before == "properties":
            path += f".{step}"
        before = step
    return path


#: The maximum number of characters of a column's path in an error.
_SHOWN: Final = 60

# By name, because older versions of Spark do not have all of them.
_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "NullType": pa.null(),
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimeType": pa.time64("ns"),
    "TimestampType": pa.timestamp("us", "UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    "DayTimeIntervalType": pa.duration("us"),
}
#: The maximum nesting level of types in batches that Arrow reads (``kMaxNestingDepth`` of Arrow's C++ library).
_MOST_LEVELS: Final = 64


def formats_of(schema: StructType, options: SinkOptions) -> list[ColumnFormat]:
    """The formats of the columns of *schema* that have one.

    :raises ConfigError: if a schema cannot be read, or does not fit the column; the text names the column by its path.
    """
    registry = registration_of(options.registry, options.registry_tls, options.spec.topic)
    formats = []
    for wanted in options.wanted_formats:
        column = schema[wanted.column]
        try:
            form = _format_of(wanted, arrow_type(column.dataType, column.name), registry)
        except KafkaError as error:
            error.column = error.column or column.name
            raise
        formats.append(replace(form, defaulted=frozenset(_defaulted(column.dataType, column.name))))
    return formats


def _defaulted(kind: DataType, path: str) -> Iterator[str]:
    """The paths of the fields of *kind*, the type of column *path*, that are columns of a table with a default."""
    if isinstance(kind, ArrayType):
        yield from _defaulted(kind.elementType, f"{path}[]")
    if isinstance(kind, MapType):
        yield from _defaulted(kind.valueType, f"{path}{{}}")
    for item in kind if isinstance(kind, StructType) else ():
        if "EXISTS_DEFAULT" in (item.metadata or {}):
            yield f"{path}.{item.name}"
        yield from _defaulted(item.dataType, f"{path}.{item.name}")


def _format_of(wanted: WantedFormat, kind: pa.DataType, registry: Registration | None) -> ColumnFormat:
    column, name = wanted.column, wanted.name
    chosen = None if registry is None else registry.chosen(column, name)
    forms: Sequence[ColumnFormat]
    if registry is not None and chosen is not None:
        forms = [
            # Without latest.compatibility.strict nothing is compared, and an empty schema accepts any value.
            ColumnFormat(column, JSON, "{}")
            if name == JSON and not registry.config.latest_strict
            else format_of(name).given(chosen.schema, kind, column, wanted.message)
        ]
    elif name == JSON and registry is None:
        # JSON needs no schema to be written or read.
        forms = [ColumnFormat(column, name, "")]
    else:
        schema = None if wanted.schema is None else given_schema(wanted)
        if registry is not None and schema is not None:
            schema = registry.with_references(schema, name)
        forms = _forms(wanted, kind, schema, is_registered=registry is not None)
    # Raises an error for a column that the tasks could not write.
    format_of(name).encoder(forms[0], kind)
    if registry is None:
        return forms[0]
    ready, schema_id = registry.registered(forms) if chosen is None else (forms[0], chosen.schema_id)
    position = b""
    if name == PROTOBUF:
        from kafka_sink.formats.protobuf.column import messages_of

        # After the id, Confluent's wire format of Protobuf has the message indexes.
        position = message_position(messages_of(ready).position)
    return replace(ready, prefix=wire_header(schema_id) + position, source=None)


def _forms(
    wanted: WantedFormat, kind: pa.DataType, schema: SchemaText | None, *, is_registered: bool
) -> Sequence[ColumnFormat]:
    """The forms of *wanted* with *schema*, or with the schemas that are derived from the type *kind*."""
    form = format_of(wanted.name)
    if schema is not None:
        return [form.given(schema, kind, wanted.column, wanted.message)]
    return form.registrable(kind, wanted.column) if is_registered else [form.derived(kind, wanted.column)]


def forms_to_register(wanted: WantedFormat, schema: StructType) -> Sequence[ColumnFormat]:
    """The forms of a column of *schema*; the first one's schema would be registered
    (:meth:`~kafka_sink.formats.column_format.Format.registrable`). References to the registry are not resolved.

    :raises ConfigError: as :func:`formats_of` does.
    """
    kind = arrow_type(schema[wanted.column].dataType, wanted.column)
    schema_text = None if wanted.schema is None else given_schema(wanted)
    forms = _forms(wanted, kind, schema_text, is_registered=True)
    format_of(wanted.name).encoder(forms[0], kind)
    return forms


def arrow_type(kind: DataType, path: str, level: int = 1) -> pa.DataType:
    """The type of column *path* in Arrow, as Spark passes it to a task; *level* is its nesting level, from 1 on.
    PySpark has such a function too, but its arguments differ between versions, and its errors do not name the field.

    Source: apache/spark ``ArrowUtils.scala``.

    :raises FormatError: if Spark cannot pass such a column to Python; the text names the field.
    """
    if level > _MOST_LEVELS:
        raise FormatError(
            f"column '{path[:_SHOWN]}…' is nested more than {_MOST_LEVELS} levels deep, a map counting twice, and "
            "Arrow reads no more; make it flatter, or write it as text: to_json(…)"
        )
    simple = _SIMPLE.get(type(kind).__name__)
    if simple is not None:
        return simple
    if isinstance(kind, UserDefinedType):
        return arrow_type(kind.sqlType(), path, level)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        items = arrow_type(kind.elementType, f"{path}[]", level + 1)
        return pa.list_(pa.field("element", items, kind.containsNull))
    if isinstance(kind, MapType):
        values = pa.field("value", arrow_type(kind.valueType, f"{path}{{}}", level + 2), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType, f"{path}{{key}}", level + 2), False), values)
    if isinstance(kind, StructType):
        return pa.struct(
            [
                pa.field(item.name, arrow_type(item.dataType, f"{path}.{item.name}", level + 1), item.nullable)
                for item in kind
            ]
        )
    raise FormatError(f"column '{path}' is {kind.simpleString()}, which the formats do not support; cast or drop it")


#: The beginnings of a schema or a comment in an option; other values, except the names of primitive types, name files.
_BEGINNINGS: Final = ("{", "[", '"', "//", "/*")


def given_schema(wanted: WantedFormat) -> SchemaText:
    """The schema in the options or in the files that they name, with its references. Those in the registry are not
    fetched: their texts are empty.

    :raises ConfigError: if a file cannot be read, or the references are invalid.
    """
    value, column = (wanted.schema or "").removeprefix("\ufeff"), wanted.column
    schema = SchemaText(value) if _is_itself(value, wanted.name) else _of_files(value, wanted)
    if wanted.references is None:
        return schema
    option = f"{column}.refs"
    try:
        named = references_in(json.loads(wanted.references), f"option {option}")
    except (ValueError, RecursionError) as error:
        raise ConfigError.of(
            option,
            f" is not valid JSON ({error}), expected a list such as "
            '[{"name": "shop.Address", "subject": "address", "version": 1}]',
        ) from None
    except UnusableSchemaError as error:
        raise ConfigError(str(error)) from None
    references = [Reference(name, SchemaText(""), version.subject, version.version) for name, version in named]
    return SchemaText(schema.text, (*schema.references, *references))


def registered_schema(wanted: WantedFormat) -> SchemaText:
    """The schema in the options, in the form in which a registry stores it.

    :raises ConfigError: as :func:`given_schema` does, and if it is not a schema.
    """
    schema = given_schema(wanted)
    if wanted.name != PROTOBUF or schema.references:
        return schema
    from kafka_sink.formats.protobuf.parsing import registered_text

    return registered_text(schema.text, wanted.message)


def _is_itself(value: str, form: str) -> bool:
    """Whether *value* is a schema, and not the name of a file: text of Protobuf has braces, and names have none."""
    from kafka_sink.formats.avro.schema import PRIMITIVES

    return "{" in value if form == PROTOBUF else value.lstrip().startswith(_BEGINNINGS) or value in PRIMITIVES


def _of_files(value: str, wanted: WantedFormat) -> SchemaText:
    # Imported here, because other writes start faster without it.
    from kafka_sink.formats.files import read_schema

    whole = Path(value.removeprefix("file:"))
    names = [value] if whole.exists() else [name.strip() for name in value.split(",") if name.strip()]
    try:
        return read_schema(wanted.name, [Path(name.removeprefix("file:")) for name in names], wanted.message)
    except FormatError as error:
        raise FormatError.of(f"{wanted.column}.schema", f": {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        name = value if not isinstance(error, OSError) or error.filename is None else error.filename
        itself = "the schema itself" if wanted.name == PROTOBUF else "the schema itself as JSON"
        raise ConfigError.of(
            f"{wanted.column}.schema",
            f": the file {name} cannot be read on the driver ({reason}); name the file "
            f"of a schema, a folder, or several files, separated by commas, or set the option to {itself}",
        ) from None
