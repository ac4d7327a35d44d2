"""The bodies of the admin client's requests about ACLs, and the parsing of their answers.

Pure functions: the admin client sends the requests, on its caller's thread.

Source: DescribeAcls, CreateAcls, DeleteAcls (KIP-140, KIP-290).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_sink.common.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    from_code,
)
from kafka_sink.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafka_sink.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from kafka_sink.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def describe_acls(wanted: AclBindingFilter) -> DescribeAclsRequest:
    return DescribeAclsRequest(**_filter_fields(wanted))


def described_acls(response: DescribeAclsResponse) -> list[AclBinding]:
    return [_binding(resource, acl) for resource in response.resources for acl in resource.acls]


def create_acls(acls: Iterable[AclBinding]) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ]
    )


def delete_acls(acls: Iterable[AclBinding]) -> DeleteAclsRequest:
    """A request that deletes exactly these ACLs."""
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(AclBindingFilter.of(acl))) for acl in acls])


def deleted_acl(match: DeleteAclsMatchingAcl) -> AclBinding:
    return _binding(match, match)


def _filter_fields(wanted: AclBindingFilter) -> dict[str, Any]:
    """The fields that DescribeAcls and DeleteAcls have for a filter."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    """An operation, type or pattern that this version does not know becomes UNKNOWN."""
    return AclBinding(
        principal=acl.principal,
        operation=from_code(AclOperation, acl.operation),
        resource_type=from_code(ResourceType, resource.resource_type),
        resource_name=resource.resource_name,
        pattern_type=from_code(PatternType, resource.pattern_type),
        permission_type=from_code(AclPermissionType, acl.permission_type),
        host=acl.host,
    )
