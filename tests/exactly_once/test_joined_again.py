"""A worker's producer that writes in successive transactions adds its partitions to each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_sink import EmbeddedCluster, ProducerRecord
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.transactions import OpenTransaction
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.task_producer import TaskProducer
from tests.exactly_once.world import PARTITIONS, QUERY, World


@pytest.fixture(scope="module", params=[2, 1], ids=["version 2", "version 1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=1, config=replace(BrokerConfig(), transaction_version=request.param)) as running:
        yield running


@pytest.mark.behaviour("Tasks", "A task goes on with the producer of the task before it")
def test_kept_producer_adds_its_partitions_to_each_transaction(world: World) -> None:
    config = replace(producer_config.read(world.properties), transactional_id="kept")
    with TaskProducer(config) as producer:
        for version in range(4):
            plan = world.parallel.plan()
            transaction = world.ids.begin(world.client, plan, version)
            producer.join_transaction(transaction.producer, plan.transaction_version, transaction.transactional_id)
            partitions = frozenset(TopicPartition(world.topic, number) for number in range(PARTITIONS))
            for _, number in partitions:
                producer.send(ProducerRecord(world.topic, b"%d" % version, partition=number))
            producer.flush()
            world.parallel.commit(plan, version, QUERY, [OpenTransaction(transaction, partitions)])
    found = sorted(value or b"" for value in world.committed())
    assert found == [b"%d" % version for version in range(4) for _ in range(PARTITIONS)]
