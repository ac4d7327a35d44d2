"""DescribeAcls (key 29): the ACLs that match a filter (KIP-140, KIP-290)."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    INT8,
    INT16,
    INT32,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "1-3"
_FLEXIBLE = "2+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeAclsRequest(RequestBody["DescribeAclsResponse"]):
    """The filter; null and 1 match anything."""

    resource_type_filter: int = field(INT8, "0+")
    resource_name_filter: str | None = field(STRING, "0+", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", nullable="0+")
    host_filter: str | None = field(STRING, "0+", nullable="0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


@struct
class AclDescription(Struct):
    """One ACL of a resource."""

    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


@struct
class DescribeAclsResource(Struct):
    """The ACLs with the same resource pattern."""

    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "1+", default=3)
    acls: list[AclDescription] = field(array(AclDescription), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeAclsResponse(Struct):
    """The ACLs that match, by resource pattern."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource), "0+")
