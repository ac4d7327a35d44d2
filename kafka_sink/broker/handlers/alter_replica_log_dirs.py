"""AlterReplicaLogDirs (key 34): accepts the directory that a replica lies in; there is no other one (KIP-113)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 2)


def handle(context: BrokerContext, request: ApiRequest[AlterReplicaLogDirsRequest]) -> None:
    """Answer for each partition."""
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return
    results = [
        AlterReplicaLogDirTopicResult(
            topic.name,
            [
                AlterReplicaLogDirPartitionResult(index, _outcome(context, directory.path, topic.name, index))
                for index in topic.partitions
            ],
        )
        for directory in request.body.dirs
        for topic in directory.topics
        if topic.partitions
    ]
    request.respond(AlterReplicaLogDirsResponse(results=results))


def _outcome(context: BrokerContext, path: str, topic: str, index: int) -> ErrorCode:
    if path != str(context.logs.directory):
        return ErrorCode.LOG_DIR_NOT_FOUND
    is_there = context.has_partition(TopicPartition(topic, index))
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API: Final = ApiHandler(ApiKey.ALTER_REPLICA_LOG_DIRS, VERSIONS, handle)
