"""ACLs: created, described and deleted (KIP-11, KIP-140, KIP-290). Any node does it: nodes share the cluster's state.

Source: apache/kafka ``CreateAclsRequest``, ``DescribeAclsRequest``, ``DeleteAclsRequest``, ``AclControlManager``.
"""

from __future__ import annotations

from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, storage_errors, stored_together
from kafka_sink.common.acl import AclBinding, AclBindingFilter, AclOperation, ResourceType, validate
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.acls import binding_of, deletion_of, filter_of
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import acls as m


def is_readable(acl: m.AclCreation | m.AclFilter) -> bool:
    """Whether no code is the one for "unknown". Kafka reads no request with this code, and closes the connection."""
    if isinstance(acl, m.AclCreation):
        types = acl.resource_type, acl.resource_pattern_type
    else:
        types = acl.resource_type_filter, acl.pattern_type_filter
    return 0 not in (*types, acl.operation, acl.permission_type)


def validate_filter(wanted: AclBindingFilter) -> None:
    """:raises ApiError: INVALID_REQUEST, if a value of *wanted* is unknown."""
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
        raise ApiError(f"{wanted} has an unknown value", ErrorCode.INVALID_REQUEST)


def without_authorizer() -> ApiError:
    """The error of a broker that enforces no ACLs."""
    return ApiError(
        "no authorizer is configured: start the broker with --authorizer, or set authorizer.class.name",
        ErrorCode.SECURITY_DISABLED,
    )


@api_handler(ApiKey.CREATE_ACLS, "1-3")
def create_acls(context: BrokerContext, request: ApiRequest[m.CreateAclsRequest]) -> None:
    """CreateAcls (key 30): adds ACLs (KIP-11, KIP-290). Any node handles it: the nodes share the cluster's state. Adds
    the valid ACLs at once; an invalid one does not affect the others.
    """
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
        m.CreateAclsResponse(
            results=[
                m.AclCreationResult(ErrorCode.NONE, None)
                if error is None
                else m.AclCreationResult(error.code, str(error))
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


@api_handler(ApiKey.DESCRIBE_ACLS, "1-3")
def describe_acls(context: BrokerContext, request: ApiRequest[m.DescribeAclsRequest]) -> None:
    """DescribeAcls (key 29): the ACLs that match a filter, by resource pattern (KIP-140, KIP-290). Answers with all
    ACLs that match.
    """
    if not is_readable(request.body):
        request.close_connection()
        return
    if is_refused(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return
    if not context.authorizer.is_enabled:
        error = without_authorizer()
        request.respond(m.DescribeAclsResponse(error_code=error.code, error_message=str(error)))
        return
    wanted = filter_of(request.body)
    resources: dict[tuple[int, str, int], m.DescribeAclsResource] = {}
    for acl in filter(wanted.matches, context.cluster.image.acls.acls):
        key = acl.resource_type, acl.resource_name, acl.pattern_type
        resource = resources.setdefault(key, m.DescribeAclsResource(*key))
        resource.acls.append(m.AclDescription(acl.principal, acl.host, acl.operation, acl.permission_type))
    request.respond(
        m.DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))
    )


@api_handler(ApiKey.DELETE_ACLS, "1-3")
def delete_acls(context: BrokerContext, request: ApiRequest[m.DeleteAclsRequest]) -> None:
    """DeleteAcls (key 31): deletes the ACLs that match filters (KIP-140, KIP-290). Deletes the ACLs that match each
    filter; a failure does not affect the others.
    """
    if not all(map(is_readable, request.body.filters)):
        request.close_connection()
        return
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return

    def delete(acl_filter: m.DeleteAclsFilter) -> m.DeleteAclsFilterResult:
        wanted = filter_of(acl_filter)
        if not context.authorizer.is_enabled:
            raise without_authorizer()
        validate_filter(wanted)
        deleted = context.cluster.delete_acls(wanted)
        return m.DeleteAclsFilterResult(ErrorCode.NONE, None, list(map(deletion_of, deleted)))

    def refused(acl_filter: m.DeleteAclsFilter, error: ApiError) -> m.DeleteAclsFilterResult:
        return m.DeleteAclsFilterResult(error.code, str(error), [])

    results = stored_together(context, request.body.filters, delete, refused)
    request.respond(m.DeleteAclsResponse(filter_results=results))
