"""AdminClient against a real Kafka: its requests take effect, and its errors have the text of Kafka's refusals."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kafka_sink.client.blocking.admin import EARLIEST, LATEST, AdminClient
from kafka_sink.common.errors import ApiError, ErrorCode, InvalidTopicError, UnknownTopicOrPartitionError
from kafka_sink.common.model import TopicPartition
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka


@pytest.fixture
def admin(real_kafka: RealKafka) -> Iterator[AdminClient]:
    with AdminClient(real_kafka.bootstrap_servers, {"default.api.timeout.ms": 30_000}) as admin:
        yield admin


def test_a_topic_from_its_creation_to_its_end(admin: AdminClient) -> None:
    name = f"admin-{uuid.uuid4().hex}"
    admin.create_topic(name, 3, 1, {"retention.ms": "60000"})
    with pytest.raises(ApiError) as refused:
        admin.create_topic(name)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    # The controller responds before the brokers know the topic.
    until("the topic", lambda: name in admin.list_topics())
    described = admin.describe_topics([name])[name]
    assert described.topic_id is not None
    assert [(info.partition, info.leader) for info in described.partitions] == [
        (number, admin.cluster().controller) for number in range(3)
    ]
    partitions = [TopicPartition(name, number) for number in range(3)]
    for timestamp in (EARLIEST, LATEST, 0):
        assert admin.offsets(partitions, timestamp) == dict.fromkeys(partitions, 0)
    admin.delete_topics([name])
    until("the end of the topic", lambda: name not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError, match="does not exist"):
        admin.describe_topics([name])


def test_invalid_admin_requests_raise_kafkas_errors(admin: AdminClient) -> None:
    with pytest.raises(InvalidTopicError, match="bad/name"):
        admin.create_topic("bad/name", 1, 1)
    with pytest.raises(ApiError, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topic("too-many-replicas", 1, 9)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["never-there"])
    assert "never-there" not in admin.list_topics()
