"""ListPartitionReassignments (key 46): none, because each is complete when it is answered (KIP-455)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)


def handle(context: BrokerContext, request: ApiRequest[ListPartitionReassignmentsRequest]) -> None:
    """Answer that none is under way."""
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER)
        answer = ListPartitionReassignmentsResponse(error_message=None)
    except ApiError as error:
        # As Kafka does: with what was asked for, and nothing known of it.
        named = [
            OngoingTopicReassignment(
                topic.name, [OngoingPartitionReassignment(index) for index in topic.partition_indexes]
            )
            for topic in request.body.topics or ()
        ]
        answer = ListPartitionReassignmentsResponse(error_code=error.code, error_message=str(error), topics=named)
    request.respond(answer)


API: Final = ApiHandler(ApiKey.LIST_PARTITION_REASSIGNMENTS, VERSIONS, handle)
