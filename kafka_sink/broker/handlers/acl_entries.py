"""ACLs and filters of ACLs as the messages of CreateAcls, DescribeAcls and DeleteAcls carry them.

Pure; used by their handlers.

Source: apache/kafka ``CreateAclsRequest``, ``DescribeAclsRequest``, ``DeleteAclsRequest``, ``AclControlManager``.
"""

from __future__ import annotations

from kafka_sink.common.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    from_code,
)
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.messages.create_acls import AclCreation
from kafka_sink.protocol.messages.delete_acls import DeleteAclsFilter
from kafka_sink.protocol.messages.describe_acls import DescribeAclsRequest


def binding_of(creation: AclCreation) -> AclBinding:
    """The ACL of a request; an unknown code becomes UNKNOWN."""
    return AclBinding(
        principal=creation.principal,
        operation=from_code(AclOperation, creation.operation),
        resource_type=from_code(ResourceType, creation.resource_type),
        resource_name=creation.resource_name,
        pattern_type=from_code(PatternType, creation.resource_pattern_type),
        permission_type=from_code(AclPermissionType, creation.permission_type),
        host=creation.host,
    )


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclBindingFilter:
    """The filter of a request; an unknown code becomes UNKNOWN."""
    return AclBindingFilter(
        principal=asked.principal_filter,
        operation=from_code(AclOperation, asked.operation),
        resource_type=from_code(ResourceType, asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=from_code(PatternType, asked.pattern_type_filter),
        permission_type=from_code(AclPermissionType, asked.permission_type),
        host=asked.host_filter,
    )


def is_readable(asked: AclCreation | DescribeAclsRequest | DeleteAclsFilter) -> bool:
    """Whether no code is the one for "unknown". Kafka reads no request with this code, and closes the connection."""
    if isinstance(asked, AclCreation):
        types = asked.resource_type, asked.resource_pattern_type
    else:
        types = asked.resource_type_filter, asked.pattern_type_filter
    return 0 not in (*types, asked.operation, asked.permission_type)


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
