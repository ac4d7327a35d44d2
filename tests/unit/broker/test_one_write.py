"""All changes of a request are stored in one write, however many names it has: others do not wait for its disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode
from tests.support.cases import with_each
from tests.support.messages import request_body

MANY = 20
OLD = [f"old-{number}" for number in range(MANY)]
NEW = [f"new.{number}" for number in range(MANY)]
POLICY = ErrorCode.POLICY_VIOLATION


def entry(name: str, rate: float) -> Any:
    return ([("user", name)], [("producer_byte_rate", rate, False)])


REQUESTS: list[tuple[ApiKey, int, Struct]] = [
    (ApiKey.CREATE_TOPICS, 7, request_body(ApiKey.CREATE_TOPICS, [(name, 1, 1) for name in NEW])),
    (ApiKey.METADATA, 12, request_body(ApiKey.METADATA, [{"name": name} for name in NEW])),
    (ApiKey.CREATE_PARTITIONS, 3, request_body(ApiKey.CREATE_PARTITIONS, [(name, 3, None) for name in OLD], 1000)),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        request_body(ApiKey.INCREMENTAL_ALTER_CONFIGS, [(2, name, [("retention.ms", 0, "5")]) for name in OLD]),
    ),
    (ApiKey.ALTER_CLIENT_QUOTAS, 1, request_body(ApiKey.ALTER_CLIENT_QUOTAS, [entry(name, 5.0) for name in OLD])),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        request_body(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, upsertions=[(name, 1, 4096, b"salt", b"salted") for name in OLD]
        ),
    ),
    (ApiKey.ELECT_LEADERS, 2, request_body(ApiKey.ELECT_LEADERS, 0, [(name, [0]) for name in OLD])),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        request_body(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=[(name, [(0, [1])]) for name in OLD]),
    ),
    (ApiKey.DELETE_TOPICS, 6, request_body(ApiKey.DELETE_TOPICS, list(OLD))),
]


def world() -> tuple[BrokerNode, list[Path]]:
    """Two nodes, of which the second one leads all topics, and the list of later writes."""
    node = BrokerNode(2)
    for name in OLD:
        node.cluster.create_topic(name, assignment=[[2, 1]])
        node.cluster.reassign(node.cluster.topics[name].topic_partitions()[0], [1, 2])
    written: list[Path] = []
    replace = node.disk.replace_file

    def counted(path: Path, data: bytes) -> None:
        written.append(path)
        replace(path, data)

    node.disk.replace_file = counted  # type: ignore[method-assign]
    return node, written


@pytest.mark.behaviour("Admin APIs", "All that a request changes is stored in one write")
@with_each(("key", "version", "body"), REQUESTS)
def test_a_request_is_stored_in_one_write(key: ApiKey, version: int, body: Struct) -> None:
    node, written = world()
    before = node.cluster.image
    node.call(key, version, body)
    assert len(written) == 1 and node.cluster.image is not before


@with_each(("key", "version", "body"), REQUESTS)
def test_a_request_that_cannot_be_stored_changes_nothing(key: ApiKey, version: int, body: Struct) -> None:
    node, _ = world()
    before = node.cluster.image
    node.disk.read_only = True
    answer = node.call(key, version, body)
    assert node.cluster.image is before
    assert repr(answer).count(f"error_code={ErrorCode.KAFKA_STORAGE_ERROR:d}") == MANY


def created(node: BrokerNode, *topics: Any) -> list[int]:
    answer = node.call(ApiKey.CREATE_TOPICS, 7, list(topics))
    return [topic.error_code for topic in answer.topics]


def looked_up(node: BrokerNode, names: list[str]) -> set[int]:
    answer = node.call(ApiKey.METADATA, 12, [{"name": name} for name in names])
    return {topic.error_code for topic in answer.topics}


@pytest.mark.behaviour("Admin APIs", "A request creates 10,000 partitions at most, as in Kafka")
def test_a_request_creates_no_more_partitions_than_in_kafka() -> None:
    node = BrokerNode(num_partitions=100)
    assert created(node, ("a", 5000, 1), ("b", 5001, 1)) == [POLICY, POLICY]
    assert looked_up(node, [f"t{number}" for number in range(101)]) == {POLICY}
    assert node.cluster.topics == {}
    assert looked_up(node, [f"t{number}" for number in range(100)]) == {ErrorCode.NONE}
    assert len(node.cluster.topics) == 100


@with_each("rate", [float("nan"), float("inf"), -1.0, 0.0, 0.5, 1e30])
def test_a_quota_that_is_no_number_of_bytes_is_refused(rate: float) -> None:
    node, written = world()
    node.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, [entry("a", rate)])
    assert node.cluster.image.quotas == {} and written == []


def test_names_that_differ_in_dots_only_are_refused() -> None:
    node = BrokerNode()
    codes = created(node, *((name, 1, 1) for name in ("a.b", "a_b", "c")))
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
