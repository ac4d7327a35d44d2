"""Imports form no circle: not between modules, not between sub-packages, not between packages."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Graph = Mapping[str, set[str]]


@cache
def modules() -> dict[str, Path]:
    """Name → file, of every module of kafka_sink."""
    found = {}
    for path in (ROOT / "kafka_sink").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imports(*, of_types: bool) -> Graph:
    """Module → the modules that it imports anywhere; with *of_types* also the imports for type checkers only."""
    graph: dict[str, set[str]] = {}
    for name, path in modules().items():
        found: set[str] = set()
        for node in _imports_in(ast.parse(path.read_text(encoding="utf-8")), of_types):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules() else node.module or "")
        graph[name] = (found & modules().keys()) - {name}
    return graph


def _imports_in(tree: ast.AST, of_types: bool) -> Iterator[ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield node
        elif of_types or not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from _imports_in(node, of_types)


def of_packages(graph: Graph, depth: int) -> Graph:
    """The same graph between packages; a module at a depth of at most *depth* stands for itself."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, imported in graph.items():
        found[_package(name, depth)].update(_package(other, depth) for other in imported)
    return {name: others - {name} for name, others in found.items()}


def _package(module: str, depth: int) -> str:
    parts = module.split(".")
    is_package = modules()[module].name == "__init__.py"
    return module if is_package or len(parts) <= depth else ".".join(parts[:depth])


def circles(graph: Graph) -> list[list[str]]:
    """The circles of *graph* and the paths between them: nodes that import nothing or are not imported are removed."""
    left = {name: set(others) for name, others in graph.items()}
    while True:
        imported = set().union(*left.values()) if left else set()
        ends = {name for name, others in left.items() if not others & left.keys() or name not in imported}
        if not ends:
            return [[name, *sorted(others)] for name, others in sorted(left.items())]
        left = {name: others - ends for name, others in left.items() if name not in ends}


def test_modules_form_no_circle() -> None:
    assert circles(imports(of_types=False)) == []


@pytest.mark.parametrize("depth", [2, 3])
def test_packages_form_no_circle(depth: int) -> None:
    assert circles(of_packages(imports(of_types=True), depth)) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"], ["c", "b"]]
