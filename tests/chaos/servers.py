"""A Kafka cluster of three nodes: clients connect through :mod:`tests.chaos.network`, and nodes connect to each other
through :mod:`tests.chaos.nodes`."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.network import Network
from tests.chaos.nodes import Channel, NodeNetwork, Place
from tests.compat.kafka_cluster import NODES, PROPERTIES, KafkaCluster
from tests.support.ports import free_ports
from tests.support.real_kafka import running_kafka
from tests.support.securities import (
    PLAINTEXT,
    SASL_SSL,
    Security,
    create_scram_user,
    kafka_arguments,
    kafka_server,
    make_keys,
)

#: Security protocols of the listeners behind the network, by the names that users know.
SECURITIES = {each.name: Security("CHAOS", each.protocol, each.mechanism) for each in (PLAINTEXT, SASL_SSL)}

#: The brokers abort transactions soon after they time out; few partitions of internal topics move when a node fails.
_PROPERTIES = (
    *PROPERTIES,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
)
#: The inter-broker listener.
_NODES = Security("NODES", "PLAINTEXT")

_TWO_PHASE = ("transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true")


@dataclass
class Servers:
    """The nodes of *cluster*, the *network* between them and their clients, and the one *between* the nodes.
    *properties* are those of the clients."""

    cluster: KafkaCluster
    network: Network
    between: NodeNetwork
    properties: Mapping[str, str]
    has_two_phase: bool
    _frozen: set[int] = field(default_factory=set)
    _killed: set[int] = field(default_factory=set)
    _apart: set[int] = field(default_factory=set)

    @property
    def looks(self) -> str:
        """Bootstrap servers that no fault of the network affects."""
        return self.cluster.bootstrap_servers

    @property
    def whole(self) -> list[int]:
        """The nodes that no fault affects."""
        return [node for node in NODES if node not in self._frozen | self._killed | self._apart]

    @contextlib.contextmanager
    def killed(self, node: int) -> Iterator[None]:
        """Within, the node has crashed."""
        self._killed.add(node)
        self.cluster.kill(node)
        try:
            yield
        finally:
            self.cluster.start(node)
            self._killed.discard(node)

    @contextlib.contextmanager
    def frozen(self, node: int) -> Iterator[None]:
        """Within, the node keeps its connections and does nothing."""
        pid = int((self.cluster.directory / f"node-{node}" / "pid").read_text().split()[0])
        self._frozen.add(node)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            self._frozen.discard(node)

    @contextlib.contextmanager
    def apart(self, node: int, channel: Channel, *, one_way: bool) -> Iterator[None]:
        """Within, *node* cannot send to the other nodes on *channel*, nor they to it unless *one_way*; clients can."""
        self._apart.add(node)
        cut = self.between.unheard if one_way else self.between.cut
        try:
            with cut(node, channel):
                yield
        finally:
            self._apart.discard(node)


@contextlib.contextmanager
def running_servers(directory: Path, security: Security, *, two_phase: bool, seed: int) -> Iterator[Servers]:
    """:param two_phase: whether the brokers support two-phase commit (KIP-939)"""
    keys = make_keys(directory)
    count = len(NODES)
    behind, front, brokers, brokers_front, controllers, controllers_front = (free_ports(count) for _ in range(6))
    fronts = {security: front, _NODES: brokers_front}
    arguments = [*kafka_arguments(keys, {security: behind, _NODES: brokers}, fronts), *_PROPERTIES]
    arguments += [
        "--controllers",
        f"{controllers}:{controllers_front}",
        f"inter.broker.listener.name={_NODES.listener}",
    ]
    arguments += _TWO_PHASE if two_phase else ()
    ports = {front + number: behind + number for number in range(count)}
    inside = {
        first_front + number: Place(channel, node, first + number)
        for channel, first, first_front in (
            (Channel.BROKERS, brokers, brokers_front),
            (Channel.CONTROLLERS, controllers, controllers_front),
        )
        for number, node in enumerate(NODES)
    }
    with (
        Network(ports, seed) as network,
        NodeNetwork(inside) as between,
        running_kafka(directory, "--nodes", str(len(NODES)), *arguments) as kafka,
    ):
        server = kafka_server(keys, kafka.bootstrap_servers, {security: front})
        properties = server.client_properties(security)
        if security.mechanism:
            create_scram_user(kafka.bootstrap_servers, properties)
        cluster = KafkaCluster(kafka.bootstrap_servers, directory, server)
        yield Servers(cluster, network, between, properties, two_phase)
