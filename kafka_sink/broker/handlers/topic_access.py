"""The topics of Produce and Fetch requests, which name them, or in later versions have their ids (KIP-516).

Called by handlers once per topic, before they look at its partitions.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from uuid import UUID

from kafka_sink.broker.cluster.topic_state import TopicState
from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.messages.fetch import FetchRequest
from kafka_sink.protocol.messages.produce import ProduceRequest

#: First versions of Produce and of Fetch with topic ids.
FIRST_WITH_TOPIC_IDS: Final = 13

_Request: TypeAlias = ApiRequest[ProduceRequest] | ApiRequest[FetchRequest]


def asked_topic(context: BrokerContext, request: _Request, name: str, topic_id: UUID) -> TopicState | ApiError:
    """The topic with *topic_id*, in versions without ids with *name*, or the error that there is none."""
    by_id = request.version >= FIRST_WITH_TOPIC_IDS
    topic = context.cluster.topic_by_id(topic_id) if by_id else context.cluster.topic(name)
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic or ApiError("there is no such topic", code)


def permitted_topic(
    context: BrokerContext, request: _Request, operation: AclOperation, name: str, topic_id: UUID
) -> TopicState | ApiError:
    """As :func:`asked_topic`, or the error that the client may not do *operation* on it.

    An id that does not exist needs no permission.
    """
    topic = asked_topic(context, request, name, topic_id)
    try:
        if isinstance(topic, TopicState):
            require(context, request, operation, ResourceType.TOPIC, topic.name)
        elif topic.code is not ErrorCode.UNKNOWN_TOPIC_ID:
            require(context, request, operation, ResourceType.TOPIC, name)
    except ApiError as error:
        return error
    return topic
