"""Findings from the responses about a topic: permissions, configuration and replicas."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_sink.common.config import parse
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.preflight.cluster_steps import READ, WRITE, TopicSteps
from kafka_sink.preflight.connection_steps import ConnectionSteps
from kafka_sink.preflight.findings import Finding, Status, run_steps
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.protocol.messages.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafka_sink.protocol.messages.metadata import (
    NO_AUTHORIZED_OPERATIONS,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.support.cases import with_each

DESCRIBE = 1 << 8


def findings(
    *,
    operations: int = READ | WRITE,
    settings: Mapping[str, str] | None = None,
    isr: int = 1,
    code: ErrorCode = ErrorCode.NONE,
    properties: Mapping[str, str] | None = None,
) -> dict[str, Finding]:
    """The findings of all steps of the topic "t", by step; *settings* None = not visible."""
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=1 if isr else -1, replica_nodes=[1], isr_nodes=[*range(1, isr + 1)]
    )
    topic = MetadataResponseTopic(
        error_code=code, name="t", partitions=[partition], topic_authorized_operations=operations
    )
    described = [DescribeConfigsResourceResult(name=name, value=value) for name, value in (settings or {}).items()]
    answer = DescribeConfigsResponse(results=[DescribeConfigsResult(configs=described)])
    given = {"bootstrap.servers": "127.0.0.1:9092", **(properties or {})}
    connection = SimpleNamespace(
        metadata=MetadataResponse(topics=[topic]),
        nodes=[Node(1, "127.0.0.1", 9092)],
        client=SimpleNamespace(request=lambda *_, **__: answer),
        config=parse(ProducerConfig, given),
        timeout_ms=1000,
        is_given=given.__contains__,
    )
    steps = TopicSteps("t", cast(ConnectionSteps, connection), (WRITE, READ), may_be_created=False).steps()
    # The steps of the cluster, which these depend on, are not run.
    return {each.step: each for each in run_steps(steps, "here")}


@pytest.mark.behaviour("kafkalite check", "Missing permissions on the topic are found in what Metadata reports")
@pytest.mark.parametrize(("operations", "lacking"), [(DESCRIBE, "WRITE and READ"), (WRITE, "READ"), (READ, "WRITE")])
def test_missing_operations(operations: int, lacking: str) -> None:
    found = findings(operations=operations)["permissions"]
    assert (found.status, found.found) == (Status.FAILED, f"this principal lacks {lacking}")
    assert f"grant {lacking}: kafka-acls" in found.what_to_do


def test_brokers_that_do_not_report_permissions() -> None:
    assert findings(operations=NO_AUTHORIZED_OPERATIONS)["permissions"].status is Status.WARNING


def test_settings_that_are_not_visible() -> None:
    found = findings()["settings"]
    assert (found.status, found.found) == (Status.WARNING, "not visible")
    assert "DESCRIBE_CONFIGS" in found.what_to_do


@pytest.mark.parametrize(("given", "status"), [({}, Status.WARNING), ({"max.request.size": "1048576"}, Status.FAILED)])
def test_record_size_fails_only_where_it_was_asked_for(given: Mapping[str, str], status: Status) -> None:
    found = findings(settings={"max.message.bytes": "1000"}, properties=given)["record size"]
    assert found.status is status
    assert "refuse records over 1000 bytes" in found.what_to_do


@pytest.mark.parametrize("value", ["", "1MB", "-1", "9" * 5000])
def test_a_setting_that_is_no_number_is_told(value: str) -> None:
    found = findings(settings={"max.message.bytes": value, "min.insync.replicas": value})
    size = found["record size"]
    assert (size.status, size.what_to_do) == (Status.WARNING, "ask the cluster's administrator to correct it")
    assert "is not a number" in size.found
    assert len(size.found) < 80
    assert "replicas" not in found


@with_each(
    ("topic", "ours", "status"),
    [
        ("producer", "zstd", Status.OK),
        ("zstd", "zstd", Status.OK),
        ("uncompressed", "none", Status.OK),
        ("gzip", "zstd", Status.WARNING),
        ("uncompressed", "zstd", Status.WARNING),
    ],
)
def test_codecs(topic: str, ours: str, status: Status) -> None:
    found = findings(settings={"compression.type": topic}, properties={"compression.type": ours})["codec"]
    assert found.status is status


def test_compaction_and_time_of_append_are_told() -> None:
    found = findings(settings={"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"})
    assert found["cleanup"].status is Status.WARNING
    assert "replace the timestamps" in found["timestamps"].found


@pytest.mark.behaviour("kafkalite check", "Settings by which brokers refuse rows are shown beside their columns")
def test_settings_that_refuse_rows_name_the_columns() -> None:
    found = findings(
        settings={
            "max.message.bytes": "2000000",
            "cleanup.policy": "compact",
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": "86400000",
            "message.timestamp.after.max.ms": "3600000",
        }
    )
    assert found["record size"].found.startswith("columns key, value and headers: max.message.bytes=2000000")
    assert found["cleanup"].found == "column key: cleanup.policy=compact"
    assert found["timestamps"].found == (
        "column timestamp: message.timestamp.type=CreateTime, at most 86400000 ms before the time of the write "
        "(message.timestamp.before.max.ms), at most 3600000 ms after the time of the write "
        "(message.timestamp.after.max.ms)"
    )


@pytest.mark.parametrize(("acks", "step"), [("all", True), ("1", False)])
def test_too_few_replicas_matter_where_all_must_acknowledge(acks: str, step: bool) -> None:
    found = findings(settings={"min.insync.replicas": "2"}, properties={"acks": acks})
    assert ("replicas" in found) is step
    if step:
        assert (found["replicas"].status, found["replicas"].what_to_do) == (
            Status.FAILED,
            "start the brokers that have their replicas",
        )


def test_partition_without_leader() -> None:
    found = findings(isr=0)["topic"]
    assert (found.status, found.found) == (Status.FAILED, "1 partition, of which 1 have no leader, such as 0")


def test_name_that_is_not_legal() -> None:
    found: Any = findings(code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert (found["topic"].status, found["topic"].what_to_do) == (Status.FAILED, "check the name of the topic")
