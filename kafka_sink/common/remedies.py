"""Remedies for error codes of the brokers, by the situation in which they are returned. Other remedies are in the
classes of errors (``KafkaError.remedy``); docs/errors.md shows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kafka_sink.common.errors import ErrorCode


class Situation(Enum):
    """The request that the brokers refuse."""

    RECORDS = "records are written"
    IDEMPOTENCE = "an idempotent producer requests its id"
    TRANSACTIONAL_ID = "a transactional producer requests its id"
    SINK = "a sink writes exactly once"
    TOPIC = "a topic is created (option `topicPartitions`)"


_LOWER_TIMEOUT: Final = (
    "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower the former or raise the latter"
)

#: ``{prefix}`` is the prefix of options as the user writes them, ``{sink}`` is the name of a sink, and
#: ``{topic}`` the topic under whose name its progress is stored.
REMEDIES: Final[Mapping[Situation, Mapping[ErrorCode, str]]] = {
    Situation.RECORDS: {
        ErrorCode.MESSAGE_TOO_LARGE: "send a smaller record, or raise max.message.bytes of the topic",
        ErrorCode.RECORD_LIST_TOO_LARGE: "send a smaller record, or raise segment.bytes of the topic",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on the topic to this principal",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
            "grant WRITE and DESCRIBE on the transactional id to this principal"
        ),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
            "grant IDEMPOTENT_WRITE on the cluster, or set {prefix}enable.idempotence=false"
        ),
        ErrorCode.INVALID_RECORD: (
            "correct the records that the topic settings refuse (cleanup.policy=compact needs a key in each record, "
            "message.timestamp.before.max.ms and message.timestamp.after.max.ms limit timestamps), or change the "
            "setting"
        ),
        ErrorCode.INVALID_TIMESTAMP: (
            "correct the timestamp (of a record without one: the clock of this machine), or raise "
            "message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic, which limit its distance "
            "from the time of the write"
        ),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another {prefix}compression.type",
        ErrorCode.NOT_ENOUGH_REPLICAS: (
            "fewer replicas are in sync than min.insync.replicas requires; start the brokers that have the others"
        ),
    },
    Situation.IDEMPOTENCE: {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
            "grant WRITE on the topic to this principal (before Kafka 2.8: IDEMPOTENT_WRITE on the cluster)"
        ),
        ErrorCode.UNSUPPORTED_VERSION: "idempotent writes need brokers of version 0.11 or newer; upgrade them",
    },
    Situation.TRANSACTIONAL_ID: {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE on this transactional id to this principal",
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: _LOWER_TIMEOUT,
        ErrorCode.PRODUCER_FENCED: (
            "a newer producer with the same id has taken over; close this one, or give each its own id"
        ),
        ErrorCode.INVALID_REQUEST: "these brokers do not support transactions; write without a transactional id",
        ErrorCode.UNSUPPORTED_VERSION: "transactions need brokers of version 0.11 or newer; upgrade them",
    },
    Situation.SINK: {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
            "grant WRITE and DESCRIBE on the transactional ids that begin with {sink!r} to this principal"
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: (
            "the progress is kept in the consumer group {sink!r}; grant READ on it to this principal"
        ),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
            "the progress is kept as offsets of topic {topic!r}; grant READ on it to this principal"
        ),
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: _LOWER_TIMEOUT,
    },
    Situation.TOPIC: {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
            "grant CREATE on the topic or on the cluster, or create the topic beforehand"
        ),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant CREATE on the cluster, or create the topic beforehand",
        ErrorCode.INVALID_REPLICATION_FACTOR: "lower topicReplicationFactor to at most the number of brokers",
        ErrorCode.INVALID_PARTITIONS: "set topicPartitions to 1 or more",
        ErrorCode.POLICY_VIOLATION: "the brokers' create.topic.policy refuses it; create the topic beforehand",
    },
}


def remedy(situation: Situation, code: ErrorCode, **names: str) -> str:
    """The remedy with *names* in place of the placeholders; empty if none is known."""
    return REMEDIES[situation].get(code, "").format(**names)
