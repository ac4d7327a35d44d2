"""Names of subjects, and the header of Confluent's wire format."""

from __future__ import annotations

from kafka_sink.common.errors import ConfigError
from kafka_sink.registry.config import SubjectNameStrategy

_MAGIC = b"\x00"


def subject_name(strategy: str, column: str, topic: str | None, record: str | None) -> str:
    """The subject of *column* (``key`` or ``value``) in *topic*, whose schema is the *record* of this full name.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html.

    :raises ConfigError: if the strategy needs a topic or a record that is not there.
    """
    option = f"{column}.subject.name.strategy"
    if strategy != SubjectNameStrategy.RECORD and topic is None:
        raise ConfigError(
            f"{option}={strategy} needs option topic; with a column of topics, use {SubjectNameStrategy.RECORD}"
        )
    if strategy == SubjectNameStrategy.TOPIC:
        return f"{topic}-{column}"
    if record is None:
        raise ConfigError(
            f"{option}={strategy} needs a record, and column '{column}' is none; make it a struct, or use "
            f"{SubjectNameStrategy.TOPIC}"
        )
    return record if strategy == SubjectNameStrategy.RECORD else f"{topic}-{record}"


def wire_header(schema_id: int) -> bytes:
    """The five bytes before each payload: 0, and the id.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format.
    """
    return _MAGIC + schema_id.to_bytes(4, "big")
