"""The referee itself: the Kafka that the tests of this folder are judged by is up, and is the one we mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from tests.compat.kafka_version import VERSION

if TYPE_CHECKING:
    from tests.compat.conftest import RealKafka


def test_one_broker_answers(real_kafka: RealKafka) -> None:
    metadata = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers}).list_topics(timeout=60)
    (broker,) = metadata.brokers.values()
    assert f"{broker.host}:{broker.port}" == real_kafka.bootstrap_servers


def test_it_is_the_version_that_was_asked_for(real_kafka: RealKafka) -> None:
    printed = real_kafka.run_tool(
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "--bootstrap-server",
        real_kafka.bootstrap_servers,
        "--version",
    )
    assert printed.startswith(VERSION)
