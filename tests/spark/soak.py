"""Micro-batches written exactly once for a given time, counted and monitored by another program.

Run by ``scripts/soak.sh``. The stream is a separate program (:mod:`tests.spark.soak_driver`); this one reads the
committed rows with confluent-kafka, and monitors the stream's processes. Exit code 1: rows are missing or duplicated,
the stream ended unexpectedly, or memory or descriptors are not flat.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from kafka_sink.spark.streaming.progress import progress_listener
from tests.bench import resources
from tests.bench.listeners import read_listeners
from tests.bench.topics import fresh_topic

ROOT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 4
#: The soak reads the topic as it grows, so the disk need not store all of it.
RETENTION: Final = {"retention.bytes": "200000000", "segment.bytes": "50000000", "file.delete.delay.ms": "1000"}

#: Shorter runs do not check memory and descriptors: pools and caches fill, and the JVM compiles.
JUDGED_FROM_S: Final = 600.0
#: The maximum growth from the second quarter's median to the last quarter's.
GROWTH_SHARE: Final = 0.1
GROWTH_MIB: Final = 20.0
GROWTH_DESCRIPTORS: Final = 10.0

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SAMPLE_INTERVAL_S: Final = 5.0
_START_LIMIT_S: Final = 240.0
_STOP_LIMIT_S: Final = 120.0
#: The time within which the rows of a reported batch become visible.
_SETTLE_S: Final = 30.0
_MIB: Final = 2**20


class Ledger:
    """Counts how often each row was read."""

    def __init__(self) -> None:
        self._counts = np.zeros(1 << 20, np.uint16)

    def add(self, rows: Iterable[int]) -> None:
        numbers = np.fromiter(rows, np.int64)
        if not numbers.size:
            return
        if (most := int(numbers.max())) >= self._counts.size:
            self._counts = np.concatenate([self._counts, np.zeros(max(most, self._counts.size), np.uint16)])
        np.add.at(self._counts, numbers, 1)

    def missing(self, expected: int) -> int:
        """Return the number of rows from 0 to *expected* - 1 that were not read."""
        known = self._counts[:expected]
        return expected - int(np.count_nonzero(known))

    @property
    def twice(self) -> int:
        """Return the number of rows that were read more than once."""
        return int(np.count_nonzero(self._counts > 1))


class CommittedReader:
    """Reads the committed records of a topic from its beginning, as it grows."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "soak",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "check.crcs": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def read(self, ledger: Ledger, limit_s: float) -> None:
        """Add the available rows to *ledger*, for at most *limit_s*."""
        deadline = time.monotonic() + limit_s
        ended: set[int] = set()
        while len(ended) < PARTITIONS and time.monotonic() < deadline:
            rows = []
            for message in self._consumer.consume(10_000, timeout=0.1):
                error, key, partition = message.error(), message.key(), message.partition()
                if error is None:
                    assert key is not None
                    rows.append(int(key))
                elif error.code() == KafkaError._PARTITION_EOF:
                    assert partition is not None
                    ended.add(partition)
                else:
                    raise RuntimeError(f"the topic cannot be read: {error}")
            ledger.add(rows)


@dataclass(frozen=True, slots=True)
class Usage:
    """The processes of one kind at one moment, with their memory and descriptors."""

    processes: int
    mib: float
    descriptors: int

    @staticmethod
    def of(pids: Iterable[int]) -> Usage:
        running = [pid for pid in pids if resources.resident_bytes(pid)]
        mib = sum(map(resources.resident_bytes, running)) / _MIB
        return Usage(len(running), mib, sum(map(resources.open_descriptors, running)))


