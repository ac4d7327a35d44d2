"""Runs chaos for some minutes; see ``scripts/chaos.sh``."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from kafka_sink.client.blocking.admin import AdminClient
from scripts.pages import print_into
from tests.chaos.faults import CLUSTER_FAULTS, FAULTS, Fault, World, pairs
from tests.chaos.servers import SECURITIES, running_servers
from tests.chaos.spark import Program, options_of
from tests.chaos.verdict import NAMES, Cell, OfWay, judge, table, wrong
from tests.support.four_ways import WAYS
from tests.support.standalone_cluster import StandaloneCluster

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path(__file__).parent / "results.md"

#: How long rows are written before the faults begin, and after they end.
_CALM_S: Final = 2.0
#: The longest time between the beginnings of two faults, and how long both last together.
_APART_S: Final = 2.0
_HOLD_S: Final = 6.0
_CATCH_UP_S: Final = 300.0
_START_S: Final = 240.0
#: Shorter than a fault, so that clients notice it.
_REQUEST_MS: Final = 4000


class Chaos:
    def __init__(self, world: World, faults: Sequence[Fault], seed: int) -> None:
        self._world, self._program = world, world.program
        self._faults = tuple(faults)
        self._chance = random.Random(seed)
        self.cells: list[Cell] = []

    def run(self, minutes: float) -> None:
        """Run every fault alone, then two at a time, until the time is over or a way to write is stuck."""
        self._program.source.add()
        self._program.start()
        if stuck := self._program.await_all(_START_S):
            raise RuntimeError(f"nothing was written within {_START_S:.0f} s by {', '.join(stuck)}")
        end = time.monotonic() + minutes * 60
        for faults in self._schedule():
            if time.monotonic() > end:
                return
            cell = self._cell(faults)
            self.cells.append(cell)
            print(f"{(end - time.monotonic()) / 60:6.1f} min left  {cell}", flush=True)
            if cell.stuck:
                return

    def _schedule(self) -> Iterator[tuple[Fault, ...]]:
        while True:
            yield from ((fault,) for fault in self._faults)
            together = pairs(self._faults)
            self._chance.shuffle(together)
            yield from together

    def _cell(self, faults: Sequence[Fault]) -> Cell:
        program = self._program
        # The first cell has the batches that were written before it.
        first = program.source.files if self.cells else 0
        failures = len(program.failures)
        begun = time.monotonic()
        with program.fed():
            time.sleep(_CALM_S)
            with contextlib.ExitStack() as happening:
                for number, fault in enumerate(faults):
                    time.sleep(self._chance.uniform(0, _APART_S) if number else 0)
                    happening.enter_context(fault.happens(self._world))
                time.sleep(_HOLD_S)
            over = time.monotonic()
            time.sleep(_CALM_S)
        stuck = program.await_all(_CATCH_UP_S)
        self._world.await_replicas()
        torn = Counter(each.way for each in program.failures[failures:] if each.is_torn)
        ways = {way: self._of_way(way, begun, over, torn[way]) for way in WAYS}
        return Cell(tuple(fault.name for fault in faults), first, program.source.files, ways, stuck)

    def _of_way(self, way: str, begun: float, over: float, torn: int) -> OfWay:
        times = [at for at in self._program.times[way] if at >= begun]
        stall_s = max((later - earlier for earlier, later in zip([begun, *times], times, strict=False)), default=0.0)
        resumed = next((at - over for at in times if at >= over), None)
        return OfWay(stall_s, resumed, torn)


def _end_early(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(asked: argparse.Namespace, folder: Path) -> tuple[list[Cell], list[str]]:
    faults = CLUSTER_FAULTS if asked.cluster else FAULTS
    chance = random.Random(asked.seed)
    name = f"chaos-{os.urandom(4).hex()}"
    with contextlib.ExitStack() as running:
        kafka = folder / "kafka"
        kafka.mkdir()
        security = SECURITIES[asked.security]
        servers = running.enter_context(running_servers(kafka, security, two_phase=asked.two_phase, seed=asked.seed))
        with AdminClient(servers.looks) as admin:
            for way in WAYS:
                admin.create_topic(f"{name}-{way}", 4, 3)
                admin.create_topic(f"{name}-{way}-rejected", 2, 3)
        cluster = None
        if asked.cluster:
            (folder / "cluster").mkdir()
            environ = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
            cluster = StandaloneCluster(folder / "cluster", environ)
            running.callback(cluster.stop)
        (folder / "spark").mkdir()
        options = options_of({**servers.properties, "request.timeout.ms": str(_REQUEST_MS)})
        bootstrap = servers.properties["bootstrap.servers"]
        program = running.enter_context(Program(folder / "spark", bootstrap, name, options, cluster))
        chaos = Chaos(World(servers, program, chance, folder), faults, asked.seed)
        try:
            chaos.run(asked.minutes)
        except KeyboardInterrupt:
            print("asked to end before its time", flush=True)
        print(f"between nodes: {servers.between.toll}", flush=True)
        if chaos.cells:
            judge(servers.looks, name, chaos.cells)
        stops = [f"{each.way}: {each.summary}" for each in program.failures if not each.is_without_jvm]
        return chaos.cells, stops


def _write_page(heading: str, text: str) -> None:
    """Replace the section of the page that has this heading, or add it."""
    page = PAGE.read_text()
    if f"<!-- {heading}: begin -->" not in page:
        PAGE.write_text(f"{page.rstrip()}\n\n<!-- {heading}: begin -->\n<!-- {heading}: end -->\n")
    print_into(PAGE, heading, f"## {heading}\n\n{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/chaos.sh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--security", choices=sorted(SECURITIES), default="PLAINTEXT")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    parser.add_argument("--version", required=True, help="of Kafka, as it is named in the table")
    parser.add_argument("--two-phase", action="store_true", help="the brokers offer two-phase commit")
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--results", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _end_early)
    # Every fault affects the clients of this process, too.
    logging.disable(logging.WARNING)
    print(f"seed {asked.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=ROOT / ".work"))
    cells, stops = _run(asked, folder)
    faults = [fault.name for fault in (CLUSTER_FAULTS if asked.cluster else FAULTS)]
    text = table(cells, faults)
    print(text)
    batches = sum(cell.batches for cell in cells)
    summary = (
        f"{len(cells)} rounds, {batches:,} batches in each of {len(NAMES)} ways; ways that stopped and were begun "
        f"again: {len(stops)}"
    )
    print(summary)
    for line in stops:
        print(f"  {line}")
    if asked.results:
        where = "a standalone Spark cluster" if asked.cluster else "one Spark"
        _write_page(f"Kafka {asked.version}, {asked.security}, {where}", f"{summary} (seed {asked.seed}).\n\n{text}")
    broken = wrong(cells)
    for line in broken:
        print(f"WRONG: {line}", flush=True)
    if broken or not cells:
        print(f"logs are kept in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)
    print("nothing missing, nothing twice, nothing torn", flush=True)


if __name__ == "__main__":
    main()
