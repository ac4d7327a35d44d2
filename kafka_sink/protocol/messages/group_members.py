"""Requests of members of groups: of classic ones, and of those of the consumer protocol (KIP-848, KIP-1082)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s


class JoinGroupRequestProtocol(s.Struct):
    """A way to share the partitions out, and what the member says to it, in bytes of its own."""

    name: str = s.field(s.STRING, "0+")
    metadata: bytes = s.field(s.BYTES, "0+")


class JoinGroupRequest(s.RequestBody["JoinGroupResponse"], versions="0-9", flexible="6+"):
    """JoinGroup (key 11): become or stay a member of a group; the answer comes when all others have joined too.

    From version 4 on a member without an id is given one and asks again with it (KIP-394); 5 has static members
    (KIP-345).

    Times in ms; version 0 has no *rebalance_timeout_ms*, there the session time-out stands for it.
    """

    group_id: str = s.field(s.STRING, "0+")
    session_timeout_ms: int = s.field(s.INT32, "0+")
    rebalance_timeout_ms: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "5+", default=None, nullable="5+")
    protocol_type: str = s.field(s.STRING, "0+")
    protocols: list[JoinGroupRequestProtocol] = s.field(s.Array(JoinGroupRequestProtocol), "0+")
    reason: str | None = s.field(s.STRING, "8+", default=None, nullable="8+", ignorable=True)


class JoinGroupResponseMember(s.Struct):
    """A member as the leader is told of it."""

    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = s.field(s.BYTES, "0+")


class JoinGroupResponse(s.Struct, versions="0-9", flexible="6+"):
    """The new generation; only the leader is told the members."""

    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    generation_id: int = s.field(s.INT32, "0+", default=-1)
    protocol_type: str | None = s.field(s.STRING, "7+", default=None, nullable="7+", ignorable=True)
    protocol_name: str | None = s.field(s.STRING, "0+", nullable="7+")
    leader: str = s.field(s.STRING, "0+")
    skip_assignment: bool = s.field(s.BOOL, "9+", default=False)
    member_id: str = s.field(s.STRING, "0+")
    members: list[JoinGroupResponseMember] = s.field(s.Array(JoinGroupResponseMember), "0+")


class SyncGroupRequestAssignment(s.Struct):
    """One member's part, in bytes that only clients understand."""

    member_id: str = s.field(s.STRING, "0+")
    assignment: bytes = s.field(s.BYTES, "0+")


class SyncGroupRequest(s.RequestBody["SyncGroupResponse"], versions="0-5", flexible="4+"):
    """SyncGroup (key 14): the leader hands in who reads what, and every member is told its part. *assignments* are the
    leader's; those of other members are empty."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id: int = s.field(s.INT32, "0+")
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")
    protocol_type: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = s.field(s.Array(SyncGroupRequestAssignment), "0+")


class SyncGroupResponse(s.Struct, versions="0-5", flexible="4+"):
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    protocol_type: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    protocol_name: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    assignment: bytes = s.field(s.BYTES, "0+")


class HeartbeatRequest(s.RequestBody["HeartbeatResponse"], versions="0-4", flexible="4+"):
    """Heartbeat (key 12): a member of a group is still there. The member, and the generation it believes in."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id: int = s.field(s.INT32, "0+")
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")


class HeartbeatResponse(s.Struct, versions="0-4", flexible="4+"):
    """REBALANCE_IN_PROGRESS is the way a member learns that it has to join again."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")


class MemberIdentity(s.Struct):
    """A member by its id, or a static one by its instance id."""

    member_id: str = s.field(s.STRING, "3+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")
    reason: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(s.RequestBody["LeaveGroupResponse"], versions="0-5", flexible="4+"):
    """LeaveGroup (key 13): go out of a group, from version 3 on several members at once (KIP-345). *member_id* up to
    version 2, *members* from version 3 on."""

    group_id: str = s.field(s.STRING, "0+")
    member_id: str = s.field(s.STRING, "0-2")
    members: list[MemberIdentity] = s.field(s.Array(MemberIdentity), "3+")


class MemberResponse(s.Struct):
    member_id: str = s.field(s.STRING, "3+")
    group_instance_id: str | None = s.field(s.STRING, "3+", nullable="3+")
    error_code: int = s.field(s.INT16, "3+")


class LeaveGroupResponse(s.Struct, versions="0-5", flexible="4+"):
    """Up to version 2 *error_code* is that of the one member."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    members: list[MemberResponse] = s.field(s.Array(MemberResponse), "3+")


_VERSIONS = "0-1"
_FLEXIBLE = "0+"


class TopicPartitions(s.Struct):
    topic_id: uuid.UUID = s.field(s.UUID, "0+")
    partitions: list[int] = s.field(s.Array(s.INT32), "0+")


class ConsumerGroupHeartbeatRequest(
    s.RequestBody["ConsumerGroupHeartbeatResponse"], versions=_VERSIONS, flexible=_FLEXIBLE
):
    """What a member says of itself; null, and a rebalance time-out of −1, stand for "as in the last heartbeat".

    *member_epoch* is 0 to join, −1 to leave, −2 for a static member that comes back.
    """

    group_id: str = s.field(s.STRING, "0+")
    member_id: str = s.field(s.STRING, "0+")
    member_epoch: int = s.field(s.INT32, "0+")
    instance_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    rebalance_timeout_ms: int = s.field(s.INT32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = s.field(s.Array(s.STRING), "0+", default=None, nullable="0+")
    subscribed_topic_regex: str | None = s.field(s.STRING, "1+", default=None, nullable="1+")
    server_assignor: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    topic_partitions: list[TopicPartitions] | None = s.field(
        s.Array(TopicPartitions), "0+", default=None, nullable="0+"
    )


class Assignment(s.Struct):
    """All partitions that the member may use from now on."""

    topic_partitions: list[TopicPartitions] = s.field(s.Array(TopicPartitions), "0+")


class ConsumerGroupHeartbeatResponse(s.Throttled, versions=_VERSIONS, flexible=_FLEXIBLE):
    """The member's epoch, and its assignment if that has changed."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_epoch: int = s.field(s.INT32, "0+")
    heartbeat_interval_ms: int = s.field(s.INT32, "0+")
    assignment: Assignment | None = s.field(Assignment, "0+", default=None, nullable="0+")
