"""The tests that a change in a wing of ARCHITECTURE.md can break: ``scripts/test.sh --wing WING`` runs them.

Imports decide: a file of tests belongs to each wing of which it imports a module, itself or through what it imports,
within functions too. So it does by modules that it names as text (``monkeypatch``, ``python -m``), and by the fixtures
of the ``conftest.py`` above it that it names. What starts a shell script, and the rules on the source
(``tests/architecture``), belong to all wings. The sources are searched and nothing is imported, so it takes a second.
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
#: What Spark imports by itself for a session.
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
    """The packages of each wing, as the import contract of setup.cfg has them."""
    contracts = configparser.ConfigParser()
    contracts.read(root / "setup.cfg", encoding="utf-8")
    layers = contracts["importlinter:contract:wings"]["layers"].strip().splitlines()
    return {name: tuple(re.findall(r"kafka_sink\.(\w+)", layer)) for name, layer in zip(_WINGS, layers, strict=True)}


class Imports:
    """What the modules below *root* import of one another."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self.files: dict[str, Path] = {}
        for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            # Spark's jobs import one another from their own folder.
            self.files[".".join(parts).removeprefix("spark_jobs.").removesuffix(".__init__")] = path
        self._texts = {name: path.read_text(encoding="utf-8") for name, path in self.files.items()}
        #: Package → name → the module of which it has the name, be it only for type checkers.
        self._exported: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for package, path in self.files.items():
            if path.name == "__init__.py":
                for module, name in _names(self._texts[package]):
                    self._exported[package][name] = module
        self._direct = {name: set(self._imported(text)) for name, text in self._texts.items()}
        for package, text in self._texts.items():
            if self.files[package].name == "__init__.py":
                # A module of the package runs none of its functions; who calls one imports its name.
                self._direct[package] = set(self._imported(_INDENTED.sub("", text)))
                self._direct[f"{package}()"] = set(self._imported(text))
        for name, text in self._texts.items():
            if name.startswith("tests.") and not name.endswith(".conftest"):
                self._direct[name].update(map(self._longest, _NAMED.findall(text)))
        for name, imported in self._direct.items():
            imported.add(name.removesuffix("()").rpartition(".")[0])
            imported &= self._direct.keys()

    def of_tests(self) -> Iterator[tuple[str, set[str]]]:
        """Each file of tests, as pytest names it, with the modules that it imports or runs itself."""
        for name, path in self.files.items():
            if path.name.startswith("test_"):
                file = path.relative_to(self._root).as_posix()
                is_of_all = file.startswith(_OF_ALL) or _RUNS_SCRIPT.search(self._texts[name])
                yield file, set(self.files) if is_of_all else {name, *self._fixtures(name)}

    def closure(self, modules: Iterable[str]) -> set[str]:
        """*modules* and all that they import, with the packages around each."""
        return _reached(modules, self._direct)

    def dependents(self, modules: Iterable[str]) -> set[str]:
        """*modules* and all that import one of them."""
        importers: defaultdict[str, set[str]] = defaultdict(set)
        for name, imported in self._direct.items():
            for each in imported:
                importers[each].add(name)
        return _reached(modules, importers)

    def _fixtures(self, name: str) -> Iterator[str]:
        """What the conftest files above the module *name* import, of functions those that it names."""
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
        """The module of which *text* names a part, or that it names."""
        while text not in self.files and "." in text:
            text = text.rpartition(".")[0]
        return text


def _names(text: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import from a module."""
    for module, many, few in _FROM.findall(text):
        for name in (many or few).split(","):
            if words := name.split():
                yield module, words[0]


def _reached(names: Iterable[str], graph: Mapping[str, set[str]]) -> set[str]:
    """*names*, and what *graph* leads to from them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.get(name, ())
    return found


def files_of(root: Path = ROOT) -> Mapping[str, list[str]]:
    """The files of tests of each wing: those that reach a module of it."""
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
