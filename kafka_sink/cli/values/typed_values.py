"""Converts keys and values, one at a time, to JSON and from JSON, by the schemas of a registry.

Runs on the main thread, or on the threads of the pages. Neither a record nor a schema is trusted: the size of the
result is limited, and a record that cannot be shown is refused with the reason.

The schema of a writer is chosen before any line is read. A record names the id of its schema, so every client that may
write to a topic chooses the schemas that are requested: each is requested once, and the cache is limited. An error of
the registry for one id concerns the records of that id only. An unreachable registry is not contacted for a while;
cached schemas are used during that time.

Values of Avro are the JSON that :mod:`kafka_sink.formats.avro.reading` makes: bytes are ``{"base64": "…"}`` or text;
decimals, dates, times and timestamps are texts, and so are numbers that JSON does not have.

Values of Protobuf are the JSON of Google's libraries for messages: fields have the names of the schema, and
those without presence are shown with their default values.

Source: https://avro.apache.org/docs/1.12.0/specification/#logical-types; the JSON is not Avro's own JSON encoding,
which names the types of unions. https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from kafka_sink.cli.values.json_records import Read, Shown, bytes_from_json, bytes_text
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import (
    ConfigError,
    CorruptRecordError,
    KafkaError,
    RegistryError,
    RegistryUnavailableError,
    SerializationError,
)
from kafka_sink.common.text import without_controls
from kafka_sink.formats.avro.parsing import json_of, linked, parse_schema
from kafka_sink.formats.avro.reading import DatumReader
from kafka_sink.formats.avro.schema import NULL, Array, AvroType, Fixed, Map, Primitive, Record, Union
from kafka_sink.formats.avro.schema import Decimal as AvroDecimal
from kafka_sink.formats.column_format import AVRO, JSON, PROTOBUF, format_of
from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.files import read_schema
from kafka_sink.formats.protobuf.descriptors import check_installed, pool_of
from kafka_sink.formats.protobuf.descriptors import linked as linked_protobuf
from kafka_sink.formats.protobuf.parsing import message_names, parse_file
from kafka_sink.formats.protobuf.parsing import parse_schema as parse_protobuf
from kafka_sink.formats.protobuf.weighing import Scale
from kafka_sink.formats.schema_text import SchemaText, check_json
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.references import with_versions
from kafka_sink.registry.subjects import message_position, split_position, split_wire, subject_name, wire_header
from kafka_sink.ui.shown import SHOWN_CHARACTERS

KEY: Final = "key"
VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """The keys or values of *topic*, called *column*, in the format *form*, by the schema in *schema_file*, a file or a
    folder (None: the latest one of the subject). *message* is a message of a Protobuf schema, by default the first."""

    topic: str
    column: str
    form: str
    schema_file: Path | None = None
    message: str | None = None


def registered(registry: RegistryClient, written: TypedColumn) -> tuple[int, str]:
    """The id and the linked text of the schema in the file, which is registered or looked up as the options require; or
    of the latest schema of the subject without a file.

    :raises FormatError: if the schema is invalid, or cannot be registered, or a package is missing.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    strategy = registry.config.key_strategy if written.column == KEY else registry.config.value_strategy
    kind, form, config = written.form.upper(), format_of(written.form), registry.config
    if written.schema_file is None:
        latest = registry.latest(subject_name(strategy, written.column, written.topic, None), kind)
        return latest.schema_id, form.linked(latest.schema)
    in_file = read_schema(written.form, [written.schema_file], written.message)
    # Avro and Protobuf do not depend on the type of the rows.
    column_format = form.given(in_file, pa.null(), written.column, written.message)
    subject = subject_name(strategy, written.column, written.topic, form.record_name(column_format))
    schema, is_registered = form.registered_schema(column_format), config.auto_register
    schema = with_versions(schema, kind, registry, config.reference_subject, is_registered=is_registered)
    ask = registry.register if is_registered else registry.id_of
    return ask(subject, schema, kind), column_format.schema


T = TypeVar("T")

#: The parsed form of a schema takes about 15 times the memory of its text.
_KEPT_CHARACTERS: Final = 1 << 20
#: The size of an entry without a text: ids without a schema are cached, too.
_ENTRY_CHARACTERS: Final = 256
#: How long a refusal is cached, and an unreachable registry, because each request to it takes seconds.
_PAUSE_MS: Final = 30_000
#: The maximum characters of the reason that each record shows.
_SHOWN: Final = 1_000

