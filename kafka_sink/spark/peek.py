"""``kafka_sink.peek``: the newest records of a topic as a DataFrame, for a notebook.

Called on the driver, in the caller's thread, which reads the records itself; no Spark task connects to the cluster.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.consumer.log_reader import PeekLimits, newest_records
from kafka_sink.spark.options import OptionValue, as_texts, parse_options
from kafka_sink.spark.write_spec import KAFKA_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafka_sink.consumer.fetched_partition import ConsumedRecord

#: The columns of Spark's Kafka source with includeHeaders.
SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
#: Options of the sink that are used here; others, for example of exactly once, concern only writes.
_USED: Final = frozenset({"topic"})
_log = logging.getLogger(__name__)

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def peek(
    spark: SparkSession,
    options: Mapping[str, OptionValue],
    count: int = 20,
    *,
    topic: str | None = None,
    max_bytes: int = PeekLimits.max_bytes,
    timeout: float = PeekLimits.timeout_ms / 1000,
) -> DataFrame:
    """The newest *count* records of a topic, the newest last, with the columns of Spark's Kafka source.

    The driver reads the last *count* records of each partition and keeps the records with the latest timestamps. It
    stops, with a warning in the log, after *max_bytes* of records in memory or *timeout* seconds, and leaves out
    damaged records, with a warning. It also returns records of open and aborted transactions.

    :param options: the options of ``format("kafkalite")``; of these, the connection and ``topic`` are used.
    :param topic: the option of this name.
    :raises ConfigError: if an option is invalid, no topic is named, or *count* is less than 1.
    :raises ApiError: if the topic does not exist, or no broker answered in time.
    """
    texts = {name.lower(): value for name, value in as_texts(options).items()}
    parsed = parse_options(
        {name: value for name, value in texts.items() if name in _USED or name.startswith(KAFKA_PREFIX)}
    )
    chosen = topic or parsed.spec.topic
    if chosen is None:
        raise ConfigError("peek needs a topic: set option topic, or pass topic=…", option="topic")
    if count < 1:
        raise ConfigError(f"count must be 1 or more, got {count}")
    records = newest_records(parsed.spec.producer.properties, chosen, count, PeekLimits(max_bytes, int(timeout * 1000)))
    for record in records:
        if record.problem:
            _log.warning("%s-%d at offset %d is left out: %s", chosen, record.partition, record.offset, record.problem)
    return spark.createDataFrame([_row(record) for record in records if not record.problem], SCHEMA)


def _row(record: ConsumedRecord) -> tuple[Any, ...]:
    headers = [(name, value) for name, value in record.headers] or None
    timestamp = None
    if record.timestamp >= 0:
        # Python's datetime cannot represent all timestamps.
        with suppress(OverflowError):
            timestamp = _EPOCH + datetime.timedelta(milliseconds=record.timestamp)
    return (
        record.key,
        record.value,
        record.topic,
        record.partition,
        record.offset,
        timestamp,
        int(record.is_log_append_time),
        headers,
    )
