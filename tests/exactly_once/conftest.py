"""One embedded cluster per file, and a new topic and sink for every test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.clock import SystemClock
from tests.exactly_once.world import PARTITIONS, World
from tests.support.waiting import until

_HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=1) as running:
        yield running


@pytest.fixture
def world(cluster: EmbeddedCluster) -> Iterator[World]:
    topic = f"sink-{os.urandom(4).hex()}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    made = World(cluster.bootstrap_servers, topic)
    yield made
    made.client.close()


class LaterClock(SystemClock):
    """The system's clock, whose wall clock a test can advance."""

    later_by_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.later_by_ms


@pytest.fixture
def brokers_clock() -> LaterClock:
    return LaterClock()


@pytest.fixture
def forgetful(brokers_clock: LaterClock) -> Iterator[World]:
    """A sink whose brokers expire transactional ids that have not been used for an hour."""
    config = BrokerConfig(
        transactional_id_expiration_ms=_HOUR_MS, transaction_remove_expired_transaction_cleanup_interval_ms=10
    )
    with EmbeddedCluster(nodes=1, config=config, clock=brokers_clock) as cluster:
        cluster.create_topic("rows", partitions=PARTITIONS)
        world = World(cluster.bootstrap_servers, "rows")
        yield world
        world.client.close()


@pytest.fixture
def forget_ids(forgetful: World, brokers_clock: LaterClock) -> Callable[[], None]:
    """Return a function that lets the brokers expire the ids of the forgetful sink."""

    def forget() -> None:
        # Brokers respond to EndTxn before they write the markers, and do not expire a transaction that is not complete.
        until("the end of all transactions", lambda: all(each.is_over for each in forgetful.ids_known().values()))
        brokers_clock.later_by_ms += 2 * _HOUR_MS
        until("the expiry of all ids", lambda: not forgetful.ids_known())

    return forget
