"""Mutates what is listed in :data:`TARGETS`, and prints what the unit tests do not notice.

    python -m tests.mutation [NAME …] [--processes N]

Each mutant is tried in a fork of this process, in which everything but the mutated package is imported already. A
mutant that changes nothing is listed in :data:`EQUIVALENT` with the reason. Exits with 1 if another one survives.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant, mutants

ROOT: Final = Path(__file__).parents[2]
#: A mutant may loop for ever, or wait. What others do on the machine must not count as noticed.
_MOST_CPU_S: Final = 20
_MOST_S: Final = 300


class Target(NamedTuple):
    """What is mutated: a *module*, in these *names* (empty: everywhere), and the *tests* that must notice it. *fresh*
    are the packages that depend on it, which are imported anew."""

    module: str
    tests: Sequence[str]
    fresh: Sequence[str]
    names: frozenset[str] = frozenset()


_UNIT: Final = "tests.unit.exactly_once."
_EXACTLY_ONCE: Final = ("kafka_sink.exactly_once", "tests.unit.exactly_once", "tests.fakes.immediate")

TARGETS: Final = {
    "situation": Target("kafka_sink.exactly_once.situation", [f"{_UNIT}test_situation"], _EXACTLY_ONCE),
    "description": Target(
        "kafka_sink.exactly_once.transactions",
        [f"{_UNIT}test_situation", f"{_UNIT}test_decision"],
        _EXACTLY_ONCE,
        frozenset({"COMPLETING_MS", "NO_RECORD_MS", "_RECORD_MS", "record_of", "TransactionDescription"}),
    ),
    "progress": Target(
        "kafka_sink.exactly_once.progress",
        [f"{_UNIT}{name}" for name in ("test_progress", "test_same_rows", "test_decision", "test_manifest")],
        _EXACTLY_ONCE,
        # Without the documents of groups, which are not decided on.
        frozenset(
            [
                "_FIRST_DENSE",
                "_BITS",
                "_GROUP_BYTES",
                "_SHIFTS",
                "_METADATA_LIMIT",
                "_FIRST_READ",
                "_MOST_PARTS",
                "_LAST_MOMENT_S",
                "_LEAST_ENTRY",
                "_LEAST_END",
                "encode_lists",
                "_dense",
                "_undense",
                "decode_lists",
                "_transactions_of_process",
                "latest_batch",
                "_FirstPart",
                "ProgressStore",
            ]
        ),
    ),
}

#: Mutants that change nothing, by the target and a part of their text, with the reason.
EQUIVALENT: Final[dict[tuple[str, str], str]] = {
    ("situation", "element LogTransaction"): "a type",
    ("situation", "element TopicPartition"): "a type",
    ("situation", ": 0 -> 1"): "the time-out before the fence, and the partitions before a look, which nothing reads",
}


class _Mutated(MetaPathFinder, Loader):
    def __init__(self, module: str, source: str) -> None:
        self._module, self._source = module, source

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == self._module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"<mutant of {self._module}>", "exec"), module.__dict__)


def _survives(target: Target, mutant: Mutant) -> bool:
    """Whether the tests of *target* pass with *mutant*; asked in a process of its own."""
    for name in [name for name in sys.modules if name.startswith(tuple(target.fresh))]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Mutated(target.module, mutant.source))
    try:
        for test in target.tests:
            module = importlib.import_module(test)
            for name, function in vars(module).items():
                if name.startswith("test_"):
                    _run(function)
    except BaseException:
        return False
    return True


def _run(test: Callable[..., None]) -> None:
    """Run *test* with each of its parameters, without pytest, which takes longer than most tests."""
    cases: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names, values = mark.args
            wanted = names.split(",") if isinstance(names, str) else names
            given = [dict(zip(wanted, [value] if len(wanted) == 1 else value, strict=True)) for value in values]
            cases = [{**case, **more} for case in cases for more in given]
    for case in cases:
        test(**case)


def _start(target: Target, mutant: Mutant) -> int:
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
        code = 1
        with contextlib.suppress(BaseException):
            code = 0 if _survives(target, mutant) else 1
        os._exit(code)
    return pid


def survivors(target: Target, processes: int) -> tuple[list[Mutant], int]:
    """The mutants of *target* that its tests do not notice, and the number of all."""
    path = ROOT / f"{target.module.replace('.', '/')}.py"
    waiting = list(mutants(path.read_text(encoding="utf-8"), target.names or None))
    count, running, survived = len(waiting), dict[int, tuple[Mutant, float]](), list[Mutant]()
    while waiting or running:
        while waiting and len(running) < processes:
            mutant = waiting.pop()
            running[_start(target, mutant)] = mutant, time.monotonic()
        for pid, (mutant, since) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del running[pid]
                if status == 0:
                    survived.append(mutant)
            elif time.monotonic() - since > _MOST_S:
                os.kill(pid, 9)
        time.sleep(0.005)
    return sorted(survived), count


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the source, and print what the unit tests do not notice.")
    parser.add_argument("names", nargs="*", choices=[*TARGETS, []], help="the targets; all by default")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    # A few examples notice a mutant, and the smallest one is of no use here.
    settings.register_profile("mutants", max_examples=10, derandomize=True, database=None, phases=[Phase.generate])
    settings.load_profile("mutants")
    has_failed = False
    for name in asked.names or TARGETS:
        target, begun = TARGETS[name], time.monotonic()
        # What the forks share.
        for test in target.tests:
            importlib.import_module(test)
        survived, count = survivors(target, asked.processes)
        known = {
            each: reason
            for (of, part), reason in EQUIVALENT.items()
            for each in survived
            if of == name and part in str(each)
        }
        print(
            f"{name}: {count} mutants, {count - len(survived)} killed, {len(known)} equivalent, "
            f"{len(survived) - len(known)} survived, {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        for each in survived:
            print(f"    {target.module}:{each}" + (f" (equivalent: {known[each]})" if each in known else ""))
        has_failed |= len(survived) > len(known)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
