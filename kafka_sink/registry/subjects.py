"""Names of subjects, and the header of a payload in Confluent's wire format."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.bounded import INT32_MAX, Cursor
from kafka_sink.common.errors import ConfigError, SerializationError
from kafka_sink.registry.config import SubjectNameStrategy

_MAGIC = b"\x00"
_HEADER_BYTES = 5


def subject_name(strategy: str, column: str, topic: str | None, record: str | None) -> str:
    """The subject of *column* (``key`` or ``value``) in *topic*; *record* is the full name of the schema's record.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html.

    :raises ConfigError: if the strategy needs a topic or a record that is missing.
    """
    option = f"{column}.subject.name.strategy"
    if strategy != SubjectNameStrategy.RECORD and topic is None:
        raise ConfigError(
            f"{option}={strategy} needs option topic; with a column of topics, use {SubjectNameStrategy.RECORD}",
            option=option,
        )
    if strategy == SubjectNameStrategy.TOPIC:
        return f"{topic}-{column}"
    if record is None:
        raise ConfigError(
            f"{option}={strategy} needs a record, and column '{column}' is not a struct; make it one, or use "
            f"{SubjectNameStrategy.TOPIC}",
            option=option,
        )
    return record if strategy == SubjectNameStrategy.RECORD else f"{topic}-{record}"


def split_wire(payload: bytes) -> tuple[int, bytes]:
    """The id of the schema of *payload*, in the wire format, and the bytes after it.

    :raises SerializationError: if it does not begin with a header.
    """
    if len(payload) < _HEADER_BYTES or payload[:1] != _MAGIC:
        raise SerializationError(
            "the payload does not begin with 0 and the id of a schema: it was written without a schema registry"
        )
    return int.from_bytes(payload[1:_HEADER_BYTES], "big"), payload[_HEADER_BYTES:]


def message_position(position: Sequence[int]) -> bytes:
    """The bytes between the header and a payload of Protobuf: the position of the message in its schema, after the
    indices of the messages that contain it, the outermost first. The first message of a schema is a single 0.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format.
    """
    if tuple(position) == (0,):
        return b"\x00"
    return encode_varint(len(position)) + b"".join(map(encode_varint, position))


def split_position(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The position of a message at the begin of *data*, and the bytes after it.

    :raises SerializationError: if it does not begin with one.
    """
    problem = "the payload has no position of a message behind the id of its schema"
    cursor = Cursor(data, lambda _: SerializationError(problem))
    count = cursor.zigzag(0, cursor.left)
    position = tuple(cursor.zigzag(0, INT32_MAX) for _ in range(count)) or (0,)
    return position, cursor.take(cursor.left)


def wire_header(schema_id: int) -> bytes:
    """The five bytes before each payload: 0, and the id.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format.
    """
    return _MAGIC + schema_id.to_bytes(4, "big")
