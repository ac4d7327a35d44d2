"""One embedded cluster a file, and for every test a topic and a sink of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster
from tests.exactly_once.world import PARTITIONS, World


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
