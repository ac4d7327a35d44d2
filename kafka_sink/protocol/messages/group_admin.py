"""Requests of operators that list, describe and delete groups."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS


class ListGroupsRequest(s.RequestBody["ListGroupsResponse"], versions="0-5", flexible="3+"):
    """ListGroups (key 16): the groups that a broker coordinates (KIP-518, KIP-848). Empty filters select all."""

    states_filter: list[str] = s.field(s.Array(s.STRING), "4+")
    types_filter: list[str] = s.field(s.Array(s.STRING), "5+")


class ListedGroup(s.Struct):
    group_id: str = s.field(s.STRING, "0+")
    protocol_type: str = s.field(s.STRING, "0+")
    group_state: str = s.field(s.STRING, "4+", ignorable=True)
    group_type: str = s.field(s.STRING, "5+", ignorable=True)


class ListGroupsResponse(s.Struct, versions="0-5", flexible="3+"):
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    groups: list[ListedGroup] = s.field(s.Array(ListedGroup), "0+")


class DescribeGroupsRequest(s.RequestBody["DescribeGroupsResponse"], versions="0-6", flexible="5+"):
    """DescribeGroups (key 15): the members and assignments of groups, which the receiving broker must
    coordinate."""

    groups: list[str] = s.field(s.Array(s.STRING), "0+")
    include_authorized_operations: bool = s.field(s.BOOL, "3+")


class DescribedGroupMember(s.Struct):
    """A member; the metadata is that of the selected protocol. Clients define the content of both byte strings."""

    member_id: str = s.field(s.STRING, "0+")
    group_instance_id: str | None = s.field(s.STRING, "4+", default=None, nullable="4+", ignorable=True)
    client_id: str = s.field(s.STRING, "0+")
    client_host: str = s.field(s.STRING, "0+")
    member_metadata: bytes = s.field(s.BYTES, "0+")
    member_assignment: bytes = s.field(s.BYTES, "0+")


class DescribedGroup(s.Struct):
    """A group; the state of an unknown one is Dead, up to version 5 without an error."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "6+", default=None, nullable="6+")
    group_id: str = s.field(s.STRING, "0+")
    group_state: str = s.field(s.STRING, "0+")
    protocol_type: str = s.field(s.STRING, "0+")
    protocol_data: str = s.field(s.STRING, "0+")
    members: list[DescribedGroupMember] = s.field(s.Array(DescribedGroupMember), "0+")
    authorized_operations: int = s.field(s.INT32, "3+", default=NO_AUTHORIZED_OPERATIONS)


class DescribeGroupsResponse(s.Struct, versions="0-6", flexible="5+"):
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = s.field(s.Array(DescribedGroup), "0+")


class ConsumerGroupDescribeRequest(s.RequestBody["ConsumerGroupDescribeResponse"], versions="0-1", flexible="0+"):
    """ConsumerGroupDescribe (key 69): the members of groups of the consumer protocol (KIP-848, KIP-1099)."""

    group_ids: list[str] = s.field(s.Array(s.STRING), "0+")
    include_authorized_operations: bool = s.field(s.BOOL, "0+")


class TopicPartitions(s.Struct):
    topic_id: uuid.UUID = s.field(s.UUID, "0+")
    topic_name: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.Array(s.INT32), "0+")


class Assignment(s.Struct):
    topic_partitions: list[TopicPartitions] = s.field(s.Array(TopicPartitions), "0+")


class Member(s.Struct):
    """A member, its assignment and target assignment; *member_type* 1 = consumer protocol, 0 = classic protocol."""

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


class DescribedConsumerGroup(s.Struct):
    """A group, or the error of its description."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", default=None, nullable="0+")
    group_id: str = s.field(s.STRING, "0+")
    group_state: str = s.field(s.STRING, "0+")
    group_epoch: int = s.field(s.INT32, "0+")
    assignment_epoch: int = s.field(s.INT32, "0+")
    assignor_name: str = s.field(s.STRING, "0+")
    members: list[Member] = s.field(s.Array(Member), "0+")
    authorized_operations: int = s.field(s.INT32, "0+", default=NO_AUTHORIZED_OPERATIONS)


class ConsumerGroupDescribeResponse(s.Throttled, versions="0-1", flexible="0+"):
    groups: list[DescribedConsumerGroup] = s.field(s.Array(DescribedConsumerGroup), "0+")


class DeleteGroupsRequest(s.RequestBody["DeleteGroupsResponse"], versions="0-2", flexible="2+"):
    """DeleteGroups (key 42): delete groups without members, and their offsets (KIP-229). The receiving broker must
    coordinate them."""

    groups_names: list[str] = s.field(s.Array(s.STRING), "0+")


class DeletableGroupResult(s.Struct):
    group_id: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")


class DeleteGroupsResponse(s.Throttled, versions="0-2", flexible="2+"):
    results: list[DeletableGroupResult] = s.field(s.Array(DeletableGroupResult), "0+")
