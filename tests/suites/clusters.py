"""The clusters of the suites: the embedded broker, or Apache Kafka (``--kafka``) for comparison."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.support.broker_process import BrokerProcess
from tests.support.real_kafka import RealKafka, running_kafka
from tests.support.secure_cluster import users
from tests.support.securities import create_scram_user

#: Set by ``--kafka``.
ON_KAFKA: Final = "KAFKALITE_SUITES_ON_KAFKA"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Cluster(Protocol):
    """A cluster whose brokers have a data directory."""

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self) -> None:
        """Kill the first broker immediately (kill -9)."""

    def start(self) -> None:
        """Start the killed broker again."""


class _Kafka:
    def __init__(self, kafka: RealKafka) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self.kill = kafka.kill
        self.start = kafka.start_again


class _WithListeners:
    """An embedded broker with the listeners of *properties*, with which an option for the port would conflict."""

    def __init__(self, folder: Path, properties: Mapping[str, object]) -> None:
        file = folder / "broker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        command = [sys.executable, "-m", "kafka_sink.cli", "broker", "--config", str(file)]
        self._command = [*command, "--data-dir", str(folder / "data")]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line.startswith("bootstrap.servers="):
            self.kill()
            raise AssertionError(f"the broker did not become ready, it said {line!r}")
        self.bootstrap_servers = line.strip().partition("=")[2]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def cluster(port: int | None = None, nodes: int = 1, **config: object) -> Iterator[Cluster]:
    """Run brokers with the properties *config*, whose names have ``_`` for ``.``; Kafka uses free ports."""
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


@contextmanager
def cluster_with_logins(port: int, passwords: Mapping[str, str], **config: object) -> Iterator[Cluster]:
    """Run a broker at ``localhost``: *port* is for all clients, and the next port for the users in *passwords*, by
    name, who log in with PLAIN or SCRAM."""
    config["advertised_listeners"] = f"PLAINTEXT://localhost:{port},SASL_PLAINTEXT://localhost:{port + 1}"
    config["sasl_enabled_mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    if ON_KAFKA not in os.environ:
        listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{port + 1}"
        config |= {"listeners": listeners, "sasl_jaas_config": users(**passwords)}
        properties = {name.replace("_", "."): value for name, value in config.items()}
        with tempfile.TemporaryDirectory() as folder:
            broker = _WithListeners(Path(folder), properties)
            try:
                yield broker
            finally:
                broker.kill()
        return
    words = ["--port", str(port), "--listener", f"SASL_PLAINTEXT:{port + 1}"]
    words += [f"{name.replace('_', '.')}={value}" for name, value in config.items()]
    prefix = "listener.name.sasl_plaintext"
    words.append(f"{prefix}.plain.sasl.jaas.config={users(**passwords)}")
    words += [f"{prefix}.scram-sha-{bits}.sasl.jaas.config={_SCRAM} required;" for bits in (256, 512)]
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder), *words) as kafka:
        for name, password in passwords.items():
            login = {
                "bootstrap.servers": f"127.0.0.1:{port + 1}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": f'{_SCRAM} required username="{name}" password="{password}";',
            }
            create_scram_user(kafka.bootstrap_servers, login, name, password)
        yield _Kafka(kafka)
