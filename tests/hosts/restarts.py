"""Restarts every process in turn, one at a time, alternately with a graceful stop and with kill -9.

In the second half the driver and one host are not restarted, so that the growth of their memory can be measured.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from tests.compat.kafka_cluster import NODES, KafkaCluster
from tests.hosts.cluster import HOSTS, MASTER, SPARED, SparkCluster
from tests.hosts.program import Program
from tests.support.waiting import until

#: A driver starts all queries at the same time, which takes long.
_DRIVER_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Restart:
    """*happens* takes whether to kill the process, and returns when the restarted process is ready."""

    name: str
    happens: Callable[[bool], None]
    is_spared: bool = False


class World:
    """The servers and the program to restart."""

    def __init__(self, kafka: KafkaCluster, spark: SparkCluster, program: Program) -> None:
        self.kafka, self.spark, self.program = kafka, spark, program
        self._topics = [query.topic for query in program.queries]

    def restarts(self) -> list[Restart]:
        """Return the restarts in their order: those that the second half omits come early."""
        nodes = [self._of_node(node) for node in NODES]
        *hosts, spared = (self._of_host(host) for host in HOSTS)
        driver = Restart("driver", self._restart_driver, is_spared=True)
        executor = Restart("executor", self._restart_executor)
        master = Restart("Spark master", self._restart_master)
        return [nodes[0], spared, driver, nodes[1], hosts[0], executor, master, hosts[1], nodes[2], *hosts[2:]]

    def _of_node(self, node: int) -> Restart:
        def happens(is_killed: bool) -> None:
            (self.kafka.kill if is_killed else self.kafka.stop)(node)
            # Until its session times out, the controllers take a killed node for a live one.
            until(f"replicas without node {node}", lambda: not self._are_replicas_in_sync())
            self.kafka.start(node)
            until("all replicas in sync", self._are_replicas_in_sync)

        return Restart(f"Kafka node {node}", happens)

    def _are_replicas_in_sync(self) -> bool:
        with self.kafka.admin() as admin:
            topics = admin.describe_topics(self._topics).values()
            return all(len(info.isr) == len(NODES) for topic in topics for info in topic.partitions)

    def _of_host(self, host: str) -> Restart:
        def happens(is_killed: bool) -> None:
            (self.spark.kill if is_killed else self.spark.stop)(host)
            self.spark.start(host)
            self.spark.await_executor(host)

        return Restart(f"Spark worker {host}", happens, is_spared=host == SPARED)

    def _restart_executor(self, is_killed: bool) -> None:
        self.spark.signal_executor(HOSTS[0], signal.SIGKILL if is_killed else signal.SIGTERM)
        self.spark.await_executor(HOSTS[0])

    def _restart_master(self, is_killed: bool) -> None:
        (self.spark.kill if is_killed else self.spark.stop)(MASTER)
        self.spark.start(MASTER)

    def _restart_driver(self, is_killed: bool) -> None:
        (self.program.kill if is_killed else self.program.stop)()
        before = {query: query.committed for query in self.program.queries}
        self.program.start()
        until("a batch of each query", lambda: all(query.committed > n for query, n in before.items()), _DRIVER_S)


class Rotation:
    """Restarts on a thread of its own, with a pause of *pause_s* between two, until :meth:`end`."""

    def __init__(self, restarts: Sequence[Restart], pause_s: float, half_s: float) -> None:
        self._restarts, self._pause_s, self._half_s = restarts, pause_s, half_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.done = 0
        self.error: str | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self, limit_s: float) -> bool:
        """End after the current restart; return whether that was done within *limit_s*."""
        self._ended.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def look(self) -> None:
        """:raises RuntimeError: if something did not start again."""
        if self.error is not None:
            raise RuntimeError(self.error)

    def _run(self) -> None:
        half = time.monotonic() + self._half_s
        for turn in itertools.count():
            restart = self._restarts[turn % len(self._restarts)]
            if restart.is_spared and time.monotonic() > half:
                continue
            if self._ended.wait(self._pause_s):
                return
            begun = time.monotonic()
            try:
                restart.happens(is_killed := turn % 2 == 1)
            # The exception of pytest.fail is no subclass of Exception.
            except (Exception, pytest.fail.Exception) as error:
                self.error = f"restart of {restart.name}: {error}"
                return
            self.done += 1
            how = "killed" if is_killed else "stopped"
            took_s = time.monotonic() - begun
            print(f"{time.strftime('%H:%M:%S')}  restart {self.done}: {restart.name} {how}, {took_s:.0f} s", flush=True)
