"""ConsumerGroupHeartbeat (key 68): with which a member joins, stays in and leaves a group (KIP-848, KIP-1082)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s

_VERSIONS = "0-1"
_FLEXIBLE = "0+"


@s.struct
class TopicPartitions(s.Struct):
    """Partitions of one topic."""

    topic_id: uuid.UUID = s.field(s.UUID, "0+")
    partitions: list[int] = s.field(s.array(s.INT32), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ConsumerGroupHeartbeatRequest(s.RequestBody["ConsumerGroupHeartbeatResponse"]):
    """What a member says of itself; null, and a rebalance time-out of −1, stand for "as in the last heartbeat".

    *member_epoch* is 0 to join, −1 to leave, −2 for a static member that comes back.
    """

    group_id: str = s.field(s.STRING, "0+")
    member_id: str = s.field(s.STRING, "0+")
    member_epoch: int = s.field(s.INT32, "0+")
    instance_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = s.field(s.INT32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = s.field(s.array(s.STRING), "0+", default=None, nullable="0+")
    subscribed_topic_regex: str | None = s.field(s.STRING, "1+", default=None, nullable="1+")
    server_assignor: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = s.field(
        s.array(TopicPartitions), "0+", default=None, nullable="0+"
    )


@s.struct
class Assignment(s.Struct):
    """All partitions that the member may use from now on."""

    topic_partitions: list[TopicPartitions] = s.field(s.array(TopicPartitions), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ConsumerGroupHeartbeatResponse(s.Struct):
    """The member's epoch, and its assignment if that has changed."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_epoch: int = s.field(s.INT32, "0+")
    heartbeat_interval_ms: int = s.field(s.INT32, "0+")
    assignment: Assignment | None = s.field(Assignment, "0+", default=None, nullable="0+")
