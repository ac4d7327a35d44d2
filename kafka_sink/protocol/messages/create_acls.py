"""CreateAcls (key 30): permissions for principals on resources (KIP-11, KIP-290)."""

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
class AclCreation(Struct):
    """One ACL; pattern type 3 is a literal name, 4 a prefix."""

    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    resource_pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreateAclsRequest(RequestBody["CreateAclsResponse"]):
    """The ACLs to create."""

    creations: list[AclCreation] = field(array(AclCreation), "0+")


@struct
class AclCreationResult(Struct):
    """What became of one ACL."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreateAclsResponse(Struct):
    """A result for each ACL, in the order of the request."""

    throttle_time_ms: int = field(INT32, "0+")
    results: list[AclCreationResult] = field(array(AclCreationResult), "0+")
