"""DeleteAcls (key 31): deletes the ACLs that match filters (KIP-140, KIP-290)."""

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


@struct
class DeleteAclsFilter(Struct):
    """A filter; null and 1 match anything."""

    resource_type_filter: int = field(INT8, "0+")
    resource_name_filter: str | None = field(STRING, "0+", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", nullable="0+")
    host_filter: str | None = field(STRING, "0+", nullable="0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteAclsRequest(RequestBody["DeleteAclsResponse"]):
    """The filters of the ACLs to delete."""

    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter), "0+")


@struct
class DeleteAclsMatchingAcl(Struct):
    """An ACL that was deleted, or could not be."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


@struct
class DeleteAclsFilterResult(Struct):
    """The ACLs that matched one filter."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DeleteAclsResponse(Struct):
    """A result for each filter, in the order of the request."""

    throttle_time_ms: int = field(INT32, "0+")
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult), "0+")
