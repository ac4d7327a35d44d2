"""Apache Kafka's Java clients, unmodified, on the embedded broker: its tools, and the programs that test Kafka itself.

Every test runs with each number of nodes in KAFKALITE_JAVA_NODES, such as "1,3"; by default with one number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from tests.compat.kafka_version import is_at_least
from tests.conftest import Figure
from tests.support import amounts
from tests.support.amounts import only_long
from tests.support.real_kafka import KAFKA_SCRIPT, TOOL_TIMEOUT_S, run_script, skip_without_kafka

TOOLS = "org.apache.kafka.tools."
#: Options of the console producer's reader and the console consumer's formatter; one name before Kafka 4.2 (KIP-1147).
READER, FORMATTER = (
    ("--reader-property", "--formatter-property") if is_at_least("4.2") else ("--property", "--property")
)
PARTITIONS = 3
WAIT_S = 60.0


def with_nodes(default: int) -> pytest.MarkDecorator:
    """Set the number of nodes in a test's cluster."""
    asked = amounts.JAVA_NODES or str(default)
    return pytest.mark.parametrize(
        "cluster", [int(each) for each in asked.split(",")], indirect=True, ids="nodes={}".format
    )


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    skip_without_kafka()
    # Members with group.protocol=consumer learn of a change with their next heartbeat.
    config = BrokerConfig(group_consumer_heartbeat_interval_ms=500)
    with EmbeddedCluster(nodes=request.param, config=config) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    name = f"java-{os.urandom(4).hex()}"
    cluster.create_topic(name, partitions=PARTITIONS)
    return name


def tool(cluster: EmbeddedCluster, name: str, *arguments: str) -> str:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    return run_script("run", TOOLS + name, *server, *arguments, timeout_s=TOOL_TIMEOUT_S)


class Program:
    """A Java program that runs until it gets a signal; it prints JSON objects, one per line."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            ["bash", str(KAFKA_SCRIPT), "run", TOOLS + name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(json.JSONDecodeError):
                self.events.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event.get("name") == name]

    def signal(self, number: int) -> None:
        """Send the signal to Java and the shell around it, and wait for their end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)


def until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
        time.sleep(0.05)


def values(cluster: EmbeddedCluster, topic: str, *, isolation: str = "read_committed") -> list[bytes | None]:
    """Return all values of *topic*, as librdkafka reads them."""
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "none",
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    consumer = Consumer(properties)
    found: list[bytes | None] = []
    ended: set[int | None] = set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append(message.value())
    finally:
        consumer.close()
    return found


@only_long
@pytest.mark.behaviour("Kafka's Java clients", "kafka-producer-perf-test writes with idempotence and with transactions")
@pytest.mark.behaviour("Kafka's Java clients", "All records of Kafka's performance test are there, once")
@with_nodes(3)
def test_the_performance_test_of_producers(cluster: EmbeddedCluster, topic: str, figure: Figure) -> None:
    """Idempotent, which is the default, and with transactions of a tenth of a second."""
    server = ("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}")

    def send(count: int, *further: str) -> str:
        arguments = ("--topic", topic, "--record-size", "200", "--throughput", "-1", "--num-records", str(count))
        name = f"{TOOLS}ProducerPerformance"
        return run_script("run", name, *arguments, *further, *server, timeout_s=TOOL_TIMEOUT_S)

    printed = send(20_000)
    assert "20000 records sent" in printed
    figure("records/s", re.findall(r"([\d.]+) records/sec", printed)[-1])
    transactions = ("--transactional-id", f"perf-{topic}", "--transaction-duration-ms", "100")
    assert "5000 records sent" in send(5000, *transactions)
    assert len(values(cluster, topic)) == 25_000


