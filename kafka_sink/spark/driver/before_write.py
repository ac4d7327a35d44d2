"""The checks and preparations on the driver before the tasks of a write begin.

Called in Spark's planner process or in the user's. Nothing is written, except that option topicPartitions creates a
missing topic. It never reads a row. The columns are those of Spark's own Kafka sink, and a timestamp.

Errors that each task would get as well end the write on the driver: failed authentication, a topic without permission,
a topic that does not exist. The driver waits for brokers and topic as long as a task would (``max.block.ms``), so that
no task has to. Once it has found them, the tasks handle a later outage with retries.

The tasks check their rows against the settings of the topics, so that a record that a broker would refuse is a bad row
like any other. Topics that a column names are not known here. Settings that brokers do not return, and files and
references that only executors have, do not fail a write: the brokers' responses to the tasks name the problem.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from kafka_sink.common.bounded import Latest
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import nearest
from kafka_sink.common.errors import ApiError, AuthenticationError, BrokersUnreachableError, ConfigError, SchemaError
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.producer.topic_limits import TopicLimits
from kafka_sink.spark.driver import lineage
from kafka_sink.spark.options import SinkOptions
from kafka_sink.spark.write_spec import ProducerSpec, WriteSpec

#: The time-out of the request for the settings of topics, ms: a write does not depend on the response.
_TIMEOUT_MS: Final = 3_000

#: The time before brokers that did not answer are queried again, ms.
_NO_ANSWER_MS: Final = 60_000

_log = logging.getLogger(__name__)

#: Bounds the caches; evicted topics are queried again.
_MOST: Final = 1000
#: By producer and topics: the limits, and the time of the request for them.
_limits: Final[Latest[tuple[bytes, frozenset[str]], tuple[Mapping[str, TopicLimits] | None, int]]] = Latest(_MOST)

#: A stream creates a writer for every micro-batch, and a topic may be deleted between two of them.
_TOPICS_CHECKED_EVERY_MS: Final = 60_000
#: How long a stream uses the last response about its topics, ms. A batch write always sends the request: an operator
#: may have changed a topic because of the error of the last write.
VALID_IN_STREAM_MS: Final = 10_000
#: By producer and topic: the time when the topic was last known to exist.
_present: Final[Latest[tuple[bytes, str], int]] = Latest(_MOST)


def limits_of(
    producer: ProducerSpec, topic: str | None, dead_letter_topic: str | None = None, *, valid_ms: int = 0
) -> Mapping[str, TopicLimits]:
    """The limits of the topics whose settings the brokers return; a response is used again for *valid_ms*.

    :param topic: that of all rows; None if rows name theirs.
    :raises ApiError: if the brokers refuse this client or *topic*, or if they cannot be reached, or *topic* is missing,
        for ``max.block.ms``. A stream that has found both before leaves an outage to its tasks.
    """
    topics = [name for name in (topic, dead_letter_topic) if name is not None]
    key = (producer.digest, frozenset(topics))
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    limits, asked_ms = _limits.get(key) or (None, -_NO_ANSWER_MS)
    if now_ms - asked_ms < (_NO_ANSWER_MS if limits is None else valid_ms):
        return limits or {}
    if not valid_ms:
        limits = None
    try:
        # Imported here, because other planners start faster without the client.
        from kafka_sink.producer.job_topics import require_topic, topic_settings
        from kafka_sink.spark.task.shared_client import shared_client

        client = shared_client(producer)
        if limits is None:
            client.run(require_topic(topic, client.tries))
            limits = {}
        if topics:
            settings = client.run(topic_settings(topics, _TIMEOUT_MS))
            limits = {name: TopicLimits.of(of_topic) for name, of_topic in settings.items()}
    except Exception as error:
        if isinstance(error, AuthenticationError) or (isinstance(error, ApiError) and limits is None):
            raise _explained(error, topic) from None
        _log.info("the settings of %s are not known before the write: %s", ", ".join(topics), error)
    _limits.put(key, (limits, now_ms))
    return limits or {}


def _explained(error: ApiError, topic: str | None) -> ApiError:
    """*error* with the options or the topic concerned."""
    if isinstance(error, BrokersUnreachableError):
        error.args = (
            f"{error} (kafka.max.block.ms); check kafka.bootstrap.servers and that the driver's machine can connect "
            "to the brokers' listeners",
        )
        error.option = "kafka.max.block.ms"
    elif not isinstance(error, AuthenticationError):
        error.topic = topic
    return error


def prepared(
    schema: StructType, options: SinkOptions, *, asks_brokers: bool = False, settings_valid_ms: int = 0
) -> WriteSpec:
    """The write of rows of *schema*, whose tasks can begin.

    :param asks_brokers: whether to read the settings of the topics from the brokers.
    :param settings_valid_ms: how long the last response is used again, ms.

    :raises ConfigError: if a column is missing or has the wrong type, or an option does not fit the columns.
    :raises ApiError, RegistryError: if a missing topic or schema could not be created, or as :func:`limits_of`.
    """
    spec = options.spec
    if spec.report_path is not None:
        folder = Path(spec.report_path).resolve().parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ConfigError.of(
                "reportPath",
                f": {spec.report_path!r} cannot be written on the driver's machine: the folder "
                f"{folder} is missing or read-only; choose a file in an existing folder",
            )
    check_schema(schema, options)
    formats: Sequence[ColumnFormat] = ()
    if options.wanted_formats:
        from kafka_sink.spark.driver.column_formats import formats_of

        formats = formats_of(schema, options)
    _ensure_topics(options)
    limits: Mapping[str, TopicLimits] = {}
    if asks_brokers:
        limits = limits_of(spec.producer, spec.topic, spec.dead_letter_topic, valid_ms=settings_valid_ms)
    columns: tuple[tuple[str, str], ...] = ()
    if lineage.is_configured():
        columns = tuple((item.name, item.dataType.simpleString()) for item in schema.fields)
    return replace(spec, formats=tuple(formats), limits=dict(limits), columns=columns)


def _ensure_topics(options: SinkOptions) -> None:
    """Create the topics of rows and dead letters that are missing, if the option topicPartitions is set. Tasks never
    create one."""
    if options.topic_partitions is None:
        return
    for topic in filter(None, (options.spec.topic, options.spec.dead_letter_topic)):
        key = (options.spec.producer.digest, topic)
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        checked_ms = _present.get(key)
        if checked_ms is not None and now_ms - checked_ms < _TOPICS_CHECKED_EVERY_MS:
            continue
        # Imported here, because other writes start faster without the client.
        from kafka_sink.producer.job_topics import ensure_topic

        try:
            partitions, replicas = options.topic_partitions, options.topic_replication_factor
            ensure_topic(options.spec.producer.here(), topic, partitions, replicas)
        except ApiError as error:
            raise _explained(error, topic) from None
        _present.put(key, now_ms)


_TEXT: Final = (StringType, VarcharType, CharType)


def of_rows(kind: DataType) -> DataType:
    """*kind* as a type that functions on rows may return: CHAR and VARCHAR become STRING."""
    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(of_rows(kind.elementType), kind.containsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(item.name, of_rows(item.dataType), item.nullable) for item in kind])
    return kind


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    if [item.name for item in fields] != ["key", "value"]:
        return False
    return isinstance(fields[0].dataType, _TEXT) and isinstance(fields[1].dataType, BinaryType)


@dataclass(frozen=True)
class _Column:
    accepts: Callable[[DataType], bool]
    expected: str
    remedy: str


_COLUMNS: Mapping[str, _Column] = {
    "value": _Column(
        lambda kind: isinstance(kind, (*_TEXT, BinaryType)),
        "string or binary",
        "cast it, convert the row to JSON: to_json(struct('*')) as value, or set option value.format",
    ),
    "key": _Column(
        lambda kind: isinstance(kind, (*_TEXT, BinaryType)),
        "string or binary",
        "cast it: col('key').cast('string'), or set option key.format",
    ),
    "topic": _Column(lambda kind: isinstance(kind, _TEXT), "string", "cast it: col('topic').cast('string')"),
    "partition": _Column(lambda kind: isinstance(kind, IntegerType), "int", "cast it: col('partition').cast('int')"),
    "headers": _Column(
        _is_headers,
        "array<struct<key:string,value:binary>>",
        "create it with array(struct(lit('name').alias('key'), col.cast('binary').alias('value'))), or from a "
        "map<string,binary> with map_entries(col('headers'))",
    ),
    "timestamp": _Column(
        lambda kind: isinstance(kind, TimestampType), "timestamp", "cast it: col('timestamp').cast('timestamp')"
    ),
}


def _wrong(column: str, text: str) -> SchemaError:
    error = SchemaError(text)
    error.column = column
    return error


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Check *schema* against the sink's columns.

    :raises SchemaError: if a column is missing, unknown or of the wrong type; the text names the column, its type, the
        expected type, and what to do.
    """
    present = {item.name: item.dataType for item in schema.fields}
    shown = ", ".join(f"{item.name}: {item.dataType.simpleString()}" for item in schema.fields)
    if len(present) < len(schema.fields):
        names = [item.name for item in schema.fields]
        twice = next(name for name in names if names.count(name) > 1)
        text = f"two columns are named '{twice}' among ({shown}); drop one of them, or rename it"
        raise _wrong(twice, text)
    for name in present:
        called = name.lower()
        if called in _COLUMNS and called not in present:
            text = f"column '{name}' must be named '{called}', in lower case: withColumnRenamed('{name}', '{called}')"
            raise _wrong(name, text)
    if "value" not in present:
        text = f"required column 'value' not found among ({shown}){nearest('value', present)}; "
        raise _wrong("value", f"{text}select it, for example to_json(struct('*')) as value")
    formatted = [wanted.column for wanted in options.wanted_formats]
    for name, kind in present.items():
        column = _COLUMNS.get(name)
        if column is None:
            text = f"column '{name}' would not be written{nearest(name, _COLUMNS)}; the columns are "
            raise _wrong(name, f"{text}{', '.join(_COLUMNS)}: drop it, or put it into value")
        # A format checks the types of its column itself.
        if name not in formatted and not column.accepts(kind):
            text = f"column '{name}' is {kind.simpleString()}, expected {column.expected}; {column.remedy}"
            raise _wrong(name, text)
    if options.key_format is not None and "key" not in present:
        raise SchemaError.of("key.format", f"={options.key_format}, but there is no column 'key'; add it, or remove it")
    if options.spec.topic is None and "topic" not in present:
        raise SchemaError("no topic: set option('topic', …), or add a string column 'topic'", option="topic")
    if options.include_headers is not None and options.include_headers != ("headers" in present):
        raise SchemaError.of(
            "includeHeaders",
            f"={str(options.include_headers).lower()}, but there is {'a' if 'headers' in present else 'no'} column "
            "'headers'; change the option or the columns",
        )