_log = logging.getLogger(__name__)


class KeptSchemas(Generic[T]):
    """A cache by id of the results of *made* for the schemas that *schema_of* returns. Any thread may use it."""

    def __init__(
        self, schema_of: Callable[[int], SchemaText], made: Callable[[SchemaText], T], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._schema_of, self._made, self._clock = schema_of, made, clock
        self._lock = threading.Lock()
        self._kept: dict[int, tuple[int, T]] = {}
        self._characters = 0
        #: Id → the time of the next request for it, and the reason why it cannot be used; None stands for every id.
        self._refused: dict[int | None, tuple[int, str]] = {}

    def of(self, schema_id: int) -> T:
        """The cached result for the schema with this id.

        :raises SerializationError: if it does not exist, or cannot be used, or if the registry cannot be reached.
        """
        with self._lock:
            if schema_id not in self._kept:
                self._check_refused(schema_id)
                characters, value = self._make(schema_id)
                self._kept[schema_id] = characters + _ENTRY_CHARACTERS, value
                self._characters += characters + _ENTRY_CHARACTERS
                while self._characters > _KEPT_CHARACTERS and len(self._kept) > 1:
                    self._characters -= self._kept.pop(next(iter(self._kept)))[0]
            return self._kept[schema_id][1]

    def _check_refused(self, schema_id: int) -> None:
        now_ms = self._clock.monotonic_ms()
        for refused in (schema_id, None):
            until_ms, reason = self._refused.get(refused, (0, ""))
            if now_ms < until_ms:
                raise SerializationError(reason)

    def _make(self, schema_id: int) -> tuple[int, T]:
        try:
            schema = self._schema_of(schema_id)
            with schema_boundary("schema"):
                return len(schema.text) + sum(map(len, schema.others().values())), self._made(schema)
        except RegistryUnavailableError as error:
            _log.warning("the next request for a schema follows after %d s: %s", _PAUSE_MS // 1000, error)
            raise self._refuse(None, "its schema is not known", error) from None
        except (RegistryError, FormatError) as error:
            raise self._refuse(schema_id, f"schema {schema_id} cannot be used", error) from None

    def _refuse(self, schema_id: int | None, what: str, error: KafkaError) -> SerializationError:
        now_ms = self._clock.monotonic_ms()
        if len(self._refused) * _ENTRY_CHARACTERS > _KEPT_CHARACTERS:
            self._refused.clear()
        reason = f"{what}: {error!s:.{_SHOWN}}"
        self._refused[schema_id] = now_ms + _PAUSE_MS, reason
        return SerializationError(reason)


def _avro_datum(value: Any, kind: AvroType, path: str) -> Any:
    """Convert *value* to the types that fastavro writes by the schema *kind*; fastavro refuses JSON of a wrong type.

    :raises SerializationError: if a text is no number or time of its type, or a field is unknown; the text names the
        path.
    """
    if isinstance(kind, Union):
        return _of_union(value, kind, path)
    if isinstance(kind, Record) and isinstance(value, dict):
        types = {field.name: field.type for field in kind.fields}
        for name in value:
            if name not in types:
                raise SerializationError(f"field {path}.{name}: the schema has no such field in its {kind}")
        return {name: _avro_datum(item, types[name], f"{path}.{name}") for name, item in value.items()}
    if isinstance(kind, Array) and isinstance(value, list):
        return [_avro_datum(item, kind.items, f"{path}[]") for item in value]
    if isinstance(kind, Map) and isinstance(value, dict):
        return {name: _avro_datum(item, kind.values, f"{path}{{{name}}}") for name, item in value.items()}
    if isinstance(kind, Fixed) or kind == Primitive("bytes"):
        return bytes_from_json(value, path)
    if isinstance(kind, AvroDecimal) and isinstance(value, str | int | float) and not isinstance(value, bool):
        return _read(Decimal, str(value), kind, path)
    if isinstance(kind, Primitive) and isinstance(value, str):
        read = _TEXTS.get(kind.name if kind.logical is None else kind.logical.removeprefix("local-"))
        return value if read is None else _read(read, value, kind, path)
    return value


_TEXTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "float": float,
    "double": float,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
}


def _read(read: Callable[[str], Any], text: str, kind: AvroType, path: str) -> Any:
    try:
        value = read(text)
    except (ValueError, ArithmeticError):
        raise SerializationError(f"field {path}: {text[:60]!r} is not valid for {kind}") from None
    if isinstance(value, datetime) and value.tzinfo is None:
        # A timestamp without an offset is in UTC; fastavro takes one of local time as UTC, too.
        return value.replace(tzinfo=UTC)
    return value


def _of_union(value: Any, kind: Union, path: str) -> Any:
    if value is None:
        return None
    problem: SerializationError | None = None
    for branch in kind.branches:
        if branch == NULL:
            continue
        try:
            return _avro_datum(value, branch, path)
        except SerializationError as error:
            problem = problem or error
    raise problem or SerializationError(f"field {path}: has a value, and the schema only allows null")


#: The JSON of a payload, piece by piece, so that a caller may read only its beginning.
Pieces = Callable[[bytes], Iterator[str]]

#: The JSON of a record has at most this many characters plus this multiple of the record's size.
_MOST_CHARACTERS: Final = 4 << 20
_MOST_TIMES: Final = 4
#: Google's library creates objects for the whole message, of about 200 bytes a value.
_MOST_VALUES: Final = 200_000
_MOST_VALUES_OF_PAGE: Final = 10_000


def shown(form: str | None, column: str, registry: RegistryClient | None) -> Shown:
    """The function that converts keys or values, called *column*, in the format *form* to JSON; None: text or base64.

    It raises SerializationError for a payload that cannot be shown.

    :raises ConfigError: if the format needs a registry and there is none, or if its package is not installed.
    """
    if form is None:
        return bytes_text
    if form == JSON:
        return lambda payload: "null" if payload is None else _json_of(payload, column)
    if registry is None:
        raise ConfigError(f"{form.capitalize()} needs the schemas of a registry: set --registry URL")
    return _whole(_pieces(form, column, registry, _MOST_VALUES), column)


def shown_by_schema(registry: RegistryClient) -> Callable[[bytes], str]:
    """The function that returns the beginning of the JSON of Avro and Protobuf values, by their schema's type: more
    than a page shows, or all of it. Protobuf requires that its packages are installed."""
    by_kind = {AVRO.upper(): _pieces(AVRO, "value", registry, _MOST_VALUES_OF_PAGE)}
    try:
        by_kind[PROTOBUF.upper()] = _pieces(PROTOBUF, "value", registry, _MOST_VALUES_OF_PAGE)
    except FormatError as error:
        missing = str(error)
    kinds = KeptSchemas(lambda schema_id: SchemaText(registry.kind(schema_id)), lambda kind: kind.text)

    def decoded(payload: bytes) -> str:
        schema_id, _ = split_wire(payload)
        kind = kinds.of(schema_id)
        if kind not in by_kind:
            why = missing if kind == PROTOBUF.upper() else "which is not decoded here"
            raise SerializationError(f"schema {schema_id} is {kind!r}, {why}")
        text = ""
        for piece in by_kind[kind](payload):
            text += piece
            if len(text) > SHOWN_CHARACTERS:
                break
        return text

    return decoded


def _pieces(form: str, column: str, registry: RegistryClient, most_values: int) -> Pieces:
    """The function that converts keys or values, called *column*, to JSON; Protobuf with at most *most_values* values.

    :raises FormatError: if a package of the format is missing.
    """
    if form == PROTOBUF:
        check_installed()

    def reader_of(schema: SchemaText) -> DatumReader | _MessageReader:
        return _MessageReader(linked_protobuf(schema), most_values) if form == PROTOBUF else DatumReader(linked(schema))

    readers = KeptSchemas(lambda schema_id: registry.schema(schema_id, form.upper()), reader_of)

    def decoded(payload: bytes) -> Iterator[str]:
        schema_id, data = split_wire(payload)
        try:
            yield from readers.of(schema_id).pieces(data)
        except CorruptRecordError as error:
            kind = form.capitalize()
            raise SerializationError(f"the {column} is not valid {kind} of schema {schema_id}: {error}") from None

    return decoded


class _MessageReader:
    """Converts messages of the schema *text*, with at most *most_values* values each, to JSON."""

    def __init__(self, text: str, most_values: int) -> None:
        """:raises FormatError: if it is no valid schema."""
        self._names = {position: name for name, position in message_names(text)}
        self._scale = Scale(parse_file(text))
        self._pool = pool_of(text)
        self._most_values = most_values

    def pieces(self, payload: bytes) -> Iterator[str]:
        """The JSON of a message, which follows its position in the schema in *payload*.

        :raises CorruptRecordError: if it is no such message, or has too many values.
        """
        from google.protobuf import json_format, message_factory

        position, data = split_position(payload)
        if position not in self._names:
            raise CorruptRecordError(f"it is of a message that the schema does not have: {position}")
        name = self._names[position]
        self._scale.check(name, data, self._most_values)
        try:
            text: str = json_format.MessageToJson(
                message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name)).FromString(data),
                always_print_fields_with_no_presence=True,
                preserving_proto_field_name=True,
                indent=None,
                ensure_ascii=False,
                descriptor_pool=self._pool,
            )
        except MemoryError:
            raise
        except Exception as error:
            # The library raises errors of many types, depending on the schema.
            raise CorruptRecordError(f"{type(error).__name__}: {error!s:.200}") from None
        yield without_controls(text)


