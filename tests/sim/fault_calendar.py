"""Faults that come by the calendar: connections that are reset, leaders that move, brokers that restart or crash.

They strike whatever goes on; the dice of the world say when.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.cluster import SimCluster
from tests.sim.network import SimNetwork
from tests.sim.plan import Faults
from tests.sim.world import World

#: Of one kind of fault.
_MOST_STRIKES = 250
#: The brokers are left in peace after this time at the latest, ms.
_FAULTS_END_MS = 10_000


class FaultCalendar:
    """The faults of one run, in its brokers and in the network of each client."""

    def __init__(self, world: World, faults: Faults, cluster: SimCluster) -> None:
        self._world = world
        self._faults = faults
        self._cluster = cluster
        self._networks: list[SimNetwork] = []
        self._running = set(cluster.node_ids)
        self.is_over = False
        self.on_end: Callable[[], None] = lambda: None

    def add_network(self, network: SimNetwork) -> None:
        """The network of a client that begins now."""
        network.running = set(self._running)
        network.faults_active = not self.is_over
        self._networks.append(network)

    def start(self) -> None:
        faults = self._faults
        self._every(faults.reset_every_ms, self._reset)
        self._every(faults.move_leaders_every_ms, self._move_leaders)
        self._every(faults.restart_every_ms, self._restart_node)
        self._every(faults.crash_every_ms, self._crash)
        self._world.after(_FAULTS_END_MS, self.end)

    def end(self) -> None:
        """Nothing goes wrong from here on."""
        if self.is_over:
            return
        self._world.note("no more faults from here on")
        self.is_over = True
        for network in self._networks:
            network.faults_active = False
        self._cluster.faults_active = False
        self.on_end()

    def _every(self, mean_ms: int, strike: Callable[[], None]) -> None:
        """So many times at most: what strikes more often than the producer needs to do anything would never end."""
        if mean_ms <= 0:
            return

        def again(left: int) -> None:
            if left and not self.is_over:
                strike()
                self._world.after(self._world.rng.randint(1, 2 * mean_ms), lambda: again(left - 1))

        self._world.after(self._world.rng.randint(1, 2 * mean_ms), lambda: again(_MOST_STRIKES))

    def _reset(self) -> None:
        for network in self._networks:
            network.reset_one()

    def _some_node(self) -> int | None:
        nodes = [node for node in self._cluster.node_ids if node not in self._cluster.down]
        return self._world.rng.choice(nodes) if nodes else None

    def _move_leaders(self) -> None:
        node = self._some_node()
        if node is not None:
            self._cluster.stop_leading(node)
            self._world.after(self._world.rng.choice([0, 10, 200]), lambda: self._back(node))

    def _restart_node(self) -> None:
        node = self._some_node()
        if node is not None:
            self._cluster.stop_leading(node)
            self._stop(node)
            self._world.after(self._world.rng.choice([5, 50, 500]), lambda: self._back(node))

    def _stop(self, node: int) -> None:
        self._running.discard(node)
        for network in self._networks:
            network.stop_node(node)

    def _back(self, node: int) -> None:
        self._cluster.lead_again(node)
        self._start(node)

    def _start(self, node: int) -> None:
        self._running.add(node)
        for network in self._networks:
            network.running.add(node)

    def _crash(self) -> None:
        running = sorted(self._running)
        for node in running:
            self._stop(node)
        self._cluster.crash()
        for node in running:
            self._start(node)
