"""SyncGroup (key 14): the leader hands in who reads what, and every member is told its part."""

from __future__ import annotations

from kafka_sink.protocol.schema import BYTES, INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-5"
_FLEXIBLE = "4+"


@struct
class SyncGroupRequestAssignment(Struct):
    """One member's part, in bytes that only clients understand."""

    member_id: str = field(STRING, "0+")
    assignment: bytes = field(BYTES, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SyncGroupRequest(RequestBody["SyncGroupResponse"]):
    """*assignments* are the leader's; those of other members are empty."""

    group_id: str = field(STRING, "0+")
    generation_id: int = field(INT32, "0+")
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")
    protocol_type: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class SyncGroupResponse(Struct):
    """The member's part."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0+")
    protocol_type: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = field(STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = field(BYTES, "0+")
