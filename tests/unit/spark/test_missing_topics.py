"""topicPartitions: the missing topics that a write creates, and the next check of a stream."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from kafka_sink import EmbeddedCluster
from kafka_sink.admin import AdminClient
from kafka_sink.spark.driver import before_write
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.options import parse_options
from tests.fakes.clock import FakeClock

ROWS = StructType().add("value", "string")

pytestmark = pytest.mark.behaviour("Sink options and commit messages", "topicPartitions creates a missing topic, once")


def topics_after_write(cluster: EmbeddedCluster) -> set[str]:
    options = {"topic": "orders", "deadLetterTopic": "rejected", "topicPartitions": "1"}
    prepared(ROWS, parse_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}))
    with AdminClient(cluster.bootstrap_servers) as admin:
        return set(admin.list_topics())


@pytest.mark.behaviour("Dead letters", "topicPartitions creates the dead letter topic too")
def test_topics_are_created_in_each_cluster_and_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(before_write, "SYSTEM_CLOCK", clock)
    with EmbeddedCluster(auto_create_topics=False) as first, EmbeddedCluster(auto_create_topics=False) as second:
        assert topics_after_write(first) == {"orders", "rejected"}
        assert topics_after_write(second) == {"orders", "rejected"}
        first.delete_topic("orders")
        clock.advance(59_999)
        assert topics_after_write(first) == {"rejected"}
        clock.advance(1)
        assert topics_after_write(first) == {"orders", "rejected"}
