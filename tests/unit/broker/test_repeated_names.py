"""A request that repeats a name many times gets no response that is many times as large, and costs no more."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.log_offsets import LATEST_TIMESTAMP
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode
from tests.support.cases import with_each
from tests.support.messages import request_body

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
            request_body(ApiKey.METADATA, [{"name": "t"}]),
            request_body(ApiKey.METADATA, [{"name": "t"}] * MANY),
        ),
        (
            ApiKey.DESCRIBE_CONFIGS,
            1,
            request_body(ApiKey.DESCRIBE_CONFIGS, [(4, "1", None)]),
            request_body(ApiKey.DESCRIBE_CONFIGS, [(4, "1", None)] * MANY),
        ),
        (
            ApiKey.FIND_COORDINATOR,
            4,
            request_body(ApiKey.FIND_COORDINATOR, coordinator_keys=["g"]),
            request_body(ApiKey.FIND_COORDINATOR, coordinator_keys=["g"] * MANY),
        ),
        (
            ApiKey.ELECT_LEADERS,
            2,
            request_body(ApiKey.ELECT_LEADERS, 0, [("t", [0, 9])]),
            request_body(ApiKey.ELECT_LEADERS, 0, [("t", [0, *[9] * MANY])]),
        ),
        (
            ApiKey.DELETE_GROUPS,
            2,
            request_body(ApiKey.DELETE_GROUPS, ["g"]),
            request_body(ApiKey.DELETE_GROUPS, ["g"] * MANY),
        ),
        (
            ApiKey.DESCRIBE_GROUPS,
            5,
            request_body(ApiKey.DESCRIBE_GROUPS, ["g"]),
            request_body(ApiKey.DESCRIBE_GROUPS, ["g"] * MANY),
        ),
        (
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            1,
            request_body(ApiKey.CONSUMER_GROUP_DESCRIBE, ["g"], include_authorized_operations=False),
            request_body(ApiKey.CONSUMER_GROUP_DESCRIBE, ["g"] * MANY, include_authorized_operations=False),
        ),
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            0,
            request_body(ApiKey.DESCRIBE_TRANSACTIONS, ["i"]),
            request_body(ApiKey.DESCRIBE_TRANSACTIONS, ["i"] * MANY),
        ),
        (
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            request_body(ApiKey.DESCRIBE_PRODUCERS, [("t", [0, 1])]),
            request_body(ApiKey.DESCRIBE_PRODUCERS, [("t", [0, 1, 0]), ("t", [1] * MANY)] * MANY),
        ),
        (
            ApiKey.OFFSET_FETCH,
            8,
            request_body(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": None}]),
            request_body(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": None}] * MANY),
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
    asked = [{"partition_index": index, "timestamp": LATEST_TIMESTAMP} for index in (0, 1, 1)]
    answer = node.call(ApiKey.LIST_OFFSETS, 5, topics=[("t", asked)])
    codes = [partition.error_code for partition in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_a_marker_is_written_once_however_often_it_is_named() -> None:
    node = BrokerNode()
    node.cluster.create_topic("t", 1, 1)
    topic = node.context.topic("t")
    marker = {"producer_id": 1, "topics": [("t", [0, 0])] * MANY}
    answer = node.call(ApiKey.WRITE_TXN_MARKERS, 1, [marker])
    codes = [each.error_code for of_topic in answer.markers[0].topics for each in of_topic.partitions]
    assert codes == [ErrorCode.NONE] * 2 * MANY
    assert node.context.log_of(topic, 0).end_offset == 1
