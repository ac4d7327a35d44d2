"""The requests of group members: of the classic protocol, and of the one of KIP-848."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kafka_sink.broker.coordinator.consumer_group import TopicIdPartition
from kafka_sink.broker.coordinator.consumer_groups import ConsumerHeartbeat
from kafka_sink.broker.coordinator.group_metadata import JoinRequest, JoinResult, Leaving, SyncRequest, SyncResult
from kafka_sink.broker.handlers.context import ApiRequest, api_handler
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import group_members as m

_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_FIRST_WITH_KNOWN_IDS: Final = 4
_FIRST_WITH_NULL_PROTOCOL: Final = 7
_FIRST_THAT_SKIPS_ASSIGNMENT: Final = 9


@api_handler(ApiKey.JOIN_GROUP, "0-9")
def join_group(request: ApiRequest[m.JoinGroupRequest]) -> None:
    """JoinGroup (key 11): a client joins or rejoins a group; it is answered when all other members have joined too."""
    body, version = request.body, request.version
    longer = version >= _FIRST_WITH_REBALANCE_TIMEOUT
    join_request = JoinRequest(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        request.client_id,
        request.client_host,
        body.rebalance_timeout_ms if longer else body.session_timeout_ms,
        body.session_timeout_ms,
        body.protocol_type,
        {protocol.name: bytes(protocol.metadata) for protocol in body.protocols},
        version >= _FIRST_WITH_KNOWN_IDS,
        version >= _FIRST_THAT_SKIPS_ASSIGNMENT,
        body.reason or "not provided",
    )

    def answer(result: JoinResult) -> None:
        request.respond(_response(result, version))

    try:
        request.require(AclOperation.READ, ResourceType.GROUP, body.group_id)
    except ApiError as error:
        answer(JoinResult(error.code, ""))
        return
    try:
        groups = request.broker.groups_for(body.group_id)
    except ApiError as error:
        answer(JoinResult(error.code, body.member_id))
        return
    groups.join(join_request, answer)


def _response(result: JoinResult, version: int) -> m.JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return m.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            m.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


_FIRST_WITH_PROTOCOL: Final = 5


@api_handler(ApiKey.SYNC_GROUP, "0-5")
def sync_group(request: ApiRequest[m.SyncGroupRequest]) -> None:
    """SyncGroup (key 14): the leader sends the assignments, and every member receives its own."""
    body = request.body

    def answer(result: SyncResult) -> None:
        request.respond(
            m.SyncGroupResponse(
                error_code=result.error,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    if request.version >= _FIRST_WITH_PROTOCOL and None in (body.protocol_type, body.protocol_name):
        answer(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    groups = request.permitted_groups(AclOperation.READ, body.group_id)
    sync_request = SyncRequest(
        body.group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id,
        body.protocol_type,
        body.protocol_name,
        {assignment.member_id: bytes(assignment.assignment) for assignment in body.assignments},
    )
    groups.sync(sync_request, answer)


@api_handler(ApiKey.HEARTBEAT, "0-4")
def heartbeat(request: ApiRequest[m.HeartbeatRequest]) -> None:
    """Heartbeat (key 12): extends the session of a group member; the answer tells it whether it has to join again."""
    body = request.body
    groups = request.permitted_groups(AclOperation.READ, body.group_id)
    groups.heartbeat(body.group_id, body.member_id, body.group_instance_id, body.generation_id)
    request.respond(m.HeartbeatResponse(error_code=ErrorCode.NONE))


_FIRST_WITH_SEVERAL: Final = 3


@api_handler(ApiKey.LEAVE_GROUP, "0-5")
def leave_group(request: ApiRequest[m.LeaveGroupRequest]) -> None:
    """LeaveGroup (key 13): removes members, at their own or an administrator's request (version 3 and up)."""
    body = request.body
    several = request.version >= _FIRST_WITH_SEVERAL
    members = body.members if several else [m.MemberIdentity(member_id=body.member_id)]
    leaving = [
        Leaving(member.member_id, member.group_instance_id, member.reason or "not provided") for member in members
    ]
    outcomes = request.permitted_groups(AclOperation.READ, body.group_id).leave(body.group_id, leaving)
    if not several:
        request.respond(m.LeaveGroupResponse(error_code=outcomes[0]))
        return
    results = [
        m.MemberResponse(member.member_id, member.group_instance_id, code)
        for member, code in zip(members, outcomes, strict=True)
    ]
    request.respond(m.LeaveGroupResponse(members=results))


_FIRST_WITH_OWN_IDS: Final = 1


@api_handler(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1")
def consumer_group_heartbeat(request: ApiRequest[m.ConsumerGroupHeartbeatRequest]) -> None:
    """ConsumerGroupHeartbeat (key 68): a member of a group joins, stays in it or leaves it (KIP-848)."""
    body = request.body
    request.require(AclOperation.READ, ResourceType.GROUP, body.group_id)

    def may_describe(topic: str) -> bool:
        return request.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)

    for name in body.subscribed_topic_names or ():
        if not may_describe(name):
            raise request.refusal(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    heartbeat = ConsumerHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=frozenset(body.subscribed_topic_names) if body.subscribed_topic_names is not None else None,
        topic_regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=_owned(body.topic_partitions) if body.topic_partitions is not None else None,
        client_id=request.client_id,
        client_host=request.client_host,
        may_describe=may_describe,
        names_itself=request.version >= _FIRST_WITH_OWN_IDS,
    )
    result = request.broker.groups_for(body.group_id).consumer_heartbeat(heartbeat)
    request.respond(
        m.ConsumerGroupHeartbeatResponse(
            member_id=result.member_id,
            member_epoch=result.epoch,
            # A member that leaves sends no more heartbeats.
            heartbeat_interval_ms=request.broker.config.group_consumer_heartbeat_interval_ms
            if result.epoch >= 0
            else 0,
            assignment=m.Assignment(_by_topic(result.assignment)) if result.assignment is not None else None,
        )
    )


def _owned(topics: Iterable[m.TopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, index) for topic in topics for index in topic.partitions)


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[m.TopicPartitions]:
    return [
        m.TopicPartitions(topic_id, [partition.partition for partition in of_topic])
        for topic_id, of_topic in groupby(sorted(partitions), key=lambda partition: partition.topic_id)
    ]
