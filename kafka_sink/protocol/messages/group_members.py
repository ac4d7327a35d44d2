"""Requests of members of groups: of the classic protocol, and of the consumer protocol (KIP-848, KIP-1082)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s


class JoinGroupRequestProtocol(s.Struct):
    """An assignment strategy that the member supports, and the member's metadata for it."""

    name: str = s.field(s.STRING, "0+")
    metadata: bytes = s.field(s.BYTES, "0+")


class JoinGroupRequest(s.RequestBody["JoinGroupResponse"], versions="0-9", flexible="6+"):
    """JoinGroup (key 11): join a group, or rejoin it; the response is sent when all members have joined.

    From version 4 on a member without an id receives one and joins again with it (KIP-394); version 5 has static
    members (KIP-345).

    Times in ms; version 0 has no *rebalance_timeout_ms*, and the session time-out applies instead.
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
    """A member and its metadata, for the leader."""

    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)
    metadata: bytes = s.field(s.BYTES, "0+")


class JoinGroupResponse(s.Struct, versions="0-9", flexible="6+"):
    """The new generation; only the leader receives the members."""

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
    """The assignment of one member, whose encoding clients define."""

    member_id: str = s.field(s.STRING, "0+")
    assignment: bytes = s.field(s.BYTES, "0+")


class SyncGroupRequest(s.RequestBody["SyncGroupResponse"], versions="0-5", flexible="4+"):
    """SyncGroup (key 14): the leader sends the assignments of all members, and every member receives its own. Other
    members send empty *assignments*."""

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
    """Heartbeat (key 12): keeps a member of a group alive. The member, and the generation that it knows."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id: int = s.field(s.INT32, "0+")
    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")


class HeartbeatResponse(s.Struct, versions="0-4", flexible="4+"):
    """After REBALANCE_IN_PROGRESS the member has to join again."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")


class MemberIdentity(s.Struct):
    """A member by its id, or a static one by its instance id."""

    member_id: str = s.field(s.STRING, "3+")
    group_instance_id: str | None = s.field(s.STRING, "3+", default=None, nullable="3+")
    reason: str | None = s.field(s.STRING, "5+", default=None, nullable="5+", ignorable=True)


class LeaveGroupRequest(s.RequestBody["LeaveGroupResponse"], versions="0-5", flexible="4+"):
    """LeaveGroup (key 13): leave a group, from version 3 on several members at once (KIP-345). *member_id* up to
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
    """The state of a member; null, and a rebalance time-out of −1, mean "unchanged since the last heartbeat".

    *member_epoch* is 0 to join, −1 to leave, −2 if a static member leaves and will rejoin.
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
    """All partitions that are assigned to the member."""

    topic_partitions: list[TopicPartitions] = s.field(s.Array(TopicPartitions), "0+")


class ConsumerGroupHeartbeatResponse(s.Throttled, versions=_VERSIONS, flexible=_FLEXIBLE):
    """The member's epoch, and its assignment if that has changed."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_epoch: int = s.field(s.INT32, "0+")
    heartbeat_interval_ms: int = s.field(s.INT32, "0+")
    assignment: Assignment | None = s.field(Assignment, "0+", default=None, nullable="0+")
