"""A sequence of drivers of one sink, of which frozen ones resume while later ones work; then the rows are counted.

python -m tests.exactly_once.lives --help
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import TransactionVersion
from tests.exactly_once.life import FAILED, FENCED, POINTS, Life, LifeSettings, Load, points_of
from tests.support.forks import FORKS
from tests.support.readback import read_values

_LIFE_LIMIT_S = 120.0
_ATTEMPTS_TO_FINISH = 6


@dataclass
class Verdict:
    """The committed records that a reader found, compared with the written rows."""

    lives: int
    batches: int
    missing: int
    duplicates: int
    extra: int
    ended: Counter[str] = field(default_factory=Counter)
    is_stuck: bool = False
    stalls: dict[str, float] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.duplicates or self.extra or self.is_stuck)

    def as_json(self) -> str:
        return json.dumps({**vars(self), "is_exact": self.is_exact, "text": str(self)})

    def __str__(self) -> str:
        ends = ", ".join(f"{name} {count}" for name, count in sorted(self.ended.items()))
        return (
            f"{self.lives} lives, {self.batches} batches: missing {self.missing}, duplicates {self.duplicates}, "
            f"extra {self.extra}{', stuck' if self.is_stuck else ''} ({ends})"
        )


#: Called with point and sink when a driver waits at a point.
OnReached = Callable[[str, str], object]


class Lives:
    """The drivers of one sink and its checkpoint."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self._random = random.Random(asked.seed)
        name = f"lives-{os.urandom(4).hex()}"
        load = Load()
        if asked.tasks:
            load = Load(max(load.rows, 2 * asked.tasks), min(asked.tasks, 20), (1, asked.tasks))
        with AdminClient(asked.bootstrap) as admin:
            admin.create_topic(name, load.partitions)
        self._settings = LifeSettings(
            asked.bootstrap,
            name,
            name,
            asked.protocol,
            folder,
            0,
            3,
            None,
            0,
            False,
            asked.control,
            asked.transaction_version,
            load,
        )
        self._frozen: list[int] = []
        self._log = folder / "errors.txt"
        self.ended: Counter[str] = Counter()

    def live(self, fault: str | None, *, freezes: bool | None = None, at: int | None = None, batches: int = 3) -> int:
        """Run one driver; return its exit code, −9 for killed. Arguments that are None are drawn at random."""
        if freezes is None:
            freezes = fault is not None and self._random.random() < 0.25
        settings = LifeSettings(
            **{
                **vars(self._settings),
                "seed": self._random.getrandbits(32),
                "fault": fault,
                "at": self._random.randrange(2) if at is None else at,
                "freezes": freezes,
                "batches": batches,
            }
        )
        pid = self._fork(settings)
        status = self._wait(pid)
        if os.WIFSTOPPED(status):
            self._frozen.append(pid)
            self.ended["frozen"] += 1
            return 0
        code = os.waitstatus_to_exitcode(status)
        self.ended[{0: "in order", FENCED: "fenced", FAILED: "failed"}.get(code, "killed")] += 1
        return code

    def _fork(self, settings: LifeSettings) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = FAILED
        try:
            code = Life(settings).run()
        except BaseException:
            with self._log.open("a") as file:
                file.write(f"--- {settings.fault} {settings.at}\n{traceback.format_exc()}\n")
        finally:
            os._exit(code)

    @staticmethod
    def _wait(pid: int) -> int:
        deadline = time.monotonic() + _LIFE_LIMIT_S
        while time.monotonic() < deadline:
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if found:
                return status
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"a life did not end within {_LIFE_LIMIT_S} s")

    def wake(self, pid: int) -> None:
        """Resume a frozen driver, and wait until it exits."""
        os.kill(pid, signal.SIGCONT)
        self.ended[f"woken: {self._woken_code(pid)}"] += 1

    def _woken_code(self, pid: int) -> str:
        status = self._wait(pid)
        if os.WIFSTOPPED(status):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "killed"
        code = os.waitstatus_to_exitcode(status)
        return {0: "went on", FENCED: "fenced", FAILED: "failed"}.get(code, "killed")

    def run(self, lives: int) -> Verdict:
        """Run *lives* drivers with faults at all points in turn, then drivers without until one commits everything."""
        points = points_of(self._settings.protocol)
        for number in range(lives):
            if number % len(points) == 0:
                self._random.shuffle(points)
            self.live(points[number % len(points)])
            chance = self._random.random()
            if self._frozen and chance < 0.6:
                # The frozen driver resumes after another driver, concurrently with one, or before one.
                if chance < 0.3:
                    self.live(self._random.choice(points))
                pid = self._frozen.pop(0)
                os.kill(pid, signal.SIGCONT)
                if chance > 0.45:
                    self.live(self._random.choice(points))
                self.ended[f"woken: {self._woken_code(pid)}"] += 1
        while self._frozen:
            self.wake(self._frozen.pop(0))
        # Tasks of dead drivers still write for a moment; the next batches end the transactions that these leave open.
        time.sleep(1.5)
        stuck = not any(self.live(None) == 0 for _ in range(_ATTEMPTS_TO_FINISH))
        return self._judge(stuck)

    def run_at(self, point: str, lives: int, *, freezes: bool) -> Verdict:
        """Run *lives* drivers that all end at *point*. Frozen ones resume after a successor has finished, concurrently
        with one, or after one has died at the same point."""
        for number in range(lives):
            self.live(point, freezes=freezes)
            if not self._frozen:
                continue
            pid = self._frozen.pop(0)
            if number % 3 == 1:
                os.kill(pid, signal.SIGCONT)
            self.live(point if number % 3 == 2 else None, freezes=False, batches=1 if number % 3 == 0 else 2)
            self.wake(pid)
        time.sleep(1.5)
        return self._judge(not any(self.live(None) == 0 for _ in range(_ATTEMPTS_TO_FINISH)))

    def run_with_interruptions(self, points: list[str], rounds: int, on_reached: OnReached) -> Verdict:
        """Run drivers that stop at each of *points*, *rounds* times, and resume when *on_reached* returns; *stalls* has
        the seconds from there to their ends.
        """
        stalls: dict[str, float] = {}
        for point in points * rounds:
            self.live(point, freezes=True, at=0, batches=1)
            if not self._frozen:
                continue
            on_reached(point, self._settings.sink)
            started = time.monotonic()
            self.wake(self._frozen.pop(0))
            stalls[point] = max(stalls.get(point, 0.0), round(time.monotonic() - started, 2))
        verdict = self._judge(not any(self.live(None) == 0 for _ in range(_ATTEMPTS_TO_FINISH)))
        verdict.stalls = stalls
        return verdict

    def run_zombie_that_decides(self) -> Verdict:
        """Freeze a driver just before its decision, and resume it after another one has taken over and died."""
        self.live(None)
        self.live("before-decision", freezes=True, at=0)
        self.live("before-commit-log", freezes=False, at=1)
        self.wake(self._frozen.pop(0))
        return self._judge(not any(self.live(None) == 0 for _ in range(_ATTEMPTS_TO_FINISH)))

    def _judge(self, is_stuck: bool) -> Verdict:
        done = sorted(int(path.name.split("-")[1]) for path in self._settings.checkpoint.glob("committed-*"))
        expected = Counter(value for version in done for value in self._settings.load.rows_of(version))
        time.sleep(0.5)
        found = Counter(read_values(self._settings.bootstrap, self._settings.topic))
        missing = sum((expected - found).values())
        extra = sum(count for value, count in found.items() if value not in expected)
        duplicates = sum(count - 1 for value, count in found.items() if count > 1 and value in expected)
        return Verdict(sum(self.ended.values()), len(done), missing, duplicates, extra, self.ended, is_stuck)


