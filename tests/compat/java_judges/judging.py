"""Asks Java what it makes of a case, and compares it with what kafkalite makes of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from kafka_sink.common.errors import KafkaError
from tests.support.real_kafka import KAFKA_SCRIPT

SOURCES: Final = Path(__file__).parent / "java"
_NO_DNS: Final = f"-Djdk.net.hosts.file={SOURCES / 'hosts'}"

#: What JSON can hold.
Given = Any


@dataclass(frozen=True)
class Verdict:
    """What a case is taken for, or why it is refused."""

    taken: Any = None
    refused: str | None = None

    def agrees(self, other: Verdict) -> bool:
        """Whether both are the same, as far as *other* says; the words of refusals are not compared."""
        if self.refused is not None or other.refused is not None:
            return self.refused is not None and other.refused is not None
        if isinstance(self.taken, dict) and isinstance(other.taken, dict):
            return {name: self.taken.get(name) for name in other.taken} == other.taken
        return bool(self.taken == other.taken)


@dataclass(frozen=True)
class Difference:
    """One that is wanted: *name* is its name in docs/internals/differences.md, and *example* a case that has it."""

    name: str
    example: Given
    #: Whether a case with Java's verdict and ours, which do not agree, has it.
    applies: Callable[[Given, Verdict, Verdict], bool]


@dataclass(frozen=True)
class Judged:
    """A kind of case: the class of its *judge* in ``java/``, a random one, and what kafkalite takes one for.

    *ours* refuses with an error of kafkalite's; any other error is a fault.
    """

    judge: str
    random: Callable[[random.Random], Given]
    ours: Callable[[Given], Any]
    differences: tuple[Difference, ...] = ()
    #: Of the amount that a run tries, because cases of some kinds take longer.
    share: float = 1.0

    def verdict(self, given: Given) -> Verdict:
        try:
            return Verdict(self.ours(given))
        except KafkaError as error:
            return Verdict(refused=str(error))

    def compare(self, judges: JavaJudges, given: Given) -> None:
        """:raises AssertionError: as :meth:`difference`."""
        self.difference(judges, given)

    def difference(self, judges: JavaJudges, given: Given) -> str:
        """The name of the difference that this case has; empty if Java agrees.

        :raises AssertionError: if it has one that nobody wants.
        """
        java, ours = judges.ask(self.judge, given), self.verdict(given)
        if java.agrees(ours):
            return ""
        named = next((each.name for each in self.differences if each.applies(given, java, ours)), None)
        assert named is not None, f"{self.judge}: {given!r}\nJava:      {java}\nkafkalite: {ours}"
        return named


class JavaJudges:
    """The judges, in one JVM that starts with the first question and ends with the ``with`` block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> JavaJudges:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def ask(self, judge: str, given: Given) -> Verdict:
        """What the class *judge* makes of *given*."""
        asked, answers = self._pipes()
        asked.write(json.dumps({"judge": judge, "given": given}) + "\n")
        asked.flush()
        answer = answers.readline()
        assert answer, f"the judges have ended at {judge}: {given!r}"
        return Verdict(**json.loads(answer))

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process is None:
            self._process = subprocess.Popen(
                ["bash", str(KAFKA_SCRIPT), "run-sources", str(SOURCES), "Judges"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "KAFKA_OPTS": f"{os.environ.get('KAFKA_OPTS', '')} {_NO_DNS}"},
                encoding="ascii",
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout
