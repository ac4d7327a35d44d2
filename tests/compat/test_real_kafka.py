"""The reference itself: the Kafka of this folder's tests is up, and has the expected version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from kafka_sink.client.options import other_names
from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig
from tests.compat.kafka_version import VERSION
from tests.golden.make_producer_options import names, names_in
from tests.support.kafka_tools import run_kafka_tool

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka


def test_one_broker_answers(real_kafka: RealKafka) -> None:
    metadata = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers}).list_topics(timeout=60)
    (broker,) = metadata.brokers.values()
    assert f"{broker.host}:{broker.port}" == real_kafka.bootstrap_servers


def test_it_is_the_version_that_was_asked_for(real_kafka: RealKafka) -> None:
    printed = run_kafka_tool(
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "--bootstrap-server",
        real_kafka.bootstrap_servers,
        "--version",
    )
    assert printed.startswith(VERSION)


@pytest.mark.behaviour("Sink options and commit messages", "No option of Kafka's Java producer is unknown")
def test_every_option_of_its_producer_is_known(real_kafka: RealKafka) -> None:
    """Other tests compare with a file that has the names of 4.3; other versions may have fewer."""
    listed = names_in(run_kafka_tool("org.apache.kafka.clients.producer.ProducerConfig"))
    known = {*c.keys(ProducerConfig), *other_names.NO_EFFECT, *other_names.NOT_SUPPORTED}
    assert len(listed) > 80
    assert [name for name in listed if name not in known] == []
    if VERSION.startswith("4.3"):
        assert listed == names()
