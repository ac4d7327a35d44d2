"""DescribeLogDirs (key 35): the directory of this broker with the sizes of its partitions (KIP-113, KIP-827)."""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(1, 5)


def handle(context: BrokerContext, request: ApiRequest[DescribeLogDirsRequest]) -> None:
    """Answer with the partitions of which this node has a replica; nodes share one directory."""
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except ApiError as error:
        request.respond(DescribeLogDirsResponse(error_code=error.code))
        return
    named = request.body.topics
    wanted = None if named is None else {(item.topic, index) for item in named for index in item.partitions}
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for name, topic in sorted(context.cluster.topics.items()):
        for index, partition in enumerate(topic.partitions):
            if context.node_id in partition.replicas and (wanted is None or (name, index) in wanted):
                log = context.logs.get(TopicPartition(name, index))
                size = 0 if log is None else log.size
                topics[name].append(DescribeLogDirsPartition(index, size, offset_lag=0, is_future_key=False))
    directory = context.logs.directory
    try:
        total, _, usable = shutil.disk_usage(directory)
    except OSError:
        total = usable = -1
    found = [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()]
    result = DescribeLogDirsResult(0, str(directory), found, total, usable)
    request.respond(DescribeLogDirsResponse(results=[result]))


API: Final = ApiHandler(ApiKey.DESCRIBE_LOG_DIRS, VERSIONS, handle)
