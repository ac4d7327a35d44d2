"""All that is checked and prepared on the driver before the tasks of a write begin.

Called in Spark's planner process or in the user's. Nothing is written, except for a missing topic that is asked for.

The tasks check their rows against what the topics refuse, so that what a broker would refuse is a bad row like any
other. Topics that a column names are not known here. That question never fails a write: whatever prevents an answer,
such as missing permissions, a driver that cannot reach the brokers, or files that only executors have, leaves the
limits unknown, and the brokers' answers to the tasks tell what is wrong.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql.types import StructType

from kafka_sink.common.bounded import Latest
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.producer.topic_limits import TopicLimits
from kafka_sink.spark.driver import lineage
from kafka_sink.spark.options import SinkOptions, write_spec
from kafka_sink.spark.producer_spec import ProducerSpec
from kafka_sink.spark.row_schema import check_schema
from kafka_sink.spark.write_spec import WriteSpec

#: How long the driver waits for the brokers: a write does not need the answer.
_TIMEOUT_MS: Final = 3_000

#: Brokers that could not be asked are not asked again for so long.
_NO_ANSWER_MS: Final = 60_000

_log = logging.getLogger(__name__)

#: A session may write to ever more topics; what is forgotten is asked again.
_MOST: Final = 1000
#: By producer and topics: the limits, and when they were asked for.
_limits: Final[Latest[tuple[bytes, frozenset[str]], tuple[Mapping[str, TopicLimits] | None, int]]] = Latest(_MOST)

#: A stream creates a writer for every micro-batch, and somebody may delete a topic between two of them.
_TOPICS_CHECKED_EVERY_MS: Final = 60_000
#: How long a stream relies on what the brokers have said about its topics, ms. A batch asks at its beginning: somebody
#: may have changed a topic because of the error of the last one.
VALID_IN_STREAM_MS: Final = 10_000
#: By producer and topic, when the topic was last known to exist.
_present: Final[Latest[tuple[bytes, str], int]] = Latest(_MOST)


def limits_of(producer: ProducerSpec, topics: Collection[str], *, valid_ms: int) -> Mapping[str, TopicLimits]:
    """The limits of those of *topics* whose settings the brokers show; an answer is used again for *valid_ms*."""
    if not topics:
        return {}
    key = (producer.digest, frozenset(topics))
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    known, asked_ms = _limits.get(key) or (None, -_NO_ANSWER_MS)
    if now_ms - asked_ms < (_NO_ANSWER_MS if known is None else valid_ms):
        return known or {}
    limits: Mapping[str, TopicLimits] | None = None
    try:
        # Planners of writes that do not ask start without the client.
        from kafka_sink.spark.task.shared_client import shared_client

        client = shared_client(producer)
        settings = client.run(client.topic_settings(sorted(topics), _TIMEOUT_MS))
        limits = {topic: TopicLimits.of(each) for topic, each in settings.items()}
    except Exception as error:
        _log.info("the settings of %s are not known before the write: %s", ", ".join(sorted(topics)), error)
    _limits.put(key, (limits, now_ms))
    return limits or {}


def prepared(
    schema: StructType, options: SinkOptions, *, asks_brokers: bool = False, settings_valid_ms: int = 0
) -> WriteSpec:
    """The write of rows of *schema*, whose tasks can begin.

    :param asks_brokers: whether the brokers are asked for the settings of the topics.
    :param settings_valid_ms: how long their last answer is used again, ms.

    :raises ConfigError: if a column is missing or has the wrong type, or an option does not fit the columns.
    :raises ApiError: if a missing topic could not be created.
    """
    _check_report_path(options)
    check_schema(schema, options)
    formats: Sequence[ColumnFormat] = ()
    if options.wanted_formats:
        from kafka_sink.spark.driver.column_formats import formats_of

        formats = formats_of(schema, options)
    _ensure_topics(options)
    limits: Mapping[str, TopicLimits] = {}
    if asks_brokers:
        topics = [each for each in (options.topic, options.dead_letter_topic) if each is not None]
        limits = limits_of(options.producer, topics, valid_ms=settings_valid_ms)
    columns: tuple[tuple[str, str], ...] = ()
    if lineage.is_configured():
        columns = tuple((item.name, item.dataType.simpleString()) for item in schema.fields)
    return write_spec(options, formats, limits, columns)


def _ensure_topics(options: SinkOptions) -> None:
    """Create the topics of rows and dead letters that are missing, if the option topicPartitions is set. Tasks never
    create one.

    :raises ApiError: if it could not be created; the text says what to do.
    """
    if options.topic_partitions is None:
        return
    for topic in filter(None, (options.topic, options.dead_letter_topic)):
        key = (options.producer.digest, topic)
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        checked_ms = _present.get(key)
        if checked_ms is not None and now_ms - checked_ms < _TOPICS_CHECKED_EVERY_MS:
            continue
        # Only writes that ask for it load the client.
        from kafka_sink.producer.topic_creation import ensure_topic

        ensure_topic(options.producer.here(), topic, options.topic_partitions, options.topic_replication_factor)
        _present.put(key, now_ms)


def _check_report_path(options: SinkOptions) -> None:
    """Check that the report can be written, before any row is written.

    :raises ConfigError: if the folder of reportPath is missing or not writable.
    """
    if options.report_path is None:
        return
    folder = Path(options.report_path).resolve().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"option reportPath: {options.report_path!r} cannot be written on the driver's machine: the folder "
            f"{folder} is missing or read-only; choose a file in an existing folder"
        )
