"""Settings of one topic: what CreateTopics may say, laid over the broker's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_sink.broker.config import CREATE_TIME, LOG_APPEND_TIME, BrokerConfig
from kafka_sink.broker.log.partition_log import LogConfig
from kafka_sink.common.config import INT, STRING, at_least, key, one_of, parse


@dataclass(frozen=True)
class TopicConfig:
    """The settings that a topic may have of its own; None = the broker's."""

    max_message_bytes: int | None = key(
        "max.message.bytes", INT, None, "largest record batch, in bytes", validator=at_least(0)
    )
    min_insync_replicas: int | None = key(
        "min.insync.replicas", INT, None, "replicas on running nodes that acks=all needs", validator=at_least(1)
    )
    segment_bytes: int | None = key(
        "segment.bytes", INT, None, "size at which a new segment is begun", validator=at_least(14)
    )
    index_interval_bytes: int | None = key(
        "index.interval.bytes", INT, None, "bytes of log per entry of its index", validator=at_least(0)
    )
    flush_messages: int | None = key(
        "flush.messages", INT, None, "records after which the log is flushed to the disk", validator=at_least(1)
    )
    retention_ms: int | None = key(
        "retention.ms", INT, None, "age at which a full segment is deleted; -1 = never", validator=at_least(-1)
    )
    retention_bytes: int | None = key(
        "retention.bytes", INT, None, "size beyond which the oldest segments are deleted", validator=at_least(-1)
    )
    message_timestamp_type: str | None = key(
        "message.timestamp.type",
        STRING,
        None,
        "whose clock stamps records",
        validator=one_of(CREATE_TIME, LOG_APPEND_TIME),
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What holds for a topic."""

    max_message_bytes: int
    min_insync_replicas: int
    log: LogConfig


def topic_settings(configs: Mapping[str, str], broker: BrokerConfig) -> TopicSettings:
    """Lay *configs* over the defaults of *broker*. :raises ConfigError: an unknown name or a value not allowed."""
    own = parse(TopicConfig, configs)

    def either(value: int | None, default: int) -> int:
        return default if value is None else value

    log = LogConfig(
        segment_bytes=either(own.segment_bytes, broker.log_segment_bytes),
        index_interval_bytes=either(own.index_interval_bytes, broker.log_index_interval_bytes),
        flush_interval_messages=either(own.flush_messages, broker.log_flush_interval_messages),
        retention_bytes=either(own.retention_bytes, broker.log_retention_bytes),
        retention_ms=either(own.retention_ms, broker.log_retention_ms),
        log_append_time=(own.message_timestamp_type or broker.log_message_timestamp_type) == LOG_APPEND_TIME,
        producer_expiration_ms=broker.producer_id_expiration_ms,
    )
    return TopicSettings(
        max_message_bytes=either(own.max_message_bytes, broker.message_max_bytes),
        min_insync_replicas=either(own.min_insync_replicas, broker.min_insync_replicas),
        log=log,
    )
