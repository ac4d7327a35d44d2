"""JoinGroup (key 11): become or stay a member of a group; the answer comes when all others have joined too.

From version 4 on a member without an id is given one and asks again with it (KIP-394); 5 has static members (KIP-345).
"""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    BYTES,
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

_VERSIONS = "0-9"
_FLEXIBLE = "6+"


@struct
class JoinGroupRequestProtocol(Struct):
    """A way to share the partitions out, and what the member says to it, in bytes of its own."""

    name: str = field(STRING, "0+")
    metadata: bytes = field(BYTES, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class JoinGroupRequest(RequestBody["JoinGroupResponse"]):
    """Times in ms; version 0 has no *rebalance_timeout_ms*, there the session time-out stands for it."""

    group_id: str = field(STRING, "0+")
    session_timeout_ms: int = field(INT32, "0+")
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "5+", default=None, nullable="5+")
    protocol_type: str = field(STRING, "0+")
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol), "0+")
    reason: str | None = field(STRING, "8+", default=None, nullable="8+", ignorable=True)


@struct
class JoinGroupResponseMember(Struct):
    """A member as the leader is told of it."""

    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = field(BYTES, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class JoinGroupResponse(Struct):
    """The new generation; only the leader is told the members."""

    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    error_code: int = field(INT16, "0+")
    generation_id: int = field(INT32, "0+", default=-1)
    protocol_type: str | None = field(STRING, "7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = field(STRING, "0+", nullable="7+")
    leader: str = field(STRING, "0+")
    skip_assignment: bool = field(BOOL, "9+", default=False)
    member_id: str = field(STRING, "0+")
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember), "0+")
