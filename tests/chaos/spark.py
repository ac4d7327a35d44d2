"""The Spark program that writes, as its supervisor sees it: its files, its processes and its progress."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_sink.spark.streaming.progress import progress_listener
from tests.bench.resources import command, descendants, python_workers
from tests.support.four_ways import BATCH, WAYS
from tests.support.killed_spark import LINES, kill_session, start_four_ways
from tests.support.standalone_cluster import StandaloneCluster

_LOOK_S: Final = 0.05
#: The interval between two files, and the number of unwritten files of a way from which on no file is added.
_FILE_S: Final = 0.5
_MOST_BEHIND: Final = 8

#: Spark retries failed tasks, as on a cluster.
_LOCAL: Final = "local[8,4]"
_ON_A_CLUSTER: Final = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.executor.memory=512m",
    "spark.driver.host=127.0.0.1",
)


@dataclass(frozen=True)
class Failure:
    """The error of a way to write that failed and was restarted."""

    way: str
    text: str

    @property
    def is_torn(self) -> bool:
        return "TornBatchError" in self.text

    @property
    def is_without_jvm(self) -> bool:
        """Whether the way could not be restarted, because its JVM is dead."""
        return "Connection refused" in self.text.splitlines()[0]

    @property
    def summary(self) -> str:
        """The sink's own error, or else the first line."""
        own = [line for line in self.text.splitlines() if "kafka_sink." in line and "Error: " in line]
        return (own or self.text.strip().splitlines())[0][:300]


class Source:
    """A folder of files with :data:`LINES` lines each, one for each batch. Files are added atomically."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = 0
        (folder / "source").mkdir()

    def add(self) -> None:
        file = self._folder / f"{self.files:05}"
        file.write_text("".join(f"{self.files}-{line}\n" for line in range(LINES)))
        file.rename(self._folder / "source" / f"{self.files:05}.txt")
        self.files += 1


class Program:
    """*name* is the prefix of the names of topics and sinks; *options* apply to each way to write."""

    def __init__(
        self, folder: Path, bootstrap: str, name: str, options: Sequence[str], cluster: StandaloneCluster | None
    ) -> None:
        self.folder, self._bootstrap, self.name = folder, bootstrap, name
        self._options, self.cluster = tuple(options), cluster
        self.source = Source(folder)
        for way in WAYS:
            (folder / way).mkdir()
        self._batches = progress_listener(folder / BATCH / "report.jsonl")
        self._failures_read = dict.fromkeys(WAYS, 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        #: How many files each way has written, and the times (s, monotonic) at which this number grew.
        self.written = dict.fromkeys(WAYS, 0)
        self.times: dict[str, list[float]] = {way: [] for way in WAYS}
        self.failures: list[Failure] = []
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Program:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._watcher.join()
        if self._process is not None:
            kill_session(self._process)

    # --- processes ---------------------------------------------------------------------------------------------------

    def start(self, options: Sequence[str] = ()) -> None:
        """Start the driver, with further *options*."""
        confs = _ON_A_CLUSTER if self.cluster else ()
        with (self.folder / "log.txt").open("ab") as log:
            self._process = start_four_ways(
                [self._bootstrap, self.name, str(self.folder), ",".join(WAYS), "--supervised"],
                [*self._options, *options],
                master=self.cluster.master if self.cluster else _LOCAL,
                confs=confs,
                log=log,
            )

    def stop(self) -> None:
        """End the driver and its child processes."""
        self._running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._running.wait(10)
        kill_session(self._running)

    def kill(self) -> None:
        kill_session(self._running)

    def replace(self) -> subprocess.Popen[bytes]:
        """Start another driver while the current one runs, and return the current one."""
        before = self._running
        self.start()
        return before

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def all_processes(self) -> list[int]:
        """The driver, its JVM and, in local mode, their Python workers."""
        return sorted(descendants(self._running.pid))

    def jvm(self) -> list[int]:
        return [pid for pid in self.all_processes() if "SparkSubmit" in command(pid)][:1]

    def executors(self) -> list[int]:
        return self.cluster.executors() if self.cluster else []

    def python_workers(self) -> list[int]:
        """The Python workers of the executors, or of the driver in local mode."""
        roots = self.executors() if self.cluster else [self._running.pid]
        return sorted(pid for root in roots for pid in python_workers(root))

    # --- progress ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def fed(self) -> Iterator[None]:
        """Within, files arrive, as long as every way keeps up."""
        is_over = threading.Event()

        def feed() -> None:
            while not is_over.wait(_FILE_S):
                if self.source.files - min(self.written.values()) < _MOST_BEHIND:
                    self.source.add()

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def await_all(self, limit_s: float) -> list[str]:
        """Wait until every way has written every file. A driver that has ended is restarted.

        :return: the ways that did not finish within *limit_s*.
        """
        deadline = time.monotonic() + limit_s
        while behind := [way for way in WAYS if self.written[way] < self.source.files]:
            if time.monotonic() > deadline:
                return behind
            if self._running.poll() is not None:
                kill_session(self._running)
                self.start()
            time.sleep(_LOOK_S)
        return []

    def await_each(self, limit_s: float) -> None:
        """Wait until every way has written another batch."""
        before = dict(self.written)
        deadline = time.monotonic() + limit_s
        while any(self.written[way] == before[way] for way in WAYS) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            now = time.monotonic()
            for way in WAYS:
                written = self._files_of_batches() if way == BATCH else self._files_of_stream(way)
                if written > self.written[way]:
                    self.written[way] = written
                    self.times[way].append(now)
                self._read_failures(way)

    def _files_of_batches(self) -> int:
        return max((progress.batch + 1 for progress in self._batches.read_new()), default=0)

    def _files_of_stream(self, way: str) -> int:
        """Read from the checkpoint: a batch may have several files if a crash interrupted its planning."""
        checkpoint = self.folder / way / "checkpoint"
        batches = (int(file.name) for file in (checkpoint / "commits").glob("[0-9]*") if file.name.isdigit())
        try:
            planned = (checkpoint / "offsets" / str(max(batches))).read_text()
        except (OSError, ValueError):
            return 0
        return int(json.loads(planned.splitlines()[-1])["logOffset"]) + 1

    def _read_failures(self, way: str) -> None:
        file = self.folder / way / "failures.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        for line in lines[self._failures_read[way] :]:
            self.failures.append(Failure(way, json.loads(line)))
        self._failures_read[way] = len(lines)


@contextlib.contextmanager
def frozen(pids: Sequence[int]) -> Iterator[None]:
    """Within, the processes do nothing."""
    _signal(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pids, signal.SIGCONT)


def killed(pids: Sequence[int]) -> None:
    _signal(pids, signal.SIGKILL)


def some_of(pids: Sequence[int], chance: random.Random, count: int = 1) -> list[int]:
    return chance.sample(list(pids), min(count, len(pids)))


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def options_of(properties: Mapping[str, str]) -> list[str]:
    """Return producer options in the form that applies to every way."""
    return [f"kafka.{name}={value}" for name, value in properties.items()]
