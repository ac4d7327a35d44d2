"""DeleteAcls (key 31): deletes the ACLs that match filters (KIP-140, KIP-290)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.describe_acls import AclFilter

_VERSIONS = "1-3"
_FLEXIBLE = "2+"


@s.struct
class DeleteAclsFilter(AclFilter):
    """What matches it is deleted."""


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteAclsRequest(s.RequestBody["DeleteAclsResponse"]):
    """The filters of the ACLs to delete."""

    filters: list[DeleteAclsFilter] = s.field(s.array(DeleteAclsFilter), "0+")


@s.struct
class DeleteAclsMatchingAcl(s.Struct):
    """An ACL that was deleted, or could not be."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    pattern_type: int = s.field(s.INT8, "1+", default=3)
    principal: str = s.field(s.STRING, "0+")
    host: str = s.field(s.STRING, "0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


@s.struct
class DeleteAclsFilterResult(s.Struct):
    """The ACLs that matched one filter."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = s.field(s.array(DeleteAclsMatchingAcl), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteAclsResponse(s.Struct):
    """A result for each filter, in the order of the request."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    filter_results: list[DeleteAclsFilterResult] = s.field(s.array(DeleteAclsFilterResult), "0+")
