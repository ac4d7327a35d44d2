"""The memory that Spark's settings leave a job's Python workers, beside what they need (docs/operating.md, Memory).

Two settings count. A cluster manager ends an executor whose processes together exceed its container:
``spark.executor.memory`` is the JVM's, and Python has part of ``spark.executor.memoryOverhead``, to which
``spark.executor.pyspark.memory`` is added. The latter also limits the address space of each worker
(:mod:`kafka_sink.spark.address_space`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kafka_sink.preflight.findings import Finding, Status
from kafka_sink.spark.address_space import ADVISED_MIB, LIMIT

STEP: Final = "memory"
OVERHEAD: Final = "spark.executor.memoryOverhead"

#: The most memory that a worker was seen with beside buffer.memory (``scripts/bench.sh memory``), rounded up.
WORKER_MIB: Final = 160

#: Powers of 1024 by the last letter of a size, in MiB.
_UNITS: Final[Mapping[str, int]] = {"": 0, "k": -1, "m": 0, "g": 1, "t": 2, "p": 3}
#: Spark's defaults.
_EXECUTOR_MIB: Final = 1024
_LEAST_OVERHEAD_MIB: Final = 384
_OVERHEAD_FACTOR: Final = 0.1
_KUBERNETES_FACTOR: Final = 0.4

#: The value of a setting of Spark; None if it is not set.
Setting = Callable[[str], str | None]


def mib(size: str) -> int:
    """A size as Spark's settings have it, such as ``512m`` or ``2g``; a number alone is in MiB."""
    found = re.fullmatch(r"\s*([0-9]+)([kmgtp]?)b?\s*", size, re.IGNORECASE)
    return int(int(found[1]) * 1024.0 ** _UNITS[found[2].lower()]) if found else 0


def memory_findings(setting: Setting, buffer: int) -> list[Finding]:
    """What *setting* says of executors whose tasks have *buffer* MiB of ``buffer.memory`` each; empty for a session
    without executors of its own and without a limit."""
    cores = int(setting("spark.executor.cores") or 1)
    tasks = max(1, cores // int(setting("spark.task.cpus") or 1))
    limit = setting(LIMIT)
    found = [] if limit is None else [_of_limit(mib(limit), cores, ADVISED_MIB + buffer)]
    master = setting("spark.master") or ""
    if master == "yarn" or master.startswith("k8s"):
        found.append(_of_container(setting, master, tasks, tasks * (WORKER_MIB + buffer)))
    return found


def _of_limit(limit: int, cores: int, needed: int) -> Finding:
    told = f"{limit} MiB, which are {limit // cores} MiB of address space for each worker"
    if limit // cores >= needed:
        return Finding(STEP, LIMIT, Status.OK, told)
    advice = f"set {LIMIT} to {needed * cores}m or more ({needed}m for each of spark.executor.cores), or not at all"
    return Finding(STEP, LIMIT, Status.WARNING, f"{told}; a write may need {needed} MiB", advice)


def _of_container(setting: Setting, master: str, tasks: int, needed: int) -> Finding:
    heap = mib(setting("spark.executor.memory") or f"{_EXECUTOR_MIB}m")
    factor = float(
        setting("spark.executor.memoryOverheadFactor")
        or (setting("spark.kubernetes.memoryOverheadFactor") or _KUBERNETES_FACTOR if master != "yarn" else 0)
        or _OVERHEAD_FACTOR
    )
    least = mib(setting("spark.executor.minMemoryOverhead") or f"{_LEAST_OVERHEAD_MIB}m")
    given = setting(OVERHEAD)
    default = max(int(heap * factor), least)
    left = (default if given is None else mib(given)) + mib(setting(LIMIT) or "0")
    told = f"{left} MiB beside the heap for the JVM and {tasks} Python workers"
    if left >= needed:
        return Finding(STEP, OVERHEAD, Status.OK, told)
    advice = f"set {OVERHEAD} to {default + needed}m or more, or the container may be killed"
    return Finding(STEP, OVERHEAD, Status.WARNING, f"{told}, which need up to {needed} MiB", advice)