def run_in_process(
    bootstrap: str, protocol: str, lives: int, *options: str, on_reached: OnReached | None = None
) -> dict[str, Any]:
    """Return the verdict of a separate process: drivers are forked, and the calling process may have threads.

    :param on_reached: called with point and sink where a driver waits; with option ``--interruptions``.
    """
    with tempfile.NamedTemporaryFile("r") as errors:
        ours, theirs = FORKS.Pipe()
        arguments = [bootstrap, protocol, str(lives), *options]
        process = FORKS.Process(target=_tell, args=(theirs, Path(errors.name), arguments))
        process.start()
        theirs.close()
        said: dict[str, Any] = {}
        with ours, contextlib.suppress(EOFError):
            while "is_exact" not in said:
                said = ours.recv()
                if on_reached is not None and "reached" in said:
                    on_reached(said["reached"], said["sink"])
                    ours.send("go on")
        process.join()
        text = errors.read()
        assert process.exitcode == 0, text[-4000:]
        sys.stderr.write(text)
        return said


def _tell(told: Connection, errors: Path, arguments: Sequence[str]) -> None:
    os.dup2(os.open(errors, os.O_WRONLY), 2)

    def wait_at(point: str, sink: str) -> None:
        told.send({"reached": point, "sink": sink})
        told.recv()

    told.send(json.loads(run_lives(_arguments(arguments), wait_at).as_json()))


def run_lives(asked: argparse.Namespace, on_reached: OnReached) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="kafkalite-lives-") as folder:
        runner = Lives(asked, Path(folder))
        if asked.zombie:
            verdict = runner.run_zombie_that_decides()
        elif asked.interruptions:
            points = [asked.point] if asked.point else points_of(asked.protocol)
            verdict = runner.run_with_interruptions(points, asked.lives, on_reached)
        elif asked.point:
            verdict = runner.run_at(asked.point, asked.lives, freezes=asked.freeze)
        else:
            verdict = runner.run(asked.lives)
        log = Path(folder) / "errors.txt"
        if log.exists() and (asked.errors or not verdict.is_exact):
            sys.stderr.write(log.read_text()[-20000:])
        return verdict


def _arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exactly_once.lives", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("protocol", choices=["parallel", "atomic"])
    parser.add_argument("lives", type=int, help="drivers with a fault; rounds of all points with --interruptions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point", choices=POINTS, help="where all of them end; else all points in turn")
    parser.add_argument("--freeze", action="store_true", help="frozen at the point, and woken up, instead of killed")
    parser.add_argument("--tasks", type=int, help="1 or so many tasks in every run of a batch; else 1 to 6")
    parser.add_argument(
        "--transaction-version",
        type=lambda text: TransactionVersion(int(text)),
        help="version of transactions, not the cluster's",
    )
    parser.add_argument("--control", help="a protocol with a part left out: no-record, id-per-task, plain-offsets")
    parser.add_argument("--zombie", action="store_true", help="one that wakes up just before its decision, no others")
    parser.add_argument("--interruptions", action="store_true", help="wait at every point for a line on stdin")
    parser.add_argument("--errors", action="store_true", help="print what failed lives raised")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(run_lives(_arguments(), lambda point, sink: input(f"{sink} waits at {point}: Enter ")).as_json())
