"""Runs many streams on many hosts for a given time; see ``scripts/hosts.sh``."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from tests.compat.kafka_cluster import NODES, KafkaCluster, running_cluster
from tests.hosts.cluster import SparkCluster
from tests.hosts.ledger import PARTITIONS, RETENTION, Ledgers
from tests.hosts.memory import Memory
from tests.hosts.program import ROOT, Program
from tests.hosts.queries import Settings
from tests.hosts.restarts import Rotation, World
from tests.spark.soak import SIGNALS, end_early

_SAMPLE_S: Final = 10.0
_START_S: Final = 300.0
#: A query that commits nothing for this long is stalled.
_STILL_S: Final = 600.0
_RESTART_S: Final = 320.0
#: How long an interrupted run waits for the current restart.
_INTERRUPTED_S: Final = 10.0
_DRAIN_S: Final = 240.0
_SETTLE_S: Final = 10.0
_READ_S: Final = 90.0
#: The longest time that a run may take beyond the given time.
_AFTER_S: Final = 14 * 60


class Hosts:
    """One run: everything that is restarted, what is read, and what is watched."""

    def __init__(self, world: World, ledgers: Ledgers, memory: Memory) -> None:
        self._world, self._ledgers, self._memory = world, ledgers, memory
        self._moved = dict.fromkeys(world.program.queries, (0, time.monotonic()))
        self.restarts = 0

    def run(self, seconds: float, every_s: float, pause_s: float) -> list[str]:
        """Return a description of each failure."""
        program = self._world.program
        program.start()
        self._await_first_batches()
        rotation = Rotation(self._world.restarts(), pause_s, seconds / 2)
        rotation.start()
        is_over = False
        try:
            self._watch(rotation, seconds, every_s)
            is_over = True
        finally:
            has_ended = rotation.end(_RESTART_S if is_over else _INTERRUPTED_S)
            self.restarts = rotation.done
        rotation.look()
        if not has_ended:
            raise RuntimeError(f"the last restart did not end within {_RESTART_S:.0f} s")
        wrong = program.drain(_DRAIN_S)
        self._tell_failures()
        self._ledgers.settle(_SETTLE_S, _READ_S)
        wrong += [str(count) for count in self._ledgers.counts() if not count.is_exact]
        growth = self._memory.growth(seconds / 2)
        if growth is None:
            print("too short to judge memory and descriptors by: that is done from 20 minutes on", flush=True)
        return wrong + (growth or [])

    def _await_first_batches(self) -> None:
        deadline = time.monotonic() + _START_S
        while not all(query.committed for query in self._world.program.queries):
            self._world.program.look()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not every query wrote a batch within {_START_S:.0f} s")
            self._ledgers.read(1.0)

    def _watch(self, rotation: Rotation, seconds: float, every_s: float) -> None:
        begun = time.monotonic()
        sampled_s, told_s = 0.0, 0.0
        while (elapsed_s := time.monotonic() - begun) < seconds:
            self._ledgers.read(1.0)
            self._world.program.look()
            rotation.look()
            if elapsed_s >= sampled_s:
                sampled_s += _SAMPLE_S
                self._memory.sample(elapsed_s, self._world.program.pid, self._world.spark, _nodes(self._world.kafka))
                self._look_for_still_queries()
            if elapsed_s >= told_s:
                told_s += every_s
                self._tell_failures()
                counts = self._ledgers.counts()
                batches, twice = sum(each.batches for each in counts), sum(each.twice for each in counts)
                print(f"{elapsed_s / 60:6.1f} min  {batches:,} batches  twice {twice:,}  {self._memory}", flush=True)

    def _look_for_still_queries(self) -> None:
        for query, (known, at) in self._moved.items():
            if (committed := query.committed) > known:
                self._moved[query] = committed, time.monotonic()
            elif time.monotonic() > at + _STILL_S:
                raise RuntimeError(f"{query} has committed nothing for {_STILL_S:.0f} s")

    def _tell_failures(self) -> None:
        for failure in self._world.program.new_failures():
            print(failure, flush=True)


def _nodes(kafka: KafkaCluster) -> Iterator[int]:
    for node in NODES:
        # There is none while the node is being restarted.
        with contextlib.suppress(OSError, IndexError, ValueError):
            yield int((kafka.directory / f"node-{node}" / "pid").read_text().split()[0])


@contextlib.contextmanager
def _killed_at_the_end(kafka: KafkaCluster) -> Iterator[None]:
    """Nodes that are stopped in order wait for each other."""
    try:
        yield
    finally:
        for pid in _nodes(kafka):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _run(asked: argparse.Namespace, folder: Path) -> list[str]:
    for name in ("kafka", "spark", "driver"):
        (folder / name).mkdir(parents=True)
    with contextlib.ExitStack() as running:
        kafka = running.enter_context(running_cluster(folder / "kafka"))
        running.enter_context(_killed_at_the_end(kafka))
        environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        spark = SparkCluster(folder / "spark", environ)
        running.callback(spark.close)
        spark.start_all()
        settings = Settings(
            spark.master,
            kafka.bootstrap_servers,
            f"hosts-{os.urandom(4).hex()}",
            folder / "driver",
            asked.queries,
            asked.rows,
            asked.tasks,
            asked.trigger,
        )
        program = Program(settings)
        running.callback(program.close)
        for query in program.queries:
            kafka.create_topic(query.topic, PARTITIONS, **RETENTION)
        ledgers = running.enter_context(Ledgers(kafka.bootstrap_servers, program.queries, asked.rows))
        memory = Memory(folder / "memory.jsonl")
        hosts = Hosts(World(kafka, spark, program), ledgers, memory)
        try:
            wrong = hosts.run(asked.minutes * 60, asked.every, asked.pause)
        except RuntimeError as error:
            wrong = [str(error)]
        except KeyboardInterrupt:
            wrong = ["asked to end before its time"]
        print(*memory.curve(), *ledgers.counts(), sep="\n", flush=True)
        _tell_all(ledgers, asked.queries, hosts.restarts)
        return wrong


def _tell_all(ledgers: Ledgers, queries: int, restarts: int) -> None:
    counts = ledgers.counts()
    batches, rows, missing, twice = (
        sum(getattr(count, name) for count in counts) for name in ("batches", "rows", "missing", "twice")
    )
    print(
        f"hosts: {queries} queries, {batches:,} batches, {rows:,} rows, {missing:,} missing, {twice:,} twice, "
        f"{restarts} restarts",
        flush=True,
    )


def _end_late(number: int, frame: FrameType | None) -> None:
    raise RuntimeError("it took too long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--queries", type=int, default=24)
    parser.add_argument("--rows", type=int, default=300, help="of a micro-batch (%(default)s)")
    parser.add_argument("--tasks", type=int, default=2, help="of a micro-batch (%(default)s)")
    parser.add_argument("--trigger", type=int, default=30, help="shortest seconds between micro-batches (%(default)s)")
    parser.add_argument("--pause", type=float, default=30.0, help="seconds between two restarts (%(default).0f)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines (%(default).0f)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".work" / "hosts", help="emptied first (%(default)s)")
    asked = parser.parse_args()
    # The clients that check whether replicas are in sync would log a warning for each node that is down.
    logging.getLogger("kafka_sink").setLevel(logging.ERROR)
    for number in SIGNALS:
        signal.signal(number, end_early)
    signal.signal(signal.SIGALRM, _end_late)
    signal.setitimer(signal.ITIMER_REAL, asked.minutes * 60 + _AFTER_S)

    shutil.rmtree(asked.folder, ignore_errors=True)
    try:
        wrong = _run(asked, asked.folder)
    except KeyboardInterrupt:
        wrong = ["asked to end before anything could be said"]
    for line in wrong:
        print(f"WRONG: {line}", flush=True)
    if wrong:
        print(f"logs: {asked.folder}", flush=True)
        sys.exit(1)
    for name in ("kafka", "spark"):
        shutil.rmtree(asked.folder / name)


if __name__ == "__main__":
    main()
