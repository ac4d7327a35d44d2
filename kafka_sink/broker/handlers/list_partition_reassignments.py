"""ListPartitionReassignments (key 46): none, because each is complete when it is answered (KIP-455)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)


def handle(context: BrokerContext, request: ApiRequest[ListPartitionReassignmentsRequest]) -> None:
    """Answer that none is under way."""
    if not is_refused(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER):
        request.respond(ListPartitionReassignmentsResponse(error_message=None))


API: Final = ApiHandler(ApiKey.LIST_PARTITION_REASSIGNMENTS, VERSIONS, handle)