@dataclass(slots=True)
class Watch:
    """Memory and descriptors of a Spark driver and of its child processes, by kind of process."""

    samples: dict[str, list[Usage]] = field(default_factory=dict)

    def sample(self, driver: int) -> None:
        below = resources.descendants(driver)
        workers = {pid for pid in below if "pyspark.daemon" in resources.command(pid)}
        jvm = {pid for pid in below if resources.command(pid).split(" ")[0].endswith("java")}
        # Hadoop runs a chmod for each file of the checkpoint, which is a copy of the JVM until its exec.
        jvm = {pid for pid in jvm if resources.parent(pid) not in jvm}
        for name, pids in (("driver", {driver}), ("JVM", jvm), ("workers", workers)):
            self.samples.setdefault(name, []).append(Usage.of(pids))

    def __str__(self) -> str:
        newest = ((name, samples[-1]) for name, samples in self.samples.items())
        return "  ".join(
            f"{name}{f' ({usage.processes})' if name == 'workers' else ''} {usage.mib:.0f} MiB, {usage.descriptors} fd"
            for name, usage in newest
        )

    def growth(self) -> list[str]:
        """Return a text for each figure that has grown too much."""
        found = []
        for name, samples in self.samples.items():
            for unit, slack, values in (
                ("MiB", GROWTH_MIB, [usage.mib for usage in samples]),
                ("descriptors", GROWTH_DESCRIPTORS, [float(usage.descriptors) for usage in samples]),
            ):
                before, after = quarters(values)
                if after > before * (1 + GROWTH_SHARE) + slack:
                    found.append(f"{name}: {before:.0f} {unit} in the second quarter, {after:.0f} in the last")
        return found


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the second quarter and of the last one."""
    quarter = max(len(values) // 4, 1)
    return statistics.median(values[quarter : 2 * quarter] or values), statistics.median(values[-quarter:])


class Stream:
    """The program that writes, with its folder: options, checkpoint, log, and the report of its batches."""

    def __init__(self, folder: Path, options: dict[str, str], rows: int, tasks: int) -> None:
        self._rows = rows
        self._log = folder / "driver.log"
        report, file = folder / "report.jsonl", folder / "options.json"
        file.write_text(json.dumps({**options, "reportPath": str(report)}))
        self._report = progress_listener(report)
        self.batches = 0
        command = ["tests.spark.soak_driver", str(file), str(rows), str(tasks), str(folder / "checkpoint")]
        with self._log.open("wb") as log:
            # Only the soak gets Ctrl-C; it then stops this program.
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )
        self._is_stopping = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def rows_reported(self) -> int:
        """Return the number of rows in the batches reported as committed; RuntimeError if the stream has ended."""
        for progress in self._report.read_new():
            self.batches = max(self.batches, progress.batch + 1)
        if self._process.poll() is not None and not self._is_stopping:
            raise RuntimeError(f"the stream ended by itself:\n{self._last_words()}")
        return self.batches * self._rows

    def stop(self) -> None:
        """Stop the stream after its current micro-batch; RuntimeError if it ends in another way."""
        self._is_stopping = True
        self._process.terminate()
        try:
            status = self._process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the stream did not end within {_STOP_LIMIT_S:.0f} s:\n{self._last_words()}") from None
        if status != 0:
            raise RuntimeError(f"the stream ended with {status}:\n{self._last_words()}")

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """Kill the program and its child processes if it still runs, after an error."""
        if self._process.poll() is None:
            for pid in resources.descendants(self.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self._process.wait()


class Soak:
    """One run: a stream, its reader and its monitor."""

    def __init__(self, stream: Stream, reader: CommittedReader) -> None:
        self._stream, self._reader = stream, reader
        self._ledger, self._watch = Ledger(), Watch()

    def run(self, seconds: float, every_s: float) -> list[str]:
        """Run for *seconds*, and print a line *every_s*; return a text for each error."""
        self._await_first_batch()
        began = time.monotonic()
        told_s = 0.0
        try:
            while (elapsed_s := time.monotonic() - began) < seconds:
                time.sleep(min(_SAMPLE_INTERVAL_S, seconds - elapsed_s))
                self._stream.rows_reported()
                self._watch.sample(self._stream.pid)
                self._reader.read(self._ledger, _SAMPLE_INTERVAL_S)
                if time.monotonic() - began >= told_s + every_s:
                    told_s += every_s
                    self._tell(time.monotonic() - began)
        except KeyboardInterrupt:
            print("asked to end before its time", flush=True)
        watched_s = time.monotonic() - began
        self._stream.stop()
        missing, twice = self._tell(watched_s)
        wrong = [f"{missing:,} rows are missing"] if missing else []
        wrong += [f"{twice:,} rows are there twice"] if twice else []
        if watched_s >= JUDGED_FROM_S:
            return [*wrong, *self._watch.growth()]
        print(f"too short to judge memory and descriptors by: that is done from {JUDGED_FROM_S / 60:.0f} minutes on")
        return wrong

    def _await_first_batch(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._stream.rows_reported():
            if time.monotonic() > deadline:
                raise RuntimeError(f"no batch was written within {_START_LIMIT_S:.0f} s")
            time.sleep(0.2)

    def _tell(self, elapsed_s: float) -> tuple[int, int]:
        expected = self._stream.rows_reported()
        deadline = time.monotonic() + _SETTLE_S
        while True:
            self._reader.read(self._ledger, _SAMPLE_INTERVAL_S)
            missing, twice = self._ledger.missing(expected), self._ledger.twice
            if not missing or time.monotonic() > deadline:
                break
        print(
            f"{elapsed_s / 60:6.1f} min  {expected:,} rows in {self._stream.batches:,} batches  missing {missing:,}  "
            f"twice {twice:,}  {self._watch}",
            flush=True,
        )
        return missing, twice


def end_early(number: int, frame: FrameType | None) -> None:
    """End the run with its count at the first signal; Ctrl-C may arrive twice, from the terminal and the script."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True, help="of the PLAINTEXT listener, which is read from")
    parser.add_argument("--listeners", type=Path, required=True, help="JSON file: properties of clients by security")
    parser.add_argument("--folder", type=Path, required=True, help="an empty one, for checkpoint, report and log")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines (%(default).0f)")
    parser.add_argument("--rows", type=int, default=1000, help="of a micro-batch (%(default)s)")
    parser.add_argument("--tasks", type=int, default=4, help="of a micro-batch (%(default)s)")
    parser.add_argument("--security", default="SASL_SSL", help="of the listener that is written to (%(default)s)")
    asked = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, end_early)

    properties = read_listeners(asked.bootstrap_servers, asked.listeners)[asked.security]
    options = {f"kafka.{name}": value for name, value in properties.items()}
    options |= {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "soak"}
    with fresh_topic(asked.bootstrap_servers, PARTITIONS, RETENTION) as topic:
        stream = Stream(asked.folder, {**options, "topic": topic}, asked.rows, asked.tasks)
        try:
            with CommittedReader(asked.bootstrap_servers, topic) as reader:
                wrong = Soak(stream, reader).run(asked.minutes * 60, asked.every)
        except RuntimeError as error:
            wrong = [str(error)]
        except KeyboardInterrupt:
            wrong = ["asked to end before anything could be said"]
        finally:
            stream.kill()
    for line in wrong:
        print(f"WRONG: {line}", flush=True)
    if wrong:
        sys.exit(1)
    print("nothing missing, nothing twice", flush=True)


if __name__ == "__main__":
    main()
