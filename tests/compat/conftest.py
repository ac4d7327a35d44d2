"""A real Kafka for the tests of this folder, of one node and of three, started by scripts/kafka.sh for those that ask.

Where no Kafka can be had (no network to fetch it, no Java) these tests fail with the reason, because what they prove
would be missing unseen; KAFKALITE_NO_KAFKA=1 (``scripts/test.sh --no-kafka``) skips them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.compat.kafka_cluster import KafkaCluster

KAFKA_SCRIPT = Path(__file__).parents[2] / "scripts" / "kafka.sh"
START_TIMEOUT_S = 280
TOOL_TIMEOUT_S = 120


def run_script(*arguments: str, timeout_s: int) -> str:
    """Run scripts/kafka.sh and return what it printed; the test fails with its last words when it fails."""
    done = subprocess.run(
        ["bash", str(KAFKA_SCRIPT), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={"KAFKALITE_KAFKA_HEAP": "512m", **os.environ},
    )
    if done.returncode != 0:
        pytest.fail(f"scripts/kafka.sh {' '.join(arguments)} failed:\n{done.stderr.strip()[-4000:]}", pytrace=False)
    return done.stdout


def run_kafka_tool(class_name: str, *arguments: str) -> str:
    """What one of Kafka's own command line classes prints; needs no Kafka that runs."""
    if os.environ.get("KAFKALITE_NO_KAFKA", "") not in ("", "0"):
        pytest.skip("KAFKALITE_NO_KAFKA is set")
    return run_script("run", class_name, *arguments, timeout_s=TOOL_TIMEOUT_S)


@dataclass(frozen=True)
class RealKafka:
    """A running Apache Kafka."""

    bootstrap_servers: str
    #: Its server.properties, log and data (``node-1/data/<topic>-<partition>``).
    directory: Path

    def run_tool(self, class_name: str, *arguments: str) -> str:
        """What one of Kafka's own command line classes prints, as org.apache.kafka.tools.DumpLogSegments."""
        return run_script("run", class_name, *arguments, timeout_s=TOOL_TIMEOUT_S)

    def partition_directory(self, topic: str, partition: int) -> Path:
        return self.directory / "node-1" / "data" / f"{topic}-{partition}"


# Both end with the last test of this folder: an idle Kafka takes a fiftieth of a processor.
@pytest.fixture(scope="package")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    if os.environ.get("KAFKALITE_NO_KAFKA", "") not in ("", "0"):
        pytest.skip("KAFKALITE_NO_KAFKA is set")
    directory = tmp_path_factory.mktemp("kafka")
    try:
        printed = run_script("start", "--port", "0", "--dir", str(directory), timeout_s=START_TIMEOUT_S)
        yield RealKafka(printed.strip().removeprefix("bootstrap.servers="), directory)
    finally:
        run_script("stop", "--dir", str(directory), timeout_s=TOOL_TIMEOUT_S)


@pytest.fixture(scope="package")
def kafka_of_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    from tests.compat.kafka_cluster import running_cluster

    if os.environ.get("KAFKALITE_NO_KAFKA", "") not in ("", "0"):
        pytest.skip("KAFKALITE_NO_KAFKA is set")
    with running_cluster(tmp_path_factory.mktemp("kafka-cluster")) as running:
        yield running
