"""One embedded cluster for all tests of the sink."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from kafka_sink import EmbeddedCluster

if TYPE_CHECKING:
    from kafka_sink.broker.embedded_broker import EmbeddedCluster as Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with EmbeddedCluster(nodes=1) as running:
        yield running


@pytest.fixture
def new_topic(cluster: Cluster) -> Callable[..., str]:
    numbers = itertools.count()

    def make(partitions: int = 4) -> str:
        name = f"topic-{os.urandom(4).hex()}-{next(numbers)}"
        cluster.create_topic(name, partitions=partitions)
        return name

    return make
