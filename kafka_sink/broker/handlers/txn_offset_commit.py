"""TxnOffsetCommit (key 28): offsets of a group that are committed together with a transaction."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.coordinator.group_offsets import CommittedOffset
from kafka_sink.broker.coordinator.group_requests import Committer
from kafka_sink.broker.handlers.authorization import is_allowed, is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 5)


def handle(context: BrokerContext, request: ApiRequest[TxnOffsetCommitRequest]) -> None:
    """Store offsets of existing partitions if the transaction allows it; the others get an error code each."""
    body = request.body
    if is_refused(
        context, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id
    ) or is_refused(context, request, AclOperation.READ, ResourceType.GROUP, body.group_id):
        return
    allowed = {
        topic.name
        for topic in body.topics
        if is_allowed(context, request, AclOperation.READ, ResourceType.TOPIC, topic.name)
    }
    offsets = {
        TopicPartition(topic.name, partition.partition_index): CommittedOffset(
            partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or ""
        )
        for topic in body.topics
        for partition in topic.partitions
        if topic.name in allowed and context.has_partition(TopicPartition(topic.name, partition.partition_index))
    }
    outcomes = _commit(context, request, offsets) if offsets else {}
    topics = [
        TxnOffsetCommitResponseTopic(
            topic.name,
            [
                TxnOffsetCommitResponsePartition(
                    partition.partition_index,
                    outcomes.get(
                        TopicPartition(topic.name, partition.partition_index),
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        if topic.name in allowed
                        else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    ),
                )
                for partition in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    request.respond(TxnOffsetCommitResponse(topics=topics))


def _commit(
    context: BrokerContext, request: ApiRequest[TxnOffsetCommitRequest], offsets: dict[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    body = request.body
    try:
        groups = context.groups_for(body.group_id)
        if not body.group_id:
            raise ApiError("the group id must not be empty", ErrorCode.INVALID_GROUP_ID)
        committer = Committer(body.generation_id, body.member_id, body.group_instance_id)
        outcomes: dict[TopicPartition, ErrorCode] = {}
        refused = context.transactions.commit_offsets(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            body.group_id,
            request.version,
            lambda: outcomes.update(groups.commit_in_transaction(body.group_id, committer, body.producer_id, offsets)),
        )
        return dict.fromkeys(offsets, refused) if refused else outcomes
    except ApiError as error:
        return dict.fromkeys(offsets, error.code)


API: Final = ApiHandler(ApiKey.TXN_OFFSET_COMMIT, VERSIONS, handle)
