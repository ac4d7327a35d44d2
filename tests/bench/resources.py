"""CPU seconds, memory and descriptors of other processes, read from Linux's /proc.

Used by the benchmarks, on their own thread or on the thread of :class:`MemoryWatch`. It only reads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE_INTERVAL_S = 0.25


def available() -> bool:
    return Path("/proc/self/stat").exists()


def descendants(pid: int) -> set[int]:
    """Return *pid* and all of its descendants that run now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        fields = _stat(int(entry.name)) if entry.name.isdigit() else None
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = {pid}
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the command's name (which may contain spaces): state, parent, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def cpu_seconds(pids: Collection[int]) -> float:
    """Return the user and system time of *pids*, and of those of their children that have ended."""
    ticks = 0
    for pid in pids:
        fields = _stat(pid)
        if fields is not None:
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return the resident memory of *pid*; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@dataclass(frozen=True)
class Memory:
    """The memory of one process in KiB: resident, private (pages of no other process), its share of all pages, and its
    peak address space, which ``spark.executor.pyspark.memory`` limits."""

    rss: int
    private: int
    pss: int
    address_space: int


def memory(pid: int) -> Memory | None:
    """Return the memory of *pid*; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        lines += [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmPeak:")]
    except OSError:
        return None
    found = {line.split()[0]: int(line.split()[1]) for line in lines}
    if "VmPeak:" not in found or "Rss:" not in found:
        return None
    private = found["Private_Clean:"] + found["Private_Dirty:"]
    return Memory(found["Rss:"], private, found["Pss:"], found["VmPeak:"])


def python_workers(pid: int) -> set[int]:
    """Return Spark's Python workers below *pid*: the children of its daemons."""
    daemons = {below for below in descendants(pid) if "pyspark.daemon" in command(below)}
    return {worker for worker in daemons if parent(worker) in daemons}


def parent(pid: int) -> int:
    """Return the parent of *pid*; 0 if it has ended."""
    return int((_stat(pid) or ["", "0"])[1])


def open_descriptors(pid: int) -> int:
    """Return the number of open file descriptors of *pid*; 0 if it has ended."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def command(pid: int) -> str:
    """Return the command line of *pid*; an empty text if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@dataclass
class MemoryWatch:
    """The resident memory of Spark's Python workers while a block runs: a list of samples per process, in bytes."""

    samples: dict[int, list[int]] = field(default_factory=dict)

    @contextmanager
    def watching(self, pid: int) -> Iterator[MemoryWatch]:
        ended = threading.Event()

        def sample() -> None:
            for worker in python_workers(pid):
                self.samples.setdefault(worker, []).append(resident_bytes(worker))

        def watch() -> None:
            while not ended.wait(_SAMPLE_INTERVAL_S):
                sample()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()
            # Workers outlive their task by a minute, so this sample includes a write shorter than the interval.
            sample()