@pytest.mark.behaviour("Kafka's Java clients", "The console clients write, read and commit offsets")
@with_nodes(1)
def test_console_clients_and_offsets(cluster: EmbeddedCluster, topic: str) -> None:
    lines = [f"h:{number}|key-{number % 5}|väl {number}" for number in range(50)]
    parsing = ("parse.key=true", "key.separator=|", "parse.headers=true", "headers.delimiter=|")
    subprocess.run(
        [
            *("bash", str(KAFKA_SCRIPT), "run", f"{TOOLS}ConsoleProducer"),
            *("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic),
            *(part for each in parsing for part in (READER, each)),
        ],
        input="\n".join(lines) + "\n",
        text=True,
        check=True,
        timeout=TOOL_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
    )
    printing = ("print.key=true", "key.separator=|", "print.headers=true", "headers.separator=,")
    shown = tool(
        cluster,
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--from-beginning", "--max-messages", str(len(lines)), "--group", f"console-{topic}"),
        *("--isolation-level", "read_committed"),
        *(part for each in printing for part in (FORMATTER, each)),
    )
    assert sorted(line.replace("\t", "|") for line in shown.splitlines()) == sorted(lines)
    offsets = tool(cluster, "GetOffsetShell", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.splitlines()) == len(lines)
    described = tool(cluster, "consumer.group.ConsumerGroupCommand", "--describe", "--group", f"console-{topic}")
    rows = [line.split() for line in described.splitlines() if f" {topic} " in line]
    assert len(rows) == PARTITIONS
    assert [row[5] for row in rows] == ["0"] * PARTITIONS, described


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=only_long)])
@pytest.mark.behaviour("Kafka's Java clients", "Verifiable consumers share a group, and take over from each other")
@pytest.mark.behaviour(
    "Kafka's Java clients", "A member of a group of Java consumers that leaves is replaced, and nothing is missed"
)
@with_nodes(3)
def test_a_group_of_verifiable_consumers_shares_and_takes_over(
    cluster: EmbeddedCluster, topic: str, protocol: str, figure: Figure
) -> None:
    server = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    # Tools of older versions do not know the option.
    kind = () if protocol == "classic" else ("--group-protocol", protocol)
    group = ("--group-id", f"verifiable-{topic}", *kind, "--verbose")
    members = [Program("VerifiableConsumer", *server, *group) for _ in range(2)]
    try:

        def assigned(member: Program) -> int:
            """Return its current number of partitions; members of the consumer protocol report only changes."""
            has: set[int] = set()
            for each in list(member.events):
                partitions = {one["partition"] for one in each.get("partitions", ())}
                if each.get("name") == "partitions_assigned":
                    has |= partitions
                elif each.get("name") == "partitions_revoked":
                    has -= partitions
            return len(has)

        until("each member has a part", lambda: sorted(map(assigned, members)) == [1, 2])
        sent = tool(cluster, "VerifiableProducer", "--topic", topic, "--max-messages", "500")
        acknowledged = {json.loads(line)["value"] for line in sent.splitlines() if "producer_send_success" in line}
        assert len(acknowledged) == 500

        def read() -> list[str]:
            return [each["value"] for member in members for each in member.named("record_data")]

        until("all is read", lambda: len(read()) >= 500)
        assert sorted(read()) == sorted(acknowledged)
        members[0].signal(signal.SIGTERM)
        since = time.monotonic()
        until("the other has all partitions", lambda: assigned(members[1]) == PARTITIONS)
        figure("taken over after, s", round(time.monotonic() - since, 1))
        tool(cluster, "VerifiableProducer", "--topic", topic, "--max-messages", "100", "--value-prefix", "7")
        until("what came later is read", lambda: sum(value.startswith("7.") for value in read()) >= 100)
        until("its offsets are committed", lambda: bool(members[1].named("offsets_committed")))
        assert all(each["success"] for each in members[1].named("offsets_committed"))
    finally:
        for member in members:
            member.signal(signal.SIGTERM)


@only_long
@pytest.mark.behaviour("Kafka's Java clients", "TransactionalMessageCopier copies in transactions that abort at random")
@pytest.mark.behaviour("Kafka's Java clients", "Every message is copied once, and what was aborted is not read")
@with_nodes(1)
def test_messages_are_copied_in_transactions(cluster: EmbeddedCluster, topic: str, figure: Figure) -> None:
    """TransactionalMessageCopier aborts some transactions at random, and reads their input again."""
    copy = f"{topic}-copy"
    cluster.create_topic(copy, partitions=PARTITIONS)
    tool(cluster, "VerifiableProducer", "--topic", topic, "--max-messages", "600")
    copier = (
        *("--broker-list", cluster.bootstrap_servers, "--input-topic", topic, "--input-partition", "-1"),
        *("--output-topic", copy, "--consumer-group", f"copier-{topic}", "--transaction-size", "20"),
        *("--transactional-id", f"copier-{topic}", "--group-mode", "--use-group-metadata", "--enable-random-aborts"),
    )
    program = Program("TransactionalMessageCopier", *copier)
    try:
        until("all is copied", lambda: len(values(cluster, copy)) >= 600)
    finally:
        program.signal(signal.SIGTERM)
    assert sorted(map(bytes.decode, filter(None, values(cluster, copy)))) == sorted(map(str, range(600)))
    figure("aborted and written again", len(values(cluster, copy, isolation="read_uncommitted")) - 600)
    listed = tool(cluster, "TransactionsCommand", "list")
    assert re.search(rf"copier-{topic}\s+\d+\s+\d+\s+Complete", listed), listed
