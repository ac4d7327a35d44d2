"""What the requests CreateAcls, DescribeAcls and DeleteAcls may ask for.

Pure; used by their handlers.

Source: apache/kafka ``CreateAclsRequest``, ``DescribeAclsRequest``, ``DeleteAclsRequest``, ``AclControlManager``.
"""

from __future__ import annotations

from kafka_sink.common.acl import AclBindingFilter
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.messages.create_acls import AclCreation
from kafka_sink.protocol.messages.describe_acls import AclFilter


def is_readable(asked: AclCreation | AclFilter) -> bool:
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
