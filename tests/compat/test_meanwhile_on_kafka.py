"""Changes that other clients make to a real Kafka between the batches of a sink and during them; tests/exactly_once has
the same on the embedded broker, and also permissions and clocks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.exactly_once.model import BatchNumbering, Progress, ProgressError, UndecidedError
from kafka_sink.exactly_once.transactions import Transaction, sink_id, writer_id
from tests.compat.kafka_version import requires_kafka
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support.real_kafka import RealKafka

pytestmark = requires_kafka("3.6", "the verification of transactions (KIP-890, part 1)")


@pytest.fixture
def admin(real_kafka: RealKafka) -> Iterator[AdminClient]:
    with AdminClient(real_kafka.bootstrap_servers) as client:
        yield client


def new_world(admin: AdminClient, kafka: RealKafka, partitions: int = PARTITIONS) -> World:
    topic = f"meanwhile-{os.urandom(4).hex()}"
    admin.create_topic(topic, partitions)
    return World(kafka.bootstrap_servers, topic, timeout_ms=60_000)


def found(world: World) -> list[bytes]:
    return sorted(map(bytes, world.committed()))  # type: ignore[arg-type]


@pytest.mark.behaviour(
    "Exactly once: neighbours", "Topics of a real Kafka that grow, or are made again, lose and repeat nothing unseen"
)
@pytest.mark.parametrize("protocol", ["atomic", "parallel"])
def test_topic_grows_and_is_made_again_on_kafka(real_kafka: RealKafka, admin: AdminClient, protocol: str) -> None:
    world = new_world(admin, real_kafka)
    expected = world.write_while(protocol, 0, "", lambda: None)
    expected += world.write_while(
        protocol, 1, "half written", lambda: admin.add_partitions(world.topic, PARTITIONS + 2)
    )
    expected += world.write_while(protocol, 2, "", lambda: None)
    assert found(world) == expected
    admin.delete_topics([world.topic])
    admin.create_topic(world.topic, PARTITIONS)
    for _ in range(2):
        # Kafka may still return the progress at first.
        with pytest.raises((ProgressError, UndecidedError), match=r"deleted") as caught:
            world.write_while(protocol, 3, "", lambda: None)
    assert isinstance(caught.value, ProgressError)
    assert found(world) == []
    world.write_batch(protocol, 3, b"3-a", b"3-b", numbers=BatchNumbering.OF_A_QUERY_UNDER_WAY)
    world.write_while(protocol, 4, "", lambda: None)
    assert found(world) == [b"3-a", b"3-b", b"4-a", b"4-b"]
    world.client.close()


@pytest.mark.behaviour(
    "Exactly once: parallel", "A real Kafka stores the progress of a thousand tasks in one partition of its topic"
)
def test_thousand_tasks_fit_into_one_partition_of_kafka(real_kafka: RealKafka, admin: AdminClient) -> None:
    world = new_world(admin, real_kafka, 1)
    sink, plan = sink_id(world.topic, world.topic), world.parallel.plan()
    transactions = tuple(
        Transaction(writer_id(sink, bytes([number // 100] * 6), number), 4_000 + 130 * number, 900)
        for number in range(1_000)
    )
    progress = Progress(1, QUERY, plan.transaction_version, 0, transactions)
    world.client.run(world.steps.store.write(plan.driver, plan.transaction_version, progress, 1, None))
    world.client.run(world.client.end([plan.driver], plan.transaction_version, commit=True))
    read = world.client.run(world.steps.store.read())
    assert read is not None
    assert set(read.transactions) == set(transactions)
    world.client.close()
