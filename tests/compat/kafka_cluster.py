"""A real Kafka of three nodes, which a test stops, kills and starts again."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient as ForeignAdmin
from confluent_kafka.admin import NewPartitions

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.errors import UnknownTopicOrPartitionError
from tests.support.ports import free_ports
from tests.support.real_kafka import TOOL_TIMEOUT_S, run_script, running_kafka
from tests.support.securities import SASL_SSL, SecureServer, kafka_arguments, kafka_server, make_keys
from tests.support.waiting import WAIT_S, until

NODES = (1, 2, 3)
#: The cluster detects failures within seconds, so that a test has several; no request creates topics automatically.
PROPERTIES = (
    "broker.session.timeout.ms=3000",
    "broker.heartbeat.interval.ms=500",
    "replica.lag.time.max.ms=3000",
    "auto.create.topics.enable=false",
)


@dataclass(frozen=True)
class KafkaCluster:
    """Nodes 1 to 3; see scripts/kafka.sh."""

    bootstrap_servers: str
    directory: Path
    #: Its listeners: PLAINTEXT and SASL_SSL.
    server: SecureServer

    def admin(self) -> AdminClient:
        return AdminClient(self.bootstrap_servers, {"default.api.timeout.ms": 20_000})

    def stop(self, node: int) -> None:
        run_script("stop-node", str(node), "--dir", str(self.directory), timeout_s=TOOL_TIMEOUT_S)

    def kill(self, node: int) -> None:
        run_script("kill-node", str(node), "--dir", str(self.directory), timeout_s=TOOL_TIMEOUT_S)

    def start(self, node: int) -> None:
        run_script("start-node", str(node), "--dir", str(self.directory), timeout_s=TOOL_TIMEOUT_S)

    def create_topic(self, name: str, partitions: int, **configs: str) -> None:
        with self.admin() as admin:
            admin.create_topic(
                name, partitions, 3, configs={key.replace("_", "."): value for key, value in configs.items()}
            )
            until(f"leaders of {name}", lambda: len(self.leaders(name, admin)) == partitions)

    def leaders(self, topic: str, admin: AdminClient) -> dict[int, int]:
        """Return partition → leader, for the partitions that have one."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                infos = admin.describe_topics([topic])[topic].partitions
                return {info.partition: info.leader.id for info in infos if info.leader is not None}
            except UnknownTopicOrPartitionError:
                # Any node may answer, and one that has just started may not know the topic yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def await_replicas(self, topic: str) -> None:
        """Wait until every partition has a leader and three replicas in sync."""

        def complete() -> bool:
            with self.admin() as admin:
                infos = admin.describe_topics([topic])[topic].partitions
                return all(info.leader is not None and len(info.isr) == 3 for info in infos)

        until(f"all replicas of {topic} in sync", complete)

    def grow(self, topic: str, partitions: int) -> None:
        foreign = ForeignAdmin({"bootstrap.servers": self.bootstrap_servers})
        foreign.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)

    def move_leaders(self, topic: str, shift: int, scratch: Path) -> int:
        """Rotate each partition's replicas by *shift*, elect the first one, and return the number of moved leaders."""
        with self.admin() as admin:
            before = self.leaders(topic, admin)
            plan = {
                "version": 1,
                "partitions": [
                    {
                        "topic": topic,
                        "partition": number,
                        "replicas": [NODES[(number + shift + n) % 3] for n in range(3)],
                    }
                    for number in before
                ],
            }
            file = scratch / f"plan-{shift}.json"
            file.write_text(json.dumps(plan), encoding="utf-8")
            tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
            arguments = ["--bootstrap-server", self.bootstrap_servers, "--reassignment-json-file", str(file)]
            run_script("run", tool, *arguments, "--execute", timeout_s=TOOL_TIMEOUT_S)
            tool = "org.apache.kafka.tools.LeaderElectionCommand"
            arguments = ["--bootstrap-server", self.bootstrap_servers, "--election-type", "preferred"]
            run_script("run", tool, *arguments, "--all-topic-partitions", timeout_s=TOOL_TIMEOUT_S)
            wanted = {number: NODES[(number + shift) % 3] for number in before}
            until("the elected leaders", lambda: self.leaders(topic, admin) == wanted)
            return sum(before[number] != leader for number, leader in wanted.items())


@contextlib.contextmanager
def running_cluster(directory: Path) -> Iterator[KafkaCluster]:
    keys, ports = make_keys(directory), {SASL_SSL: free_ports(len(NODES))}
    nodes = ("--nodes", str(len(NODES)))
    with running_kafka(directory, *nodes, *kafka_arguments(keys, ports), *PROPERTIES) as kafka:
        at = kafka.bootstrap_servers
        yield KafkaCluster(at, directory, kafka_server(keys, at, ports))
