"""A real Kafka, and its own tools, by scripts/kafka.sh.

Where no Kafka can be had (no network to fetch it, no Java) a test fails with the reason, because what it proves would
be missing unseen; KAFKALITE_NO_KAFKA=1 (``scripts/test.sh --no-kafka``) skips it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support import other_brokers
from tests.support.ports import free_ports

KAFKA_SCRIPT = Path(__file__).parents[2] / "scripts" / "kafka.sh"
HAS_KAFKA = os.environ.get("KAFKALITE_NO_KAFKA", "") in ("", "0")
START_TIMEOUT_S = 280
TOOL_TIMEOUT_S = 120
#: ``scripts/test.sh`` downloads Kafka while this file exists, whose name ends with the number of its process.
_DOWNLOADING = os.environ.get("KAFKALITE_DOWNLOADING", "")


def skip_without_kafka() -> None:
    """Skip the test that calls this, or needs the fixture that does, if the run has no Kafka."""
    if not HAS_KAFKA:
        pytest.skip("KAFKALITE_NO_KAFKA is set")


def skip_on_other_brokers(reason: str) -> None:
    """Skip the test that needs Apache Kafka itself for *reason*."""
    if other_brokers.CHOSEN:
        pytest.skip(f"{reason}, not for {other_brokers.CHOSEN}")


def wait_for_download() -> None:
    """Wait while ``scripts/test.sh`` downloads Kafka, which ends by itself, with Kafka or without, or is killed."""
    while _DOWNLOADING and Path(_DOWNLOADING).exists() and _is_running(int(_DOWNLOADING.rpartition(".")[2])):
        time.sleep(0.5)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def run_script(*arguments: str, timeout_s: int, java_options: str = "") -> str:
    """Run scripts/kafka.sh and return what it printed; the test fails with its last words when it fails."""
    done = subprocess.run(
        ["bash", str(KAFKA_SCRIPT), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={
            "KAFKALITE_KAFKA_HEAP": "512m",
            **os.environ,
            "KAFKA_OPTS": f"{os.environ.get('KAFKA_OPTS', '')} {java_options}",
        },
    )
    if done.returncode != 0:
        pytest.fail(f"scripts/kafka.sh {' '.join(arguments)} failed:\n{done.stderr.strip()[-4000:]}", pytrace=False)
    return done.stdout


@dataclass(frozen=True)
class RealKafka:
    """A running Apache Kafka."""

    #: Of the PLAINTEXT listener.
    bootstrap_servers: str
    #: Its server.properties, log and data (``node-1/data/<topic>-<partition>``).
    directory: Path
    #: Of the first node, for each further listener.
    ports: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def kill(self) -> None:
        """Kill the first node this instant (kill -9)."""
        pid = int((self.directory / "node-1" / "pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        while _is_running(pid):
            time.sleep(0.01)

    def start_again(self) -> None:
        """Start the first node again; it does not accept requests yet."""
        run_script("start-node", "1", "--dir", str(self.directory), timeout_s=TOOL_TIMEOUT_S)

    def partition_directory(self, topic: str, partition: int) -> Path:
        return self.directory / "node-1" / "data" / f"{topic}-{partition}"


@contextlib.contextmanager
def running_kafka(
    directory: Path, *arguments: str, listeners: Mapping[str, str] = MappingProxyType({}), java_options: str = ""
) -> Iterator[RealKafka]:
    """A Kafka with a PLAINTEXT listener, and *listeners* by their names, each with its security protocol.

    :param arguments: further ones of ``scripts/kafka.sh start``, such as properties of the nodes.
    :param java_options: of the nodes, and of no tool.
    """
    skip_without_kafka()
    if other_brokers.CHOSEN:
        if arguments or listeners or java_options:
            pytest.skip(f"{other_brokers.CHOSEN} has no listeners and settings of Kafka")
        with other_brokers.running_other_broker(directory) as addresses:
            yield RealKafka(addresses, directory)
        return
    ports = {name: free_ports() for name in listeners}
    own = [word for name, port in ports.items() for word in ("--listener", f"{name}:{port}")]
    if listeners:
        # Given once more: of two lines of a name Java reads the last.
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in listeners.items())
        own.append(f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}")
    where = ("--port", "0", "--dir", str(directory))
    try:
        printed = run_script("start", *where, *own, *arguments, timeout_s=START_TIMEOUT_S, java_options=java_options)
        yield RealKafka(printed.strip().removeprefix("bootstrap.servers="), directory, ports)
    finally:
        run_script("stop", "--dir", str(directory), timeout_s=TOOL_TIMEOUT_S)
