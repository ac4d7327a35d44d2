"""Creates a topic that is missing, once, for jobs that ask for it.

Called on the driver, in its thread, before any task begins. An existing topic is never changed.
"""

from __future__ import annotations

import logging

from kafka_sink.client.blocking.admin import BROKER_DEFAULT, AdminClient
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common import config as c
from kafka_sink.common.errors import ApiError, ErrorCode, UnknownTopicOrPartitionError, error_for
from kafka_sink.common.remedies import Situation, remedy
from kafka_sink.producer.config import ProducerConfig

_log = logging.getLogger(__name__)


def ensure_topic(config: ProducerConfig, topic: str, partitions: int, replication_factor: int | None = None) -> bool:
    """Create *topic* if it does not exist; returns whether this call has created it. If others create it at the same
    time, the first one decides. A *replication_factor* of None is the brokers' default.

    :raises ApiError: if the topic could not be created; the text says what to do.
    """
    limit = {"default.api.timeout.ms": max(config.max_block_ms, 1)}
    with AdminClient(config.bootstrap_servers, {**c.known_to(ClientConfig, c.changed(config)), **limit}) as admin:
        try:
            existing = len(admin.describe_topics([topic])[topic].partitions)
        except UnknownTopicOrPartitionError:
            return _create(
                admin, topic, partitions, BROKER_DEFAULT if replication_factor is None else replication_factor
            )
    if existing != partitions:
        _log.warning(
            "topic %r exists with %d partitions and is not changed to %d (option topicPartitions)",
            topic,
            existing,
            partitions,
        )
    return False


def _create(admin: AdminClient, topic: str, partitions: int, replication_factor: int) -> bool:
    try:
        admin.create_topic(topic, partitions, replication_factor)
    except ApiError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        what_to_do = remedy(Situation.TOPIC, error.code)
        if not what_to_do:
            raise
        raise error_for(error.code, f"topic {topic!r} could not be created: {error}; {what_to_do}") from error
    _log.info("created topic %r with %d partitions", topic, partitions)
    return True
