"""The wait for a topic before a job."""

from __future__ import annotations

import pytest

from kafka_sink.client.blocking.blocking import Pause, Round, Tries
from kafka_sink.common.clock import ExponentialBackoff
from kafka_sink.common.errors import (
    BrokersUnreachableError,
    ErrorCode,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_sink.producer.job_topics import require_topic
from kafka_sink.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from tests.fakes.clock import FakeClock

MISSING = MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders")])
LATE = KafkaTimeoutError("broker 1 did not answer METADATA within 5 ms")


UNREACHABLE = BrokersUnreachableError("no broker could be reached within 290 ms: localhost:9092: refused")


@pytest.mark.parametrize(
    ("was_missing", "last", "expected", "text"),
    [
        (True, LATE, UnknownTopicOrPartitionError, "not present in metadata after 300 ms"),
        (False, LATE, KafkaTimeoutError, "did not answer"),
        (True, UNREACHABLE, BrokersUnreachableError, "no broker could be reached"),
    ],
)
def test_a_topic_is_missing_also_if_the_last_try_is_too_short(
    was_missing: bool, last: KafkaTimeoutError, expected: type[Exception], text: str
) -> None:
    tries = Tries(FakeClock(), ExponentialBackoff(100, 1000), 300)
    waiting = require_topic("orders", lambda: tries)
    assert isinstance(waiting.send(None), Round)
    if was_missing:
        assert isinstance(waiting.send([MISSING]), Pause)
        assert isinstance(waiting.send(None), Round)
    with pytest.raises(expected, match=text):
        waiting.send([last])
