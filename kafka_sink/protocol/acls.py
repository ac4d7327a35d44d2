"""ACLs, and filters of ACLs, as the messages of CreateAcls, DescribeAcls and DeleteAcls carry them.

Pure; client and broker use it, each in one direction. A code that this version does not know becomes UNKNOWN.

Source: KIP-140, KIP-290; apache/kafka ``CreateAclsRequest``, ``DescribeAclsRequest``, ``DeleteAclsRequest``.
"""

from __future__ import annotations

from typing import Any, TypeVar

from kafka_sink.common.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    from_code,
)
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.messages.acls import (
    AclCreation,
    AclDescription,
    AclFilter,
    DeleteAclsMatchingAcl,
    DescribeAclsResource,
)

_Filter = TypeVar("_Filter", bound=AclFilter)


def _fields(acl: AclBinding | AclBindingFilter) -> tuple[Any, ...]:
    """The fields of *acl* in the order of all messages."""
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def creation_of(acl: AclBinding) -> AclCreation:
    """The message that creates *acl*."""
    return AclCreation(*_fields(acl))


def deletion_of(acl: AclBinding) -> DeleteAclsMatchingAcl:
    """The message that *acl* was deleted."""
    return DeleteAclsMatchingAcl(ErrorCode.NONE, None, *_fields(acl))


def binding_of(
    resource: AclCreation | DescribeAclsResource | DeleteAclsMatchingAcl,
    acl: AclCreation | AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    """The ACL of a message, of which *resource* and *acl* may be one."""
    pattern = resource.resource_pattern_type if isinstance(resource, AclCreation) else resource.pattern_type
    return AclBinding(
        principal=acl.principal,
        operation=from_code(AclOperation, acl.operation),
        resource_type=from_code(ResourceType, resource.resource_type),
        resource_name=resource.resource_name,
        pattern_type=from_code(PatternType, pattern),
        permission_type=from_code(AclPermissionType, acl.permission_type),
        host=acl.host,
    )


def filter_message(kind: type[_Filter], wanted: AclBindingFilter) -> _Filter:
    """The message of *kind* that selects what *wanted* does."""
    return kind(*_fields(wanted))


def filter_of(message: AclFilter) -> AclBindingFilter:
    """The filter of a message."""
    return AclBindingFilter(
        principal=message.principal_filter,
        operation=from_code(AclOperation, message.operation),
        resource_type=from_code(ResourceType, message.resource_type_filter),
        resource_name=message.resource_name_filter,
        pattern_type=from_code(PatternType, message.pattern_type_filter),
        permission_type=from_code(AclPermissionType, message.permission_type),
        host=message.host_filter,
    )
