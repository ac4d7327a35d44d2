"""The tests that a change in a wing of ARCHITECTURE.md can break: ``scripts/test.sh --wing WING`` runs them.

A file of tests belongs to each wing of which it imports a module, directly or indirectly, within functions too. Modules
that it names in strings (``monkeypatch``, ``python -m``) count as imports, as do those of the fixtures that it uses of
a ``conftest.py`` above it. Tests that start a shell script, and the rules on the source (``tests/architecture``),
belong to all wings. The sources are searched and no module is imported, so it takes a second.
"""

from __future__ import annotations

import argparse
import configparser
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("kafka_sink", "pyspark_kafkalite", "scripts", "spark_jobs", "tests")
#: The layers of the contract, the tools first.
_WINGS: Final = ("tools", "broker", "sink", "base")
_OF_ALL: Final = "tests/architecture/"
_RUNS_SCRIPT: Final = re.compile(r"\w\.sh\b")
_SESSION: Final = re.compile(r"\bspark\b")
#: The package that Spark itself imports for a session.
_OF_SESSIONS: Final = "pyspark_kafkalite"

_FROM: Final = re.compile(r"^ *from ([\w.]+) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
_IMPORT: Final = re.compile(r"^ *import ([\w.]+)", re.MULTILINE)
_NAMED: Final = re.compile(r"\"((?:kafka_sink|scripts|tests)(?:\.\w+)+)")
_INDENTED: Final = re.compile(r"^ +from .*", re.MULTILINE)
_OF_TYPES: Final = re.compile(r"^if TYPE_CHECKING:\n(?:(?: .*)?\n)+", re.MULTILINE)
_STATEMENT: Final = re.compile(r"^(?=@|def |class )", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^def (\w+)", re.MULTILINE)


@cache
def wings(root: Path = ROOT) -> Mapping[str, tuple[str, ...]]:
    """Return the packages of each wing, by the import contract of setup.cfg."""
    contracts = configparser.ConfigParser()
    contracts.read(root / "setup.cfg", encoding="utf-8")
    layers = contracts["importlinter:contract:wings"]["layers"].strip().splitlines()
    return {name: tuple(re.findall(r"kafka_sink\.(\w+)", layer)) for name, layer in zip(_WINGS, layers, strict=True)}


class Imports:
    """The imports among the modules below *root*."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self.files: dict[str, Path] = {}
        for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            # The jobs in spark_jobs import one another by their bare names.
            self.files[".".join(parts).removeprefix("spark_jobs.").removesuffix(".__init__")] = path
        self._texts = {name: path.read_text(encoding="utf-8") for name, path in self.files.items()}
        #: Package → name → the module that defines the name, including imports for type checkers only.
        self._exported: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for package, path in self.files.items():
            if path.name == "__init__.py":
                for module, name in _names(self._texts[package]):
                    self._exported[package][name] = module
        self._direct = {name: set(self._imported(text)) for name, text in self._texts.items()}
        for package, text in self._texts.items():
            if self.files[package].name == "__init__.py":
                # An import of the package runs none of its functions; their callers import their names.
                self._direct[package] = set(self._imported(_INDENTED.sub("", text)))
                self._direct[f"{package}()"] = set(self._imported(text))
        for name, text in self._texts.items():
            if name.startswith("tests.") and not name.endswith(".conftest"):
                self._direct[name].update(map(self._longest, _NAMED.findall(text)))
        for name, imported in self._direct.items():
            imported.add(name.removesuffix("()").rpartition(".")[0])
            imported &= self._direct.keys()

    def of_tests(self) -> Iterator[tuple[str, set[str]]]:
        """Yield each file of tests, as pytest names it, with the modules that it imports or runs directly."""
        for name, path in self.files.items():
            if path.name.startswith("test_"):
                file = path.relative_to(self._root).as_posix()
                is_of_all = file.startswith(_OF_ALL) or _RUNS_SCRIPT.search(self._texts[name])
                yield file, set(self.files) if is_of_all else {name, *self._fixtures(name)}

    def closure(self, modules: Iterable[str]) -> set[str]:
        """Return *modules* and all that they import, with the parent packages of each."""
        return _reached(modules, self._direct)

    def dependents(self, modules: Iterable[str]) -> set[str]:
        """Return *modules* and all that import one of them."""
        importers: defaultdict[str, set[str]] = defaultdict(set)
        for name, imported in self._direct.items():
            for each in imported:
                importers[each].add(name)
        return _reached(modules, importers)

    def _fixtures(self, name: str) -> Iterator[str]:
        """Yield the imports of the conftest files above the module *name*, of functions only those that it names."""
        text, parts = self._texts[name], name.split(".")
        for depth in range(1, len(parts)):
            conftest = self._texts.get(".".join([*parts[:depth], "conftest"]), "")
            for statement in _STATEMENT.split(conftest):
                function = _FUNCTION.search(statement)
                if function is None or "autouse" in statement or re.search(rf"\b{function[1]}\b", text):
                    yield from self._imported(statement)
        if _SESSION.search(text):
            yield _OF_SESSIONS

    def _imported(self, text: str) -> Iterator[str]:
        text = _OF_TYPES.sub("", text)
        yield from _IMPORT.findall(text)
        for module, name in _names(text):
            yield f"{module}.{name}" if f"{module}.{name}" in self.files else module
            yield self._exported[module].get(name, f"{module}()")

    def _longest(self, text: str) -> str:
        """Return the module that *text* names, or of which it names a member."""
        while text not in self.files and "." in text:
            text = text.rpartition(".")[0]
        return text


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each import from a module."""
    for module, many, few in _FROM.findall(text):
        for name in (many or few).split(","):
            if words := name.split():
                yield module, words[0]


def _reached(names: Iterable[str], graph: Mapping[str, set[str]]) -> set[str]:
    """Return *names*, and all nodes that are reachable from them in *graph*."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.get(name, ())
    return found


def files_of(root: Path = ROOT) -> Mapping[str, list[str]]:
    """Return the test files of each wing: those that import one of its modules."""
    imports, found = Imports(root), {}
    tests = list(imports.of_tests())
    for wing, packages in wings(root).items():
        inside = tuple(f"kafka_sink.{package}." for package in packages)
        reaching = imports.dependents(name for name in imports.files if f"{name}.".startswith(inside))
        found[wing] = [file for file, modules in tests if not reaching.isdisjoint(modules)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/test.sh --wing", description="Print the tests of a wing.")
    parser.add_argument("wing", choices=_WINGS)
    print("\n".join(files_of()[parser.parse_args().wing]))


if __name__ == "__main__":
    main()
