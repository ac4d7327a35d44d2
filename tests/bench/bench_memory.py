"""The memory of every process of a job, during and after its write.

Run by ``scripts/bench.sh memory``. Each case has its own Spark with two concurrent tasks in a separate process, because
a process rarely returns memory to the system. RSS counts pages that processes share in each of them, PSS divides them
among these processes, and private memory excludes them. The sum of PSS is close to the memory that Kubernetes counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kafka_sink import write
from tests.bench import resources, results
from tests.bench.listeners import read_listeners
from tests.bench.resources import Memory
from tests.bench.spark_sinks import SINKS, rows, session
from tests.bench.topics import SMALL_LOG, fresh_topic
from tests.support.securities import PLAINTEXT, SSL

_INTERVAL_S: Final = 0.1
_LIMIT_S: Final = 1800
_KIB_A_MIB: Final = 1024
#: The roles of a job's processes: the driver's, the daemon that forks Spark's Python processes, and its children.
PROGRAM, JVM, DAEMON, WORKER, PLANNER = "the program", "JVM", "daemon", "worker", "planner"


@dataclass(frozen=True)
class Case:
    """*way* is "once", "parallel", or "atomic", by ``kafka_sink.write``."""

    count: int
    partitions: int = 10
    shape: str = "keyed"
    way: str = "once"
    security: str = PLAINTEXT.name


CASES: Final[Mapping[str, Case]] = {
    "3 rows": Case(3),
    "1 M rows": Case(1_000_000),
    "3 M rows": Case(3_000_000),
    "3 M rows, 1,000 partitions": Case(3_000_000, 1000),
    "3 M rows, TLS": Case(3_000_000, security=SSL.name),
    "3 M rows, parallel": Case(3_000_000, way="parallel"),
    "3 M rows, atomic": Case(3_000_000, way="atomic"),
    "1 M rows of 1 kB": Case(1_000_000, shape="1 kB"),
    "100 M rows": Case(100_000_000),
}


def _role(pid: int, program: int) -> str | None:
    """Return the role of a process; None for one that ends at once, such as the shells that start a JVM."""
    command = resources.command(pid)
    if pid == program:
        return PROGRAM
    if "java" in command.split(" ", 1)[0]:
        return JVM
    if "pyspark.daemon" not in command:
        return None
    if "pyspark.daemon" not in resources.command(resources.parent(pid)):
        return DAEMON
    # A daemon's command line names the module that its processes run.
    return PLANNER if "pyspark.sql.worker." in command else WORKER


class Watch:
    """The maximum of each figure over the processes of a role, and the largest number of them at a time."""

    def __init__(self) -> None:
        self.most: dict[str, Memory] = {}
        self.count: dict[str, int] = defaultdict(int)

    def sample(self) -> None:
        found: dict[str, list[Memory]] = defaultdict(list)
        for pid in resources.descendants(os.getpid()):
            role, memory = _role(pid, os.getpid()), resources.memory(pid)
            if role is not None and memory is not None:
                found[role].append(memory)
        for role, memories in found.items():
            self.count[role] = max(self.count[role], len(memories))
            every = [*memories, self.most.get(role, memories[0])]
            self.most[role] = Memory(*map(max, zip(*map(astuple, every), strict=True)))

    @contextmanager
    def watching(self) -> Iterator[None]:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_INTERVAL_S):
                self.sample()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def result(self) -> dict[str, Any]:
        return {role: {"count": self.count[role], **asdict(memory)} for role, memory in self.most.items()}


def measure(case: Case, properties: Mapping[str, str], plain: str) -> dict[str, Any]:
    """Write the rows of *case* in a new session of this process; return the maxima of each role during and after it."""
    during, after = Watch(), Watch()
    options = {f"kafka.{name}": value for name, value in properties.items()}
    spark = session("", 2, with_null=False)
    try:
        with fresh_topic(plain, case.partitions, SMALL_LOG) as topic, during.watching():
            data = rows(spark, case.shape, case.count, 2)
            if case.way == "atomic":
                write(data, options=options, topic=topic, app_id=topic, version=1)
            else:
                once = {"txnAppId": topic, "txnVersion": "1"} if case.way == "parallel" else {}
                SINKS["kafkalite"](data, topic, properties["bootstrap.servers"], options | once)
            after.sample()
        return {"during": during.result(), "after": after.result()}
    finally:
        spark.stop()


def _in_a_process(name: str, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.bench_memory", "--case", name, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(found: Mapping[str, Any], console: Console) -> None:
    for when in ("during", "after"):
        table = Table(title=f"MiB of each process {when} the write: RSS / private / PSS / address space")
        for heading in ("write", PROGRAM, JVM, PLANNER, DAEMON, WORKER):
            table.add_column(heading)
        for name, result in found.items():
            table.add_row(name, *(_cell(result[when].get(role)) for role in (PROGRAM, JVM, PLANNER, DAEMON, WORKER)))
        console.print(table)


def _cell(figures: Mapping[str, int] | None) -> str:
    if figures is None:
        return "–"
    sizes = " / ".join(f"{figures[name] / _KIB_A_MIB:.0f}" for name in ("rss", "private", "pss", "address_space"))
    return sizes if figures["count"] == 1 else f"{figures['count']} × {sizes}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--listeners", type=Path, help="properties of clients by security, for TLS")
    parser.add_argument("--cases", default=";".join(CASES), help="separated by semicolons (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of rows")
    parser.add_argument("--case", help="the one that this process measures")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    options = parser.parse_args()
    listeners = read_listeners(options.bootstrap_servers, options.listeners)
    if options.case is not None:
        asked = CASES[options.case]
        case = Case(**{**asdict(asked), "count": max(int(asked.count * options.scale), 3)})
        print(json.dumps(measure(case, listeners[case.security], options.bootstrap_servers)))
        return
    arguments = ["--bootstrap-servers", options.bootstrap_servers, "--scale", str(options.scale)]
    arguments += [] if options.listeners is None else ["--listeners", str(options.listeners)]
    names = [name for name in options.cases.split(";") if CASES[name].security in listeners]
    found = {name: _in_a_process(name, arguments) for name in names}
    show(found, Console(highlight=False, width=160))
    if options.results is not None:
        results.save("memory", {"cases": found}, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