def _whole(pieces: Pieces, column: str) -> Shown:
    def text(payload: bytes | None) -> str:
        if payload is None:
            return "null"
        most = _MOST_CHARACTERS + _MOST_TIMES * len(payload)
        buffer = io.StringIO()
        for piece in pieces(payload):
            most -= buffer.write(piece)
            if most < 0:
                raise SerializationError(f"the {column} of {len(payload)} bytes is too long as JSON to be shown")
        return buffer.getvalue()

    return text


def _json_of(payload: bytes, column: str) -> str:
    """The unchanged payload, in one line: if it were parsed and written again, numbers would lose digits."""
    data = split_wire(payload)[1] if payload[:1] == b"\0" else payload
    try:
        text = data.decode("utf-8")
        check_json(text)
    except (UnicodeDecodeError, CorruptRecordError) as error:
        raise SerializationError(f"the {column} is not valid JSON ({error})") from None
    # In JSON a line feed occurs between values, never within a text.
    return without_controls(text.replace("\n", " ").replace("\r", " "))


_Encode = Callable[[Any, str], bytes]


def payload_writer(registry: RegistryClient, written: TypedColumn) -> Read:
    """The function that encodes JSON as payloads, by the schema in the file, which is registered or looked up as the
    options require, or by the latest schema of the subject.

    :raises ConfigError: if the schema is invalid, or a package of the format is not installed.
    :raises RegistryError: if the registry refuses the schema, has none, or cannot be reached.
    """
    if written.form == AVRO:
        _fastavro()
    schema_id, schema = registered(registry, written)
    encode = _message_encoder(schema, written.message) if written.form == PROTOBUF else _datum_encoder(schema)
    header = wire_header(schema_id)

    def encoded(value: Any, field: str) -> bytes | None:
        return None if value is None else header + encode(value, field)

    return encoded


