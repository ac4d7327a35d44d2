"""A request that names one thing many times gets no response that is many times as large, and costs no more."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from kafka_sink.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_sink.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_sink.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from kafka_sink.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from kafka_sink.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_sink.protocol.messages.replicas import ElectLeadersRequest, TopicPartitions
from kafka_sink.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour(
    "Faults: hostile clients",
    "A request that names one thing many times gets a response as small as if it named it once",
)

MANY = 300


@with_each(
    ("key", "version", "once", "often"),
    [
        (
            ApiKey.METADATA,
            1,
            MetadataRequest([MetadataRequestTopic(name="t")]),
            MetadataRequest([MetadataRequestTopic(name="t")] * MANY),
        ),
        (
            ApiKey.DESCRIBE_CONFIGS,
            1,
            DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)]),
            DescribeConfigsRequest([DescribeConfigsResource(4, "1", None)] * MANY),
        ),
        (
            ApiKey.FIND_COORDINATOR,
            4,
            FindCoordinatorRequest(coordinator_keys=["g"]),
            FindCoordinatorRequest(coordinator_keys=["g"] * MANY),
        ),
        (
            ApiKey.ELECT_LEADERS,
            2,
            ElectLeadersRequest(0, [TopicPartitions("t", [0, 9])]),
            ElectLeadersRequest(0, [TopicPartitions("t", [0, *[9] * MANY])]),
        ),
        (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(["g"]), DeleteGroupsRequest(["g"] * MANY)),
        (ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(["g"]), DescribeGroupsRequest(["g"] * MANY)),
        (
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            1,
            ConsumerGroupDescribeRequest(["g"], include_authorized_operations=False),
            ConsumerGroupDescribeRequest(["g"] * MANY, include_authorized_operations=False),
        ),
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            DescribeTransactionsRequest(["i"]),
            DescribeTransactionsRequest(["i"] * MANY),
        ),
        (
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            DescribeProducersRequest([TopicRequest("t", [0, 1])]),
            DescribeProducersRequest([TopicRequest("t", [0, 1, 0]), TopicRequest("t", [1] * MANY)] * MANY),
        ),
        (
            ApiKey.OFFSET_FETCH,
            8,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]),
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * MANY),
        ),
    ],
)
def test_a_repeated_name_is_answered_once(key: ApiKey, version: int, once: Struct, often: Struct) -> None:
    node = BrokerNode()
    node.cluster.create_topic("t", 2, 1)
    assert node.call(key, version, often) == node.call(key, version, once)


def test_a_partition_that_is_named_twice_has_no_offsets() -> None:
    node = BrokerNode()
    node.cluster.create_topic("t", 2, 1)
    asked = [ListOffsetsPartition(index, timestamp=LATEST_TIMESTAMP) for index in (0, 1, 1)]
    answer = node.call(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(topics=[ListOffsetsTopic("t", asked)]))
    assert isinstance(answer, ListOffsetsResponse)
    codes = [partition.error_code for partition in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
