"""JoinGroup (key 11): become or stay a member of a group; the answer comes when all others have joined too.

From version 4 on a member without an id is given one and asks again with it (KIP-394); 5 has static members (KIP-345).
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-9"
_FLEXIBLE = "6+"


@s.struct
class JoinGroupRequestProtocol(s.Struct):
    """A way to share the partitions out, and what the member says to it, in bytes of its own."""

    name: str = s.field(s.STRING, "0+")
    metadata: bytes = s.field(s.BYTES, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class JoinGroupRequest(s.RequestBody["JoinGroupResponse"]):
    """Times in ms; version 0 has no *rebalance_timeout_ms*, there the session time-out stands for it."""

    group_id: str = s.field(s.STRING, "0+")
    session_timeout_ms: int = s.field(s.INT32, "0+")
    rebalance_timeout_ms: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "5+", default=None, nullable="5+")
    protocol_type: str = s.field(s.STRING, "0+")
    protocols: list[JoinGroupRequestProtocol] = s.field(s.array(JoinGroupRequestProtocol), "0+")
    reason: str | None = s.field(s.STRING, "8+", default=None, nullable="8+", ignorable=True)


@s.struct
class JoinGroupResponseMember(s.Struct):
    """A member as the leader is told of it."""

    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = s.field(s.BYTES, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class JoinGroupResponse(s.Struct):
    """The new generation; only the leader is told the members."""

    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    generation_id: int = s.field(s.INT32, "0+", default=-1)
    protocol_type: str | None = s.field(s.STRING, "7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = s.field(s.STRING, "0+", nullable="7+")
    leader: str = s.field(s.STRING, "0+")
    skip_assignment: bool = s.field(s.BOOL, "9+", default=False)
    member_id: str = s.field(s.STRING, "0+")
    members: list[JoinGroupResponseMember] = s.field(s.array(JoinGroupResponseMember), "0+")