def _datum_encoder(schema: str) -> _Encode:
    fastavro = _fastavro()
    kind, parsed = parse_schema(schema), fastavro.parse_schema(json_of(schema))

    def encode(value: Any, field: str) -> bytes:
        datum, target = _avro_datum(value, kind, field), io.BytesIO()
        try:
            fastavro.validation.validate(datum, parsed, strict=False)
            fastavro.schemaless_writer(target, parsed, datum)
        except fastavro.validation.ValidationError as error:
            problem = next(iter(error.errors), "does not fit the schema")
            raise SerializationError(f"field {field}: {problem}") from None
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            raise SerializationError(f"field {field}: {error}") from None
        return target.getvalue()

    return encode


def _fastavro() -> Any:
    """:raises ConfigError: if fastavro is not installed."""
    try:
        import fastavro
        import fastavro.validation
    except ImportError:
        raise ConfigError(
            "Avro on the command line needs the package fastavro, which pip install 'kafkalite[avro]' installs"
        ) from None
    return fastavro


def _message_encoder(schema: str, message: str | None) -> _Encode:
    parsed = parse_protobuf(schema, message)
    # The schema has been parsed, so the package is installed.
    from google.protobuf import json_format, message_factory
    from google.protobuf.message import EncodeError

    position, pool = message_position(parsed.position), pool_of(schema)
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName(parsed.root))

    def encode(value: Any, field: str) -> bytes:
        try:
            data: bytes = json_format.ParseDict(value, message_class(), descriptor_pool=pool).SerializeToString()
        except (json_format.Error, EncodeError, TypeError, AttributeError, ValueError) as error:
            raise SerializationError(f"field {field}: {error}") from None
        return position + data

    return encode
