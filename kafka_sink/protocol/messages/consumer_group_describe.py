"""ConsumerGroupDescribe (key 69): the members of groups of the consumer protocol (KIP-848, KIP-1099)."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS

_VERSIONS = "0-1"
_FLEXIBLE = "0+"


class ConsumerGroupDescribeRequest(
    s.RequestBody["ConsumerGroupDescribeResponse"], versions=_VERSIONS, flexible=_FLEXIBLE
):
    """Groups that the broker asked coordinates."""

    group_ids: list[str] = s.field(s.Array(s.STRING), "0+")
    include_authorized_operations: bool = s.field(s.BOOL, "0+")


class TopicPartitions(s.Struct):
    topic_id: uuid.UUID = s.field(s.UUID, "0+")
    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.Array(s.INT32), "0+")


class Assignment(s.Struct):
    topic_partitions: list[TopicPartitions] = s.field(s.Array(TopicPartitions), "0+")


class Member(s.Struct):
    """A member, what it has and what it is to have; *member_type* is 1, and 0 for one of the classic protocol."""

    member_id: str = s.field(s.STRING, "0+")
    instance_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    rack_id: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    member_epoch: int = s.field(s.INT32, "0+")
    client_id: str = s.field(s.STRING, "0+")
    client_host: str = s.field(s.STRING, "0+")
    subscribed_topic_names: list[str] = s.field(s.Array(s.STRING), "0+")
    subscribed_topic_regex: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    assignment: Assignment = s.field(Assignment, "0+")
    target_assignment: Assignment = s.field(Assignment, "0+")
    member_type: int = s.field(s.INT8, "1+", default=-1, ignorable=True)


class DescribedGroup(s.Struct):
    """A group, or why it is not described."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    group_id: str = s.field(s.STRING, "0+")
    group_state: str = s.field(s.STRING, "0+")
    group_epoch: int = s.field(s.INT32, "0+")
    assignment_epoch: int = s.field(s.INT32, "0+")
    assignor_name: str = s.field(s.STRING, "0+")
    members: list[Member] = s.field(s.Array(Member), "0+")
    authorized_operations: int = s.field(s.INT32, "0+", default=NO_AUTHORIZED_OPERATIONS)


class ConsumerGroupDescribeResponse(s.Struct, versions=_VERSIONS, flexible=_FLEXIBLE):
    throttle_time_ms: int = s.field(s.INT32, "0+")
    groups: list[DescribedGroup] = s.field(s.Array(DescribedGroup), "0+")
