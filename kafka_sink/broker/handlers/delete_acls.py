"""DeleteAcls (key 31): deletes the ACLs that match filters (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.acl_entries import is_readable, validate_filter, without_authorizer
from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, stored_together
from kafka_sink.common.acl import AclBinding, AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.acls import filter_of
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 3)


def handle(context: BrokerContext, request: ApiRequest[DeleteAclsRequest]) -> None:
    """Delete the ACLs that match each filter; a failure does not affect the others."""
    if not all(map(is_readable, request.body.filters)):
        request.close_connection()
        return
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return

    def delete(asked: DeleteAclsFilter) -> DeleteAclsFilterResult:
        wanted = filter_of(asked)
        if not context.authorizer.is_enabled:
            raise without_authorizer()
        validate_filter(wanted)
        deleted = context.cluster.delete_acls(wanted)
        return DeleteAclsFilterResult(ErrorCode.NONE, None, list(map(_matching, deleted)))

    def refused(asked: DeleteAclsFilter, error: ApiError) -> DeleteAclsFilterResult:
        return DeleteAclsFilterResult(error.code, str(error), [])

    results = stored_together(context, request.body.filters, delete, refused)
    request.respond(DeleteAclsResponse(filter_results=results))


def _matching(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        ErrorCode.NONE,
        None,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


API: Final = ApiHandler(ApiKey.DELETE_ACLS, VERSIONS, handle)
