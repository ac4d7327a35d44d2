"""The memory of pods while they run, as their cgroups (version 1) count it."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kubernetes_cluster import POD_CGROUPS

_PERIOD_S: Final = 0.3


@dataclass
class Memory:
    """In bytes: the most that its processes had resident at a time, and its limit. How many of them the kernel killed
    because they were over it."""

    resident: int = 0
    limit: int = 0
    killed: int = 0


class PodMemory:
    """As a context manager: watches all pods. *pods* are those seen, by their UIDs."""

    def __init__(self) -> None:
        self.pods: dict[str, Memory] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            for folder in POD_CGROUPS.glob("*/pod*"):
                # A pod may end in between.
                with suppress(OSError):
                    self._read(folder, self.pods.setdefault(folder.name.removeprefix("pod"), Memory()))

    @staticmethod
    def _read(folder: Path, memory: Memory) -> None:
        memory.resident = max(memory.resident, _number(folder / "memory.stat", "total_rss"))
        memory.limit = int((folder / "memory.limit_in_bytes").read_text())
        # Each counts its own processes.
        killed = sum(_number(file, "oom_kill") for file in folder.rglob("memory.oom_control"))
        memory.killed = max(memory.killed, killed)

    def __enter__(self) -> PodMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def _number(file: Path, name: str) -> int:
    return int(dict(line.split() for line in file.read_text().splitlines())[name])
