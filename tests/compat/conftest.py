"""A real Kafka for the tests of this folder, of one node and of three, started for the first test that requests it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.other_brokers import lack_of
from tests.support.real_kafka import RealKafka, running_kafka, skip_on_other_brokers, skip_without_kafka

if TYPE_CHECKING:
    from tests.compat.identity_kafka import IdentityKafka
    from tests.compat.kafka_cluster import KafkaCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = lack_of(item.name) if "compat" in item.path.parts else None
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


# The nodes stop after the last test of this folder: an idle Kafka takes a fiftieth of a CPU.
@pytest.fixture(scope="package")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="package")
def kafka_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    from tests.compat.kafka_cluster import running_cluster

    skip_without_kafka()
    skip_on_other_brokers("nodes that are stopped and killed")
    with running_cluster(tmp_path_factory.mktemp("kafka-cluster")) as running:
        yield running


@pytest.fixture(scope="package")
def identity_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityKafka]:
    from tests.compat.identity_kafka import running_identity_kafka

    skip_without_kafka()
    skip_on_other_brokers("listeners of Kafka")
    with running_identity_kafka(tmp_path_factory.mktemp("identities")) as running:
        yield running
