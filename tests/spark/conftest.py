"""One Spark session and one embedded cluster for all tests of the sink."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from kafka_sink import EmbeddedCluster, register
from tests.support.spark_version import HAS_DATA_SOURCES

if TYPE_CHECKING:
    from kafka_sink.broker.embedded_broker import EmbeddedCluster as Cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kafkalite-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    if HAS_DATA_SOURCES:
        register(session)
    yield session
    session.stop()


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
