"""DescribeAcls (key 29): the ACLs that match a filter (KIP-140, KIP-290)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-3"
_FLEXIBLE = "2+"


@s.struct
class AclFilter(s.Struct):
    """A filter; null and 1 match anything."""

    resource_type_filter: int = s.field(s.INT8, "0+")
    resource_name_filter: str | None = s.field(s.STRING, "0+", nullable="0+")
    pattern_type_filter: int = s.field(s.INT8, "1+", default=3)
    principal_filter: str | None = s.field(s.STRING, "0+", nullable="0+")
    host_filter: str | None = s.field(s.STRING, "0+", nullable="0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeAclsRequest(AclFilter, s.RequestBody["DescribeAclsResponse"]):
    """The ACLs that match it are asked for."""


@s.struct
class AclDescription(s.Struct):
    """One ACL of a resource."""

    principal: str = s.field(s.STRING, "0+")
    host: str = s.field(s.STRING, "0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


@s.struct
class DescribeAclsResource(s.Struct):
    """The ACLs with the same resource pattern."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    pattern_type: int = s.field(s.INT8, "1+", default=3)
    acls: list[AclDescription] = s.field(s.array(AclDescription), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeAclsResponse(s.Struct):
    """The ACLs that match, by resource pattern."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    resources: list[DescribeAclsResource] = s.field(s.array(DescribeAclsResource), "0+")
