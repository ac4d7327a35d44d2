"""SyncGroup (key 14): the leader hands in who reads what, and every member is told its part."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-5"
_FLEXIBLE = "4+"


@s.struct
class SyncGroupRequestAssignment(s.Struct):
    """One member's part, in bytes that only clients understand."""

    member_id: str = s.field(s.STRING, "0+")
    assignment: bytes = s.field(s.BYTES, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SyncGroupRequest(s.RequestBody["SyncGroupResponse"]):
    """*assignments* are the leader's; those of other members are empty."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id: int = s.field(s.INT32, "0+")
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")
    protocol_type: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = s.field(s.array(SyncGroupRequestAssignment), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SyncGroupResponse(s.Struct):
    """The member's part."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    protocol_type: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = s.field(s.BYTES, "0+")
