"""DescribeAcls (key 29): the ACLs that match a filter, by resource pattern (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.acl_entries import is_readable, without_authorizer
from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.acls import filter_of
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 3)


def handle(context: BrokerContext, request: ApiRequest[DescribeAclsRequest]) -> None:
    """Answer with all ACLs that match."""
    if not is_readable(request.body):
        request.close_connection()
        return
    if is_refused(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return
    if not context.authorizer.is_enabled:
        error = without_authorizer()
        request.respond(DescribeAclsResponse(error_code=error.code, error_message=str(error)))
        return
    wanted = filter_of(request.body)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in filter(wanted.matches, context.cluster.image.acls.acls):
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.setdefault(key, DescribeAclsResource(*key))
        resource.acls.append(AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    request.respond(
        DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))
    )


API: Final = ApiHandler(ApiKey.DESCRIBE_ACLS, VERSIONS, handle)
