"""Heartbeat (key 12): a member of a group is still there."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-4"
_FLEXIBLE = "4+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class HeartbeatRequest(s.RequestBody["HeartbeatResponse"]):
    """The member, and the generation it believes in."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id: int = s.field(s.INT32, "0+")
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class HeartbeatResponse(s.Struct):
    """REBALANCE_IN_PROGRESS is the way a member learns that it has to join again."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
