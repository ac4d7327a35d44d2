"""One coordinator client per set of properties in a process that Spark reuses.

Spark's planner, committer and workers each run one call at a time. Connections are kept between batches. A forked
process begins without clients.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.common.config import read_one
from kafka_sink.common.threads import at_fork
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.task.property_digest import digest_of


class _SharedClients:
    def __init__(self) -> None:
        self.by_properties: dict[bytes, CoordinatorClient] = {}
        at_fork(self, _SharedClients.forget)

    def forget(self) -> None:
        self.by_properties = {}


_clients = _SharedClients()


def shared_client(properties: Mapping[str, str]) -> CoordinatorClient:
    """The client of this process for a producer's *properties*; max.block.ms is its time-out."""
    key = digest_of(properties)
    client = _clients.by_properties.get(key)
    if client is None:
        timeout_ms = read_one(ProducerConfig, "max.block.ms", properties)
        client = _clients.by_properties[key] = CoordinatorClient(properties, timeout_ms=timeout_ms)
    return client
