"""Many lives of one driver after another, frozen ones woken up while later ones are at work; then the count.

python -m tests.exactly_once.lives BOOTSTRAP parallel|atomic LIVES [SEED] [CONTROL|v1]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_sink.client.admin import AdminClient
from kafka_sink.exactly_once.model import Flow
from tests.exactly_once.life import FAILED, FENCED, PARTITIONS, POINTS, Life, LifeSettings, rows_of
from tests.support.readback import read_topic

_LIFE_LIMIT_S = 60.0
_ATTEMPTS_TO_FINISH = 6


@dataclass
class Verdict:
    """What a reader of committed records found, against what was put in."""

    lives: int
    batches: int
    missing: int
    duplicates: int
    extra: int
    ended: Counter[str] = field(default_factory=Counter)
    is_stuck: bool = False

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


class Lives:
    """One sink and its checkpoint."""

    def __init__(
        self, bootstrap: str, protocol: str, seed: int, control: str | None, folder: Path, flow: Flow | None
    ) -> None:
        self._random = random.Random(seed)
        name = f"lives-{os.urandom(4).hex()}"
        with AdminClient(bootstrap) as admin:
            admin.create_topic(name, PARTITIONS)
        self._settings = LifeSettings(bootstrap, name, name, protocol, folder, 0, 3, None, 0, False, control, flow)
        self._frozen: list[int] = []
        self._log = folder / "errors.txt"
        self.ended: Counter[str] = Counter()

    def live(self, fault: str | None, *, freezes: bool | None = None, at: int | None = None) -> int:
        """One life; what it ended with, −9 for killed. What is not given is drawn."""
        if freezes is None:
            freezes = fault is not None and self._random.random() < 0.25
        settings = LifeSettings(
            **{
                **vars(self._settings),
                "seed": self._random.getrandbits(32),
                "fault": fault,
                "at": self._random.randrange(2) if at is None else at,
                "freezes": freezes,
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
        """Let a frozen driver go on; it ends by itself."""
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
        """*lives* with faults, all points in turn, and then as many without as it takes to commit everything."""
        points = list(POINTS)
        for number in range(lives):
            if number % len(points) == 0:
                self._random.shuffle(points)
            self.live(points[number % len(points)])
            chance = self._random.random()
            if self._frozen and chance < 0.6:
                # It comes to itself after another driver went on, beside one, or before one.
                if chance < 0.3:
                    self.live(self._random.choice(points))
                pid = self._frozen.pop(0)
                os.kill(pid, signal.SIGCONT)
                if chance > 0.45:
                    self.live(self._random.choice(points))
                self.ended[f"woken: {self._woken_code(pid)}"] += 1
        while self._frozen:
            self.wake(self._frozen.pop(0))
        # Tasks of dead drivers write on for a moment; the next batches end what those have left.
        time.sleep(1.5)
        stuck = not any(self.live(None) == 0 for _ in range(_ATTEMPTS_TO_FINISH))
        return self._judge(stuck)

    def run_zombie_that_decides(self) -> Verdict:
        """A driver is frozen just before its decision and wakes up when another one has gone on, and died."""
        self.live(None)
        self.live("before-decision", freezes=True, at=0)
        self.live("before-commit-log", freezes=False, at=1)
        self.wake(self._frozen.pop(0))
        return self._judge(not any(self.live(None) == 0 for _ in range(_ATTEMPTS_TO_FINISH)))

    def _judge(self, is_stuck: bool) -> Verdict:
        done = sorted(int(path.name.split("-")[1]) for path in self._settings.checkpoint.glob("committed-*"))
        expected = Counter(value for version in done for value in rows_of(version))
        time.sleep(0.5)
        found = Counter(message.value for message in read_topic(self._settings.bootstrap, self._settings.topic))
        missing = sum((expected - found).values())
        extra = sum(count for value, count in found.items() if value not in expected)
        duplicates = sum(count - 1 for value, count in found.items() if count > 1 and value in expected)
        return Verdict(sum(self.ended.values()), len(done), missing, duplicates, extra, self.ended, is_stuck)


def run_in_process(bootstrap: str, protocol: str, lives: int, seed: int, mode: str = "") -> dict[str, Any]:
    """The verdict of a process of its own: lives are forked, and whoever asks may have threads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.exactly_once.lives", bootstrap, protocol, str(lives), str(seed), mode],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-4000:]
    verdict: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return verdict


def run_lives(
    bootstrap: str, protocol: str, lives: int, seed: int, control: str | None = None, flow: Flow | None = None
) -> Verdict:
    """Run them and judge; no *lives* at all: those of :meth:`Lives.run_zombie_that_decides`."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-lives-") as folder:
        runner = Lives(bootstrap, protocol, seed, control, Path(folder), flow)
        verdict = runner.run(lives) if lives else runner.run_zombie_that_decides()
        log = Path(folder) / "errors.txt"
        if log.exists() and not verdict.is_exact:
            sys.stderr.write(log.read_text()[-6000:])
        return verdict


if __name__ == "__main__":
    bootstrap, protocol, lives = sys.argv[1:4]
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    mode = sys.argv[5] if len(sys.argv) > 5 else ""
    flow = Flow.V1 if mode == "v1" else None
    started = time.monotonic()
    verdict = run_lives(bootstrap, protocol, int(lives), seed, mode if mode and flow is None else None, flow)
    print(f"{verdict}, {time.monotonic() - started:.1f} s")
    print(verdict.as_json())
