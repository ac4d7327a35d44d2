"""ListGroups (key 16): the groups that this node coordinates, filtered by state and type (KIP-518, KIP-848)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_allowed
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)


def handle(context: BrokerContext, request: ApiRequest[ListGroupsRequest]) -> None:
    """List the groups that the client may describe and that match both filters, which are case-insensitive."""
    states = {state.strip().lower() for state in request.body.states_filter}
    types = {kind.strip().lower() for kind in request.body.types_filter}
    sees_all = is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    listed = [
        ListedGroup(group.group_id, group.protocol_type, group.state, group.kind)
        for group in context.groups.all()
        if context.cluster.coordinator_for(group.group_id) == context.node_id
        and (not states or group.state.lower() in states)
        and (not types or group.kind in types)
        and (sees_all or is_allowed(context, request, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
    request.respond(ListGroupsResponse(groups=listed))


API: Final = ApiHandler(ApiKey.LIST_GROUPS, VERSIONS, handle)
