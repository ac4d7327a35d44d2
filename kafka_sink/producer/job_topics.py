"""The topics of a job before its tasks begin: creates them if the job asks for it, awaits them, reads their settings.

Called on the driver, in its thread. An existing topic is never changed. The ``async`` functions are exchanges, see
:mod:`kafka_sink.client.blocking.blocking`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafka_sink.client.blocking.admin import BROKER_DEFAULT, AdminClient
from kafka_sink.client.blocking.blocking import RequestSpec, Round, Tries
from kafka_sink.client.metadata.cluster import invalid_topic, not_visible
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.client.requests.admin_requests import describe_topics_configs
from kafka_sink.common import config as c
from kafka_sink.common.acl import AclOperation
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaTimeoutError, UnknownTopicOrPartitionError, error_for
from kafka_sink.common.remedies import Situation, remedy
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import DescribeConfigsResponse
from kafka_sink.protocol.messages.metadata import (
    FIRST_WITH_OPERATIONS,
    NO_AUTHORIZED_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_log = logging.getLogger(__name__)


def ensure_topic(config: ProducerConfig, topic: str, partitions: int, replication_factor: int | None = None) -> bool:
    """Create *topic* if it does not exist; returns whether this call has created it. If several clients create it at
    the same time, the first request decides. A *replication_factor* of None is the brokers' default.

    :raises ApiError: if the topic could not be created; the text has the remedy.
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


async def require_topic(topic: str | None, begin_tries: Callable[[], Tries]) -> None:
    """Return once a broker has accepted this client and *topic* exists, which brokers may create and this client may
    write to. None: no topic is checked.

    :param begin_tries: begins the attempts, and their time-out.
    :raises UnknownTopicOrPartitionError: if it is still missing at the end of the tries.
    :raises BrokersUnreachableError: if no broker could be reached by then.
    :raises ApiError: at once, if the brokers refuse this client or the topic.
    """

    def as_producers_ask(version: int) -> MetadataRequest:
        asked = [] if topic is None else [MetadataRequestTopic(name=topic)]
        return MetadataRequest(topics=asked, include_topic_authorized_operations=version >= FIRST_WITH_OPERATIONS)

    tries, missing = begin_tries(), None
    while True:
        (answer,) = await Round([(None, RequestSpec(ApiKey.METADATA, as_producers_ask))], tries.left_ms)
        if isinstance(answer, ApiError):
            raise missing if missing and type(answer) is KafkaTimeoutError else answer
        assert isinstance(answer, MetadataResponse)
        if topic is None:
            return
        (described,) = answer.topics
        if described.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            break
        missing = UnknownTopicOrPartitionError(
            f"topic {topic} is not present in metadata after {tries.timeout_ms} ms: it does not exist and the brokers "
            "do not create it, or it has no leader yet; create it first, or correct the name"
        )
        pause = tries.next_pause()
        if pause is None:
            raise missing
        await pause
    if described.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise not_visible(topic)
    if described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise invalid_topic(topic)
    if described.error_code:
        raise error_for(described.error_code, f"topic {topic!r}")
    operations = described.topic_authorized_operations
    if operations != NO_AUTHORIZED_OPERATIONS and not operations & 1 << AclOperation.WRITE:
        raise error_for(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"this principal may not write to topic {topic!r}; grant WRITE on the topic to this principal",
        )


async def topic_settings(topics: Sequence[str], timeout_ms: int) -> dict[str, dict[str, str]]:
    """Topic → setting → value, without the topics that do not exist or whose settings this client may not see.

    :raises ApiError: if no broker answers within *timeout_ms*.
    """
    spec = RequestSpec(ApiKey.DESCRIBE_CONFIGS, lambda version: describe_topics_configs(topics))
    (answer,) = await Round([(None, spec)], timeout_ms)
    if isinstance(answer, ApiError):
        raise answer
    assert isinstance(answer, DescribeConfigsResponse)
    return {
        result.resource_name: {setting.name: setting.value for setting in result.configs if setting.value is not None}
        for result in answer.results
        if result.error_code == ErrorCode.NONE
    }
