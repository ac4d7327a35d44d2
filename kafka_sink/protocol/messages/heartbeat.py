"""Heartbeat (key 12): a member of a group is still there."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT16, INT32, STRING, RequestBody, Struct, field, message

_VERSIONS = "0-4"
_FLEXIBLE = "4+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class HeartbeatRequest(RequestBody["HeartbeatResponse"]):
    """The member, and the generation it believes in."""

    group_id: str = field(STRING, "0+")
    generation_id: int = field(INT32, "0+")
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "3+", default=None, nullable="3+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class HeartbeatResponse(Struct):
    """REBALANCE_IN_PROGRESS is the way a member learns that it has to join again."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0+")
