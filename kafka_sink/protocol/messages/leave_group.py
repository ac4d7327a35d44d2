"""LeaveGroup (key 13): go out of a group, from version 3 on several members at once (KIP-345)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-5"
_FLEXIBLE = "4+"


@struct
class MemberIdentity(Struct):
    """A member by its id, or a static one by its instance id."""

    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    reason: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class LeaveGroupRequest(RequestBody["LeaveGroupResponse"]):
    """*member_id* up to version 2, *members* from version 3 on."""

    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0-2")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+")


@struct
class MemberResponse(Struct):
    """The outcome for one member."""

    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+")
    error_code: int = field(INT16, "3+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class LeaveGroupResponse(Struct):
    """Up to version 2 *error_code* is that of the one member."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0+")
    members: list[MemberResponse] = field(array(MemberResponse), "3+")
