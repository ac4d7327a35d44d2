"""Asks Java for its verdict on a case, and compares it with kafkalite's."""

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

#: Any value of JSON.
Given = Any


@dataclass(frozen=True)
class Verdict:
    """The value that a client reads from a case, or its reason for refusing the case."""

    taken: Any = None
    refused: str | None = None

    def agrees(self, other: Verdict) -> bool:
        """Return whether both are equal in all names that *other* has; the texts of refusals are not compared."""
        if self.refused is not None or other.refused is not None:
            return self.refused is not None and other.refused is not None
        if isinstance(self.taken, dict) and isinstance(other.taken, dict):
            return {name: self.taken.get(name) for name in other.taken} == other.taken
        return bool(self.taken == other.taken)


@dataclass(frozen=True)
class Difference:
    """An intentional difference: *name* is its name in docs/internals/differences.md, *example* a case that has it."""

    name: str
    example: Given
    #: Whether a case has it, with Java's verdict and kafkalite's, which do not agree.
    applies: Callable[[Given, Verdict, Verdict], bool]


@dataclass(frozen=True)
class Judged:
    """A kind of case: the class of its *judge* in ``java/``, a generator of random cases, and kafkalite's reader.

    *ours* refuses a case with an error of kafkalite; any other error is a bug.
    """

    judge: str
    random: Callable[[random.Random], Given]
    ours: Callable[[Given], Any]
    differences: tuple[Difference, ...] = ()
    #: Share of the number of cases that a run tries, because cases of some kinds take longer.
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
        """Return the name of the difference that this case has; empty if Java agrees.

        :raises AssertionError: if it has a difference that is not intentional.
        """
        java, ours = judges.ask(self.judge, given), self.verdict(given)
        if java.agrees(ours):
            return ""
        named = next((each.name for each in self.differences if each.applies(given, java, ours)), None)
        assert named is not None, f"{self.judge}: {given!r}\nJava:      {java}\nkafkalite: {ours}"
        return named


class JavaJudges:
    """The judges, in one JVM that starts with the first case and ends with the ``with`` block."""

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
        """Return the verdict of the class *judge* on *given*."""
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
