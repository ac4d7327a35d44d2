"""LeaveGroup (key 13): go out of a group, from version 3 on several members at once (KIP-345)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-5"
_FLEXIBLE = "4+"


@s.struct
class MemberIdentity(s.Struct):
    """A member by its id, or a static one by its instance id."""

    member_id: str = s.field(s.STRING, "3+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")
    reason: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class LeaveGroupRequest(s.RequestBody["LeaveGroupResponse"]):
    """*member_id* up to version 2, *members* from version 3 on."""

    group_id: str = s.field(s.STRING, "0+")
    member_id: str = s.field(s.STRING, "0-2")
    members: list[MemberIdentity] = s.field(s.array(MemberIdentity), "3+")


@s.struct
class MemberResponse(s.Struct):
    """The outcome for one member."""

    member_id: str = s.field(s.STRING, "3+")
    group_instance_id: str | None = s.field(s.STRING, "3+", nullable="3+")
    error_code: int = s.field(s.INT16, "3+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class LeaveGroupResponse(s.Struct):
    """Up to version 2 *error_code* is that of the one member."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    members: list[MemberResponse] = s.field(s.array(MemberResponse), "3+")
