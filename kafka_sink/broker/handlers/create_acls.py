"""CreateAcls (key 30): adds ACLs (KIP-11, KIP-290). Any node handles it: the nodes share the cluster's state."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.acl_entries import is_readable, without_authorizer
from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, storage_errors
from kafka_sink.common.acl import AclBinding, AclOperation, ResourceType, validate
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.acls import binding_of
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 3)


def handle(context: BrokerContext, request: ApiRequest[CreateAclsRequest]) -> None:
    """Add the valid ACLs at once; an invalid one does not affect the others."""
    if not all(map(is_readable, request.body.creations)):
        request.close_connection()
        return
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return
    acls = [binding_of(creation, creation) for creation in request.body.creations]
    refusals = [_refusal(context, acl) for acl in acls]
    try:
        with storage_errors("could not store the ACLs"):
            context.cluster.create_acls([acl for acl, error in zip(acls, refusals, strict=True) if error is None])
    except ApiError as error:
        refusals = [each or error for each in refusals]
    request.respond(
        CreateAclsResponse(
            results=[
                AclCreationResult(ErrorCode.NONE, None) if error is None else AclCreationResult(error.code, str(error))
                for error in refusals
            ]
        )
    )


def _refusal(context: BrokerContext, acl: AclBinding) -> ApiError | None:
    if not context.authorizer.is_enabled:
        return without_authorizer()
    try:
        validate(acl)
    except ApiError as error:
        return error
    return None


API: Final = ApiHandler(ApiKey.CREATE_ACLS, VERSIONS, handle)
