"""All that is checked and prepared on the driver before the tasks of a write begin.

Called in Spark's planner process or in the user's. Nothing is written, except for a missing topic that is asked for.

The tasks check their rows against what the topics refuse, so that what a broker would refuse is a bad row like any
other. Topics that a column names are not known here. That question never fails a write: whatever prevents an answer,
such as missing permissions, a driver that cannot reach the brokers, or files that only executors have, leaves the
limits unknown, and the brokers' answers to the tasks tell what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

from pyspark.sql.types import StructType

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.latest import Latest
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.producer.topic_limits import TopicLimits
from kafka_sink.spark.driver import lineage
from kafka_sink.spark.options import SinkOptions, check_report_path
from kafka_sink.spark.prepared_write import PreparedWrite, Reporting, RowRules, TaskOptions
from kafka_sink.spark.row_schema import check_schema

#: How long the driver waits for the brokers: a write does not need the answer.
_TIMEOUT_MS: Final = 3_000

#: Brokers that could not be asked are not asked again for so long.
_NO_ANSWER_MS: Final = 60_000

T = TypeVar("T", RowRules, TaskOptions)

_log = logging.getLogger(__name__)

#: A session may write to ever more topics; what is forgotten is asked again.
_MOST: Final = 1000
#: By bootstrap servers and topics: the limits, and when they were asked for.
_limits: Final[Latest[tuple[str, frozenset[str]], tuple[Mapping[str, TopicLimits] | None, int]]] = Latest(_MOST)

#: A stream creates a writer for every micro-batch, and somebody may delete a topic between two of them.
_TOPICS_CHECKED_EVERY_MS: Final = 60_000
#: How long a stream relies on what the brokers have said about its topics, ms.
OF_A_STREAM: Final = 10_000
#: A batch asks at its beginning: somebody may have changed a topic because of the error of the last one.
OF_A_BATCH: Final = 0
#: By bootstrap servers and topic, when the topic was last known to exist.
_present: Final[Latest[tuple[str, str], int]] = Latest(_MOST)


def limits_of(properties: Mapping[str, str], topics: Collection[str], *, valid_ms: int) -> Mapping[str, TopicLimits]:
    """The limits of those of *topics* whose settings the brokers show; an answer is used again for *valid_ms*.

    :param properties: a producer's properties under Kafka's names.
    """
    if not topics:
        return {}
    key = (properties["bootstrap.servers"], frozenset(topics))
    now_ms = SYSTEM_CLOCK.monotonic_ms()
    known, asked_ms = _limits.get(key) or (None, -_NO_ANSWER_MS)
    if now_ms - asked_ms < (_NO_ANSWER_MS if known is None else valid_ms):
        return known or {}
    limits: Mapping[str, TopicLimits] | None = None
    try:
        # Planners of writes that do not ask start without the client.
        from kafka_sink.spark.task.shared_client import shared_client

        client = shared_client(properties)
        settings = client.run(client.topic_settings(sorted(topics), _TIMEOUT_MS))
        limits = {topic: TopicLimits.of(each) for topic, each in settings.items()}
    except Exception as error:
        _log.info("the settings of %s are not known before the write: %s", ", ".join(sorted(topics)), error)
    _limits.put(key, (limits, now_ms))
    return limits or {}


def prepared(schema: StructType, options: SinkOptions, settings_valid_ms: int | None = None) -> PreparedWrite:
    """The write of rows of *schema*, whose tasks can begin.

    :param settings_valid_ms: how long the settings of topics are known once the brokers were asked for them; None if
        they are not asked.

    :raises ConfigError: if a column is missing or has the wrong type, or an option does not fit the columns.
    :raises ApiError: if a missing topic could not be created.
    """
    check_report_path(options)
    check_schema(schema, options)
    formats: Sequence[ColumnFormat] = ()
    if options.wanted_formats:
        from kafka_sink.spark.driver.column_formats import formats_of

        formats = formats_of(schema, options)
    _ensure_topics(options)
    limits: Mapping[str, TopicLimits] = {}
    if settings_valid_ms is not None:
        topics = [each for each in (options.topic, options.dead_letter_topic) if each is not None]
        limits = limits_of(options.producer_properties, topics, valid_ms=settings_valid_ms)
    task = task_options(options, formats, limits)
    once = task.exactly_once
    is_of_lineage = lineage.is_configured()
    reporting = Reporting(
        options.report_path,
        once.name if once is not None else f"kafkalite.{options.topic or 'topics'}",
        options.producer_properties["bootstrap.servers"],
        tuple((item.name, item.dataType.simpleString()) for item in schema.fields if is_of_lineage),
    )
    under_way = options.allow_missing_progress
    numbers = BatchNumbering.OF_A_QUERY_UNDER_WAY if under_way else BatchNumbering.OF_A_QUERY
    return PreparedWrite(task, reporting, numbers, options.checkpoint_location)


def task_options(
    options: SinkOptions, formats: Sequence[ColumnFormat] = (), limits: Mapping[str, TopicLimits] = MappingProxyType({})
) -> TaskOptions:
    """What the tasks get of *options*, with the *formats* of the columns that have one, and the *limits* of topics."""
    rules = _taken(RowRules, options, formats=tuple(formats), limits=dict(limits), is_placed=False)
    return _taken(TaskOptions, options, rows=rules)


def _taken(kind: type[T], options: SinkOptions, **made: Any) -> T:
    """The *kind* whose fields are the *options* of the same names, and those that are *made*."""
    taken: dict[str, Any] = {item.name: getattr(options, item.name) for item in fields(kind) if item.name not in made}
    return kind(**taken, **made)


def _ensure_topics(options: SinkOptions) -> None:
    """Create the topics of rows and dead letters that are missing, if the option topicPartitions is set. Tasks never
    create one.

    :raises ApiError: if it could not be created; the text says what to do.
    """
    if options.topic_partitions is None:
        return
    for topic in filter(None, (options.topic, options.dead_letter_topic)):
        key = (options.producer_properties["bootstrap.servers"], topic)
        now_ms = SYSTEM_CLOCK.monotonic_ms()
        checked_ms = _present.get(key)
        if checked_ms is not None and now_ms - checked_ms < _TOPICS_CHECKED_EVERY_MS:
            continue
        # Only writes that ask for it load the client.
        from kafka_sink.producer.topic_creation import ensure_topic

        ensure_topic(options.producer_properties, topic, options.topic_partitions, options.topic_replication_factor)
        _present.put(key, now_ms)
