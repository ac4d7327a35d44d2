"""What the suites run against: the embedded broker, or Kafka itself (``--kafka``), to compare."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.support.broker_process import BrokerProcess
from tests.support.real_kafka import RealKafka, running_kafka

#: Set by ``--kafka``.
ON_KAFKA: Final = "KAFKALITE_SUITES_ON_KAFKA"


class Cluster(Protocol):
    """Its brokers have a data directory."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self) -> None:
        """Kill the first broker this instant (kill -9)."""

    def start(self) -> None:
        """Start it again."""


class _Kafka:
    def __init__(self, kafka: RealKafka) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self.kill = kafka.kill
        self.start = kafka.start_again


@contextmanager
def cluster(port: int | None = None, nodes: int = 1, **config: object) -> Iterator[Cluster]:
    """Brokers with the properties *config*, whose names have ``_`` for ``.``."""
    properties = {name.replace("_", "."): value for name, value in config.items()}
    with tempfile.TemporaryDirectory() as folder:
        if ON_KAFKA in os.environ:
            words = [f"{name}={value}" for name, value in properties.items()]
            with running_kafka(Path(folder), "--nodes", str(nodes), *words) as kafka:
                yield _Kafka(kafka)
            return
        process = BrokerProcess(Path(folder) / "data", port, properties, nodes=nodes)
        process.start()
        try:
            yield process
        finally:
            process.kill()
