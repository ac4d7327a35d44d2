"""CreateAcls (key 30): permissions for principals on resources (KIP-11, KIP-290)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-3"
_FLEXIBLE = "2+"


@s.struct
class AclCreation(s.Struct):
    """One ACL; pattern type 3 is a literal name, 4 a prefix."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    resource_pattern_type: int = s.field(s.INT8, "1+", default=3)
    principal: str = s.field(s.STRING, "0+")
    host: str = s.field(s.STRING, "0+")
    operation: int = s.field(s.INT8, "0+")
    permission_type: int = s.field(s.INT8, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreateAclsRequest(s.RequestBody["CreateAclsResponse"]):
    """The ACLs to create."""

    creations: list[AclCreation] = s.field(s.array(AclCreation), "0+")


@s.struct
class AclCreationResult(s.Struct):
    """What became of one ACL."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class CreateAclsResponse(s.Struct):
    """A result for each ACL, in the order of the request."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    results: list[AclCreationResult] = s.field(s.array(AclCreationResult), "0+")
