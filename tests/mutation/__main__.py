"""Mutates the targets in :mod:`tests.mutation.targets`, and prints the mutants that the unit tests do not detect.

    python -m tests.mutation [NAME …] [--processes N] [--only TEXT]

Pytest tests each mutant in a fork of this process, which has imported all modules; the fork imports those that depend
on the mutated module again. ``equivalent/`` lists the mutants that change no behaviour, with the reason. Exits with 1
if another one survives.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

import pytest
from hypothesis import Phase, settings

from tests.mutation.mutants import Mutant, mutants
from tests.mutation.targets import TARGETS, Target, equivalents
from tests.support.wings import Imports

ROOT: Final = Path(__file__).parents[2]
#: A mutant may loop endlessly, or wait. The limit is a multiple of the tests' CPU time without a mutant, with a minimum
#: in seconds: load of other programs on the machine must not count as detection.
_MOST_CPU: Final = 8
_LEAST_CPU_S: Final = 5
_MOST_S: Final = 300
#: pytest stops at the first failure, and writes no cache.
_PYTEST: Final = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:kafkalite", "--hypothesis-profile", "mutants")


class Changed(NamedTuple):
    """A *mutant* of *module*; *fresh* are the modules that depend on it."""

    module: str
    mutant: Mutant
    fresh: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module}:{self.mutant}"


class _Mutated(MetaPathFinder, Loader):
    """A plugin of pytest that replaces the module of *changed* with the mutant."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed

    def pytest_configure(self) -> None:
        """Install this finder before pytest's, which handles all modules of a package that has a plugin."""
        for name in self._changed.fresh:
            package, _, module = name.rpartition(".")
            if sys.modules.pop(name, None) is not None and package in sys.modules:
                # An import from the package would find the old module in its attribute.
                vars(sys.modules[package]).pop(module, None)
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == self._changed.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._changed.mutant.source, f"<mutant of {self._changed.module}>", "exec"), module.__dict__)


class Trial:
    """Tests the mutants of *target*, or those with *only* in their printed lines."""

    def __init__(self, target: Target, only: str = "") -> None:
        self._target, self._only = target, only
        self._most_cpu_s = _MOST_S
        imports = Imports(ROOT)
        tests = [name for name, path in imports.files.items() if _is_below(path, target.tests)]
        paths = {name: imports.files[name] for name in sorted(imports.closure(set(tests))) if name in imports.files}
        sources = [f"kafka_sink/{source}" for source in target.sources]
        self._modules = {name: path for name, path in paths.items() if _is_below(path, sources)}
        self._dependents = {
            module: tuple(sorted(paths.keys() & imports.dependents({module}))) for module in self._modules
        }
        # The forks share these modules; pytest itself imports the tests.
        for name, path in paths.items():
            if not path.name.startswith(("test_", "conftest")):
                importlib.import_module(name)

    def mutants(self) -> Iterator[Changed]:
        for module, path in self._modules.items():
            for mutant in mutants(path.read_text(encoding="utf-8"), self._target.names or None):
                changed = Changed(module, mutant, self._dependents[module])
                if self._only in str(changed):
                    yield changed

    def passes(self, changed: Changed | None) -> bool:
        """Return whether the tests pass with the mutant, or without one (None). Call it only in a fork."""
        plugins = [] if changed is None else [_Mutated(changed)]
        return pytest.main([*_PYTEST, *self._target.tests], plugins) == 0

    def started(self, changed: Changed | None) -> int:
        pid = os.fork()
        if pid == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (self._most_cpu_s, self._most_cpu_s))
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            code = 1
            with contextlib.suppress(BaseException):
                code = 0 if self.passes(changed) else 1
            os._exit(code)
        return pid

    def survivors(self, processes: int) -> tuple[list[Changed], int]:
        """Return the mutants that the tests do not detect, and the number of all mutants.

        :raises SystemExit: if the tests fail without a mutant.
        """
        _, status, usage = os.wait4(self.started(None), 0)
        if status != 0:
            sys.exit(f"{' '.join(self._target.tests)}: the tests fail without a mutant")
        self._most_cpu_s = max(_LEAST_CPU_S, round(_MOST_CPU * (usage.ru_utime + usage.ru_stime)))
        waiting = list(self.mutants())
        count, running, survived = len(waiting), dict[int, tuple[Changed, float]](), list[Changed]()
        while waiting or running:
            while waiting and len(running) < processes:
                changed = waiting.pop()
                running[self.started(changed)] = changed, time.monotonic()
            for pid, (changed, since) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    del running[pid]
                    if status == 0:
                        survived.append(changed)
                elif time.monotonic() - since > _MOST_S:
                    os.kill(pid, 9)
            time.sleep(0.005)
        return sorted(survived), count


def _is_below(path: Path, folders: Sequence[str]) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the source, and print what the unit tests do not notice.")
    parser.add_argument("names", nargs="*", choices=[*TARGETS, []], help="the targets; all by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", metavar="TEXT", help="the mutants with this in their lines")
    asked = parser.parse_args()
    # A few examples detect a mutant, and shrinking them is not necessary.
    settings.register_profile("mutants", max_examples=10, derandomize=True, database=None, phases=[Phase.generate])
    has_failed = False
    for name in asked.names or TARGETS:
        begun = time.monotonic()
        survived, count = Trial(TARGETS[name], asked.only).survivors(asked.processes)
        known = {each: reason for part, reason in equivalents(name).items() for each in survived if part in str(each)}
        # Two mutants may have the same source, which counts twice: without one or the other of two equal elements.
        listed = sum(each in known for each in survived)
        print(
            f"{name}: {count} mutants, {count - len(survived)} killed, {listed} equivalent, "
            f"{len(survived) - listed} survived, {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        for each in survived:
            print(f"    {each}" + (f" (equivalent: {known[each]})" if each in known else ""))
        has_failed |= len(survived) > listed
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
