"""A real Kafka is the reference for the rows that a topic's configuration refuses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from kafka_sink.errors import SinkWriteError
from kafka_sink.spark.driver.before_write import limits_of
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.task_writer import write_task
from tests.compat.kafka_version import requires_kafka
from tests.support.real_kafka import RealKafka

SETTINGS = {"cleanup.policy": "compact", "max.message.bytes": "1500", "message.timestamp.before.max.ms": "86400000"}
#: Bytes of the batch's header, and of a record with these keys and values without its value.
AROUND_VALUE = 61 + 10
NOW = datetime.now(UTC)
NOISE = random.Random(7).randbytes(5000)

pytestmark = requires_kafka("3.6", "limits of timestamps in the past and in the future (KIP-937)")


@pytest.fixture(scope="module")
def topic(real_kafka: RealKafka) -> str:
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        admin.create_topic("limits", 1, configs={**SETTINGS, "message.timestamp.after.max.ms": "3600000"})
    return "limits"


def refusal(
    servers: str, topic: str, row: Mapping[str, object], codec: str, *, is_asked: bool
) -> tuple[type[BaseException | None], str] | None:
    """Return the error that refuses *row*, and its text; with *is_asked* the task knows the topic's configuration."""
    given = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.compression.type": codec}
    options = parse_options(given)
    limits = limits_of(options.spec.producer, topic) if is_asked else {}
    columns = {"key": pa.array([row.get("key", b"k")], pa.binary()), "value": pa.array([row.get("value", b"v")])}
    if "timestamp" in row:
        columns["timestamp"] = pa.array([row["timestamp"]])
    try:
        write_task(
            iter([pa.record_batch(list(columns.values()), names=list(columns))]), replace(options.spec, limits=limits)
        )
    except SinkWriteError as error:
        return type(error.__cause__), str(error)
    return None


@pytest.mark.behaviour("Dead letters", "What is refused before it is sent is what a real Kafka refuses")
@pytest.mark.parametrize(
    ("row", "codec", "refused", "setting"),
    [
        ({}, "none", None, ""),
        ({"key": None}, "none", InvalidRecordError, "cleanup.policy"),
        ({"timestamp": NOW + timedelta(minutes=50)}, "none", None, ""),
        ({"timestamp": NOW + timedelta(hours=2)}, "none", InvalidTimestampError, "message.timestamp.after.max.ms"),
        ({"timestamp": NOW - timedelta(hours=23)}, "none", None, ""),
        ({"timestamp": NOW - timedelta(days=2)}, "none", InvalidTimestampError, "message.timestamp.before.max.ms"),
        ({"value": b"x" * (1500 - AROUND_VALUE)}, "none", None, ""),
        ({"value": b"x" * (1501 - AROUND_VALUE)}, "none", RecordTooLargeError, "max.message.bytes"),
        ({"value": b"x" * 5000}, "zstd", None, ""),
        ({"value": NOISE}, "zstd", RecordTooLargeError, "max.message.bytes"),
        ({"value": NOISE}, "lz4", RecordTooLargeError, "max.message.bytes"),
    ],
)
def test_what_the_settings_refuse_is_what_the_brokers_refuse(
    real_kafka: RealKafka,
    topic: str,
    row: Mapping[str, object],
    codec: str,
    refused: type[BaseException] | None,
    setting: str,
) -> None:
    answer = refusal(real_kafka.bootstrap_servers, topic, row, codec, is_asked=False)
    before = refusal(real_kafka.bootstrap_servers, topic, row, codec, is_asked=True)
    if refused is None:
        assert answer is None and before is None
        return
    assert answer is not None and before is not None
    assert answer[0] is refused and setting in answer[1] and "limits-0" in answer[1]
    assert "row 0 of this task" in before[1] and setting in before[1] and "topic limits" in before[1]
