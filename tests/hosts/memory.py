"""Memory and file descriptors of all processes, by kind.

Restarts end most processes after one rotation. The checks use the processes that are not restarted in the second half:
the driver with its JVM, the largest Python worker of the driver, which plans and commits, and the largest Python worker
of the spared host.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.bench import resources
from tests.hosts.cluster import HOSTS, SPARED, SparkCluster, is_executor
from tests.spark.soak import JUDGED_FROM_S, Usage, Watch

_DRIVER, _JVM, _PLANNER, _WORKER = "driver", "driver's JVM", "driver's largest worker", "spared host's largest worker"
JUDGED: Final = (_DRIVER, _JVM, _PLANNER, _WORKER)
_CURVE_S: Final = 600.0


class Memory:
    """Samples are also written to *file*, a line of JSON each: seconds, and by kind processes, MiB and descriptors."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._samples: list[tuple[float, dict[str, Usage]]] = []

    def sample(self, elapsed_s: float, driver: int | None, spark: SparkCluster, kafka: Iterable[int]) -> None:
        self.add(elapsed_s, dict(_usages(driver, spark, kafka)))

    def add(self, elapsed_s: float, usages: dict[str, Usage]) -> None:
        self._samples.append((elapsed_s, usages))
        values = {name: [each.processes, round(each.mib, 1), each.descriptors] for name, each in usages.items()}
        with self._file.open("a") as file:
            file.write(f"{json.dumps({'s': round(elapsed_s), **values})}\n")

    def __str__(self) -> str:
        usages: Mapping[str, Usage] = self._samples[-1][1] if self._samples else {}
        return "  ".join(f"{name} {usage.mib:.0f} MiB, {usage.descriptors} fd" for name, usage in usages.items())

    def growth(self, from_s: float) -> list[str] | None:
        """Return a description of each value that has grown since *from_s*; None if that time is too short to tell."""
        judged = [(at, usages) for at, usages in self._samples if at >= from_s]
        if not judged or judged[-1][0] - judged[0][0] < JUDGED_FROM_S * 0.95:
            return None
        samples = {name: [usages[name] for _, usages in judged if usages[name].processes] for name in JUDGED}
        return Watch({name: usages for name, usages in samples.items() if usages}).growth()

    def curve(self) -> Iterator[str]:
        """Yield a line with medians for each ten minutes."""
        for begin in range(0, int(self._samples[-1][0] if self._samples else 0) + 1, int(_CURVE_S)):
            inside = [usages for at, usages in self._samples if begin <= at < begin + _CURVE_S]
            if inside:
                kinds = "  ".join(f"{name} {_medians(usages[name] for usages in inside)}" for name in inside[0])
                yield f"from {begin // 60:3} min  {kinds}"


def _medians(usages: Iterable[Usage]) -> str:
    """The medians of the samples that have such processes."""
    usages = [usage for usage in usages if usage.processes] or [Usage(0, 0, 0)]
    mib = statistics.median(usage.mib for usage in usages)
    return f"{mib:.0f} MiB, {statistics.median(usage.descriptors for usage in usages):.0f} fd"


def _usages(driver: int | None, spark: SparkCluster, kafka: Iterable[int]) -> Iterator[tuple[str, Usage]]:
    below = set() if driver is None else resources.descendants(driver)
    java = {pid for pid in below if _is_java(pid)}
    yield _DRIVER, Usage.of([] if driver is None else [driver])
    # Hadoop runs chmod for each file of the checkpoint; the forked process is a copy of the JVM until it execs.
    yield _JVM, Usage.of(pid for pid in java if resources.parent(pid) not in java)
    yield _PLANNER, _largest(filter(_is_python_worker, below))
    by_host = {host: spark.below(host) for host in HOSTS}
    yield _WORKER, _largest(filter(_is_python_worker, by_host[SPARED]))
    everything = set().union(*by_host.values())
    yield "executors", Usage.of(filter(is_executor, everything))
    yield "all workers", Usage.of(filter(_is_python_worker, everything))
    yield "Kafka", Usage.of(kafka)


def _largest(pids: Iterable[int]) -> Usage:
    return max((Usage.of([pid]) for pid in pids), key=lambda usage: usage.mib, default=Usage(0, 0, 0))


def _is_java(pid: int) -> bool:
    return resources.command(pid).split(" ")[0].endswith("java")


def _is_python_worker(pid: int) -> bool:
    return "pyspark.daemon" in resources.command(pid)
