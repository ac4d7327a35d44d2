"""Brokers that append late rows to an ended transaction are detected before the first row of a batch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.transaction_verification import SETTING
from kafka_sink.common.errors import ApiError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.model import ExactlyOnceError
from kafka_sink.producer import config as producer_config
from tests.compat.kafka_version import is_at_least, requires_kafka
from tests.exactly_once.world import PARTITIONS, World, open_producer
from tests.support.kafka_tools import run_kafka_tool
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka

TIMEOUT_MS = 30_000

verifies = requires_kafka("3.6", "the verification of transactions (KIP-890, part 1)")


@pytest.fixture
def world(real_kafka: RealKafka) -> Iterator[World]:
    topic = f"verified-{os.urandom(4).hex()}"
    with AdminClient(real_kafka.bootstrap_servers) as admin:
        admin.create_topic(topic, PARTITIONS)
    made = World(real_kafka.bootstrap_servers, topic)
    yield made
    made.client.close()


def _takes_late_rows(world: World) -> bool:
    """Return whether the broker appends a row after the end of its transaction (version 1), after which no marker
    follows."""
    transaction = world.client.run(world.client.init_producer_id(world.topic, 60_000))
    with open_producer(producer_config.read(world.properties), transaction, TransactionVersion.V1) as producer:
        producer.send(ProducerRecord(world.topic, b"in time", partition=0)).result(TIMEOUT_MS / 1000)
        world.client.run(world.client.end([transaction], TransactionVersion.V1, commit=True))
        until("the end", lambda: world.client.run(world.client.describe([world.topic]))[world.topic].is_over)
        try:
            producer.send(ProducerRecord(world.topic, b"late", partition=0)).result(TIMEOUT_MS / 1000)
        except ApiError:
            return False
    return True


def _require_refusal(world: World, text: str) -> None:
    assert _takes_late_rows(world)
    for protocol in ("parallel", "atomic"):
        with pytest.raises(ExactlyOnceError, match=text):
            world.write_batch(protocol, 0, b"never")
    assert world.committed() == [b"in time"]


def test_a_transaction_of_one_producer_needs_no_verification(world: World) -> None:
    with KafkaProducer({**world.properties, "transactional.id": world.topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(world.topic, b"row"))
        producer.commit_transaction()
    assert world.committed() == [b"row"]


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions", "A real Kafka before 3.6 is refused with what to do"
)
@pytest.mark.skipif(is_at_least("3.6"), reason="from Kafka 3.6 on brokers verify transactions")
def test_a_broker_before_3_6_is_refused_with_what_to_do(world: World) -> None:
    _require_refusal(world, r"broker 1 at 127\.0\.0\.1:\d+ cannot; upgrade to Apache Kafka 3\.6 or newer")


@verifies
@pytest.mark.parametrize("protocol", ["parallel", "atomic"])
def test_a_broker_that_verifies_is_written_to(world: World, protocol: str) -> None:
    assert not _takes_late_rows(world)
    for version in range(3):
        world.write_batch(protocol, version, b"%d" % version)
    assert sorted(map(bytes, world.committed())) == [b"0", b"1", b"2", b"in time"]  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: brokers that do not verify transactions",
    "Verification that is switched off is refused, with the setting",
)
@verifies
def test_disabled_verification_is_refused_until_enabled_again(real_kafka: RealKafka, world: World) -> None:
    _switch(real_kafka, world, "false")
    try:
        _require_refusal(world, rf"{SETTING} is false on broker 1 at .*; set it to true")
    finally:
        _switch(real_kafka, world, "true")
    world.client.require_verification()


def _switch(kafka: RealKafka, world: World, value: str) -> None:
    """Set the option as the refusal advises; brokers learn of it a moment later."""
    everyone = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", f"{SETTING}={value}")
    run_kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, *everyone)
    until(f"{SETTING}={value}", lambda: world.client.run(world.client.broker_setting(SETTING)) == value)
