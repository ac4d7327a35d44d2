"""ACLs: their creation, description and deletion (KIP-11, KIP-140, KIP-290); and the conversion between these messages
and this project's ACLs and filters. A code that this version does not know becomes UNKNOWN.

Source: apache/kafka ``CreateAclsRequest``, ``DescribeAclsRequest``, ``DeleteAclsRequest``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final, TypeVar

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
from kafka_sink.common.text import words
from kafka_sink.protocol import schema as s


class AclCreation(s.Struct):
    """One ACL; pattern type 3 is a literal name, 4 a prefix."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    resource_pattern_type: int = s.field(s.INT8, "1+", default=3)
    principal: str = s.field(s.STRING, "0+")
    host: str = s.field(s.STRING, "0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


class CreateAclsRequest(s.RequestBody["CreateAclsResponse"], versions="1-3", flexible="2+"):
    """CreateAcls (key 30): permissions for principals on resources (KIP-11, KIP-290). The ACLs to create."""

    creations: list[AclCreation] = s.field(s.Array(AclCreation), "0+")


class AclCreationResult(s.Outcome):
    """Whether an ACL was created."""


class CreateAclsResponse(s.Throttled, versions="1-3", flexible="2+"):
    """A result for each ACL, in the order of the request."""

    results: list[AclCreationResult] = s.field(s.Array(AclCreationResult), "0+")


class AclFilter(s.Struct):
    """A filter; null and 1 match anything."""

    resource_type_filter: int = s.field(s.INT8, "0+")
    resource_name_filter: str | None = s.field(s.STRING, "0+", nullable="0+")
    pattern_type_filter: int = s.field(s.INT8, "1+", default=3)
    principal_filter: str | None = s.field(s.STRING, "0+", nullable="0+")
    host_filter: str | None = s.field(s.STRING, "0+", nullable="0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


class DescribeAclsRequest(AclFilter, s.RequestBody["DescribeAclsResponse"], versions="1-3", flexible="2+"):
    """DescribeAcls (key 29): the ACLs that match a filter (KIP-140, KIP-290)."""


class AclDescription(s.Struct):
    principal: str = s.field(s.STRING, "0+")
    host: str = s.field(s.STRING, "0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


class DescribeAclsResource(s.Struct):
    """The ACLs with the same resource pattern."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    pattern_type: int = s.field(s.INT8, "1+", default=3)
    acls: list[AclDescription] = s.field(s.Array(AclDescription), "0+")


class DescribeAclsResponse(s.Throttled, versions="1-3", flexible="2+"):
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    resources: list[DescribeAclsResource] = s.field(s.Array(DescribeAclsResource), "0+")


class DeleteAclsFilter(AclFilter):
    """The ACLs that match it are deleted."""


class DeleteAclsRequest(s.RequestBody["DeleteAclsResponse"], versions="1-3", flexible="2+"):
    """DeleteAcls (key 31): the filters of the ACLs to delete (KIP-140, KIP-290)."""

    filters: list[DeleteAclsFilter] = s.field(s.Array(DeleteAclsFilter), "0+")


class DeleteAclsMatchingAcl(s.Outcome):
    """An ACL that was deleted, or could not be."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    pattern_type: int = s.field(s.INT8, "1+", default=3)
    principal: str = s.field(s.STRING, "0+")
    host: str = s.field(s.STRING, "0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


class DeleteAclsFilterResult(s.Outcome):
    matching_acls: list[DeleteAclsMatchingAcl] = s.field(s.Array(DeleteAclsMatchingAcl), "0+")


class DeleteAclsResponse(s.Throttled, versions="1-3", flexible="2+"):
    """A result for each filter, in the order of the request."""

    filter_results: list[DeleteAclsFilterResult] = s.field(s.Array(DeleteAclsFilterResult), "0+")


_Filter = TypeVar("_Filter", bound=AclFilter)


#: The fields of an ACL, or of a filter, in the order of all messages.
_FIELDS: Final = attrgetter(*words("resource_type resource_name pattern_type principal host operation permission_type"))


def creation_of(acl: AclBinding) -> AclCreation:
    return AclCreation(*_FIELDS(acl))


def deletion_of(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(ErrorCode.NONE, None, *_FIELDS(acl))


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
    """The message of *kind* that selects the same ACLs as *wanted*."""
    return kind(*_FIELDS(wanted))


def filter_of(message: AclFilter) -> AclBindingFilter:
    return AclBindingFilter(
        principal=message.principal_filter,
        operation=from_code(AclOperation, message.operation),
        resource_type=from_code(ResourceType, message.resource_type_filter),
        resource_name=message.resource_name_filter,
        pattern_type=from_code(PatternType, message.pattern_type_filter),
        permission_type=from_code(AclPermissionType, message.permission_type),
        host=message.host_filter,
    )
