"""Kills a Spark that writes exactly once in several ways repeatedly with kill -9, and then counts the rows.

Before each kill, every way is stopped at a different step, so that one kill tests several steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from kafka_sink.client.blocking.admin import AdminClient
from tests.support.four_ways import BAD
from tests.support.readback import read_values
from tests.support.step_proxy import Step, StepProxy

ROOT = Path(__file__).parents[2]
LINES = 100
#: One that is written, and one during which Spark is killed.
FILES_A_LIFE = 2
_LIFE_S = 300.0
#: Longer than the broker needs for a request that has passed the proxy.
_HANDLED_S = 0.2

ANY_MOMENT = "any moment"
BEFORE_COMMIT_LOG = "before Spark's commit log"
#: In the order of a batch, rotated so that the ways, which begin at different points, do not wait for each other.
_POINTS: tuple[Step | str, ...] = (
    Step.BETWEEN_ENDS,
    Step.IN_TASKS,
    Step.AFTER_DECISION,
    BEFORE_COMMIT_LOG,
    Step.IN_DECISION,
    ANY_MOMENT,
    Step.BEFORE_DECISION,
    Step.AFTER_ENDS,
)
#: An atomic batch is one transaction, so no EndTxn follows the decision.
_NOT_IN_ATOMIC = (Step.BETWEEN_ENDS, Step.AFTER_ENDS)


def points_of(way: str) -> list[Step | str]:
    return [point for point in _POINTS if not (way.endswith("atomic") and point in _NOT_IN_ATOMIC)]


@dataclass
class WayVerdict:
    """The rows of one way for a reader of committed records: valid ones in its topic, and invalid ones among its dead
    letters."""

    batches: int
    rows: int
    #: Dead letters.
    rejected: int
    missing: int
    twice: int
    extra: int
    #: Batches that a restarted Spark found committed and did not write again.
    skipped: int
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.twice or self.extra)

    def __str__(self) -> str:
        where = ", ".join(f"{count} {point}" for point, count in self.kills.items())
        return (
            f"{sum(self.kills.values())} kills ({where}), {self.batches} batches, {self.rows} rows, {self.rejected} of "
            f"them rejected: missing {self.missing}, twice {self.twice}, extra {self.extra}; {self.skipped} skipped"
        )


class KilledSpark:
    """*folder* must be empty and not shared; *proxy* is the brokers' proxy. With *point* every way is stopped there in
    place of alternating steps. After each kill Spark is restarted after *outage_s*. *options* are further ones of the
    writes, and *lines* the rows of a batch."""

    def __init__(
        self,
        proxy: StepProxy,
        bootstrap: str,
        ways: Sequence[str],
        folder: Path,
        *,
        point: Step | None = None,
        outage_s: float = 0,
        options: Sequence[str] = (),
        lines: int = LINES,
    ) -> None:
        self._lines_of_a_file = lines
        self._proxy, self._bootstrap, self._ways, self._folder = proxy, bootstrap, ways, folder
        self._point, self._outage_s, self._options = point, outage_s, options
        self._name = f"killed-{os.urandom(4).hex()}"
        self._random = random.Random(5)
        self._files = 0
        self._kills: dict[str, Counter[str]] = {way: Counter() for way in ways}
        (folder / "source").mkdir()
        with AdminClient(bootstrap) as admin:
            for way in ways:
                (folder / way).mkdir()
                admin.create_topic(f"{self._name}-{way}", 4)
                admin.create_topic(f"{self._name}-{way}-rejected", 2)

    def run(self, kills: int) -> dict[str, WayVerdict]:
        """Run and kill Spark *kills* times, and once more to write the rest; return the verdict of each way."""
        for number in range(kills):
            self._add_files(FILES_A_LIFE)
            points = {}
            for index, way in enumerate(self._ways):
                choice = points_of(way)
                points[way] = self._point or choice[(number + 2 * index) % len(choice)]
            self._live_until(points)
            time.sleep(self._outage_s)
        self._proxy.forget()
        process = self._start("--until-written")
        try:
            assert process.wait(_LIFE_S + 10 * self._files) == 0, self._log()
        finally:
            kill_session(process)
        return {way: self._judge(way) for way in self._ways}

    def _add_files(self, count: int) -> None:
        for number in range(self._files, self._files + count):
            file = self._folder / f"{number:04}"
            file.write_text("".join(f"{number}-{line}\n" for line in range(self._lines_of_a_file)))
            file.rename(self._folder / "source" / f"{number:04}.txt")
        self._files += count

    def _live_until(self, points: dict[str, Step | str]) -> None:
        before = {way: self._reports(way) for way in self._ways}
        for way, point in points.items():
            if isinstance(point, Step):
                # Not before its first batch, so that every run makes progress.
                self._proxy.aim(self._sink(way), point, partial(self._has_reported_since, way, before[way]))
        process = self._start()
        logged = [way for way in self._ways if points[way] == BEFORE_COMMIT_LOG]
        try:
            self._await(process, lambda: all(self._stands(way) for way in self._ways if isinstance(points[way], Step)))
            time.sleep(_HANDLED_S)
            # Ways without a stop may have written all files.
            self._add_files(1)
            if ANY_MOMENT in points.values():
                time.sleep(self._random.uniform(0, 1.5))
            if logged:
                seen = self._reports(logged[0])
                self._await(process, lambda: self._reports(logged[0]) > seen, pause_s=0.001)
        finally:
            kill_session(process)
        for way, point in points.items():
            is_near = way in logged[1:]
            self._kills[way][ANY_MOMENT if is_near else point.value if isinstance(point, Step) else point] += 1

    def _stands(self, way: str) -> bool:
        return self._proxy.is_hit(self._sink(way))

    def _sink(self, way: str) -> str:
        return f"{self._name}-{way}"

    def _await(self, process: subprocess.Popen[bytes], is_so: Callable[[], bool], *, pause_s: float = 0.01) -> None:
        deadline = time.monotonic() + _LIFE_S
        while not is_so():
            assert process.poll() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            time.sleep(pause_s)

    def _start(self, *flags: str) -> subprocess.Popen[bytes]:
        asked = [self._proxy.bootstrap_servers, self._name, str(self._folder), ",".join(self._ways), *flags]
        with (self._folder / "log.txt").open("ab") as log:
            return start_four_ways(asked, self._options, log=log)

    def _log(self) -> str:
        return (self._folder / "log.txt").read_text()[-4000:]

    def _lines(self, way: str) -> list[str]:
        report = self._folder / way / "report.jsonl"
        return report.read_text().splitlines() if report.exists() else []

    def _reports(self, way: str) -> int:
        return len(self._lines(way))

    def _has_reported_since(self, way: str, before: int) -> bool:
        return self._reports(way) > before

    def _judge(self, way: str) -> WayVerdict:
        lines = [f"{number}-{line}" for number in range(self._files) for line in range(self._lines_of_a_file)]
        expected = Counter((line.endswith(BAD), line.encode()) for line in lines)
        found = Counter((False, value) for value in read_values(self._bootstrap, f"{self._name}-{way}"))
        found.update((True, value) for value in read_values(self._bootstrap, f"{self._name}-{way}-rejected"))
        return WayVerdict(
            self._files,
            expected.total(),
            rejected=sum(count for (is_bad, _), count in found.items() if is_bad),
            missing=(expected - found).total(),
            twice=sum(count - 1 for value, count in found.items() if count > 1 and value in expected),
            extra=sum(count for value, count in found.items() if value not in expected),
            skipped=sum(json.loads(line)["decision"] in ("skipped", "older") for line in self._lines(way)),
            kills=self._kills[way],
        )


def start_four_ways(
    arguments: Sequence[str],
    options: Sequence[str] = (),
    *,
    master: str = "local[8]",
    confs: Sequence[str] = (),
    log: IO[bytes],
) -> subprocess.Popen[bytes]:
    """Start :mod:`tests.support.four_ways` as a process in a session of its own, with *options* of the writes and
    *confs* of Spark."""
    confs = ["spark.ui.enabled=false", "spark.sql.shuffle.partitions=3", *confs]
    confs += ["spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"]
    submit = " ".join([f"--master {master}", *(f"--conf {conf}" for conf in confs), "pyspark-shell"])
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": submit}
    command = [sys.executable, "-m", "tests.support.four_ways", *arguments]
    command += [word for option in options for word in ("--option", option)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to driver, JVM and Python workers, which are in several process groups but in one session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rpartition(")")[2].split()[3]) == process.pid:
                os.kill(int(status.parent.name), signal.SIGKILL)
        except OSError:
            continue
    process.wait()
