"""Rules on the source that import contracts cannot express. Each test lists every place that breaks its rule."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from kafka_sink import errors  # noqa: F401  # declares the subclasses of ConfigError
from kafka_sink.common.errors import ConfigError

PACKAGE = Path(__file__).parents[2] / "kafka_sink"

#: The only module that creates threads: the work of each thread is a step that tests can run without a thread.
THREAD_MAKER = PACKAGE / "common" / "threads.py"
THREAD_MODULES = frozenset({"threading", "_thread", "concurrent.futures", "futures", "multiprocessing"})
THREAD_MAKERS = frozenset(
    {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "Process", "start_new_thread"}
)
WALL_CLOCK_READERS = frozenset({"now", "utcnow", "today"})
#: Possessive quantifiers and atomic groups, which CPython 3.11.0 to 3.11.4 match wrongly in some patterns.
POSSESSIVE = re.compile(r"(?<!\\)(?:[*+?]|\{\d*,?\d*\})\+|\(\?>")
LEFT_FOR_LATER = ("TODO", "FIXME", "XXX")


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in sorted(PACKAGE.rglob("*.py"))}


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(PACKAGE.parent)}:{line}"


def uses(tree: ast.AST, names: Set[str]) -> Iterator[tuple[int, str]]:
    """Every call of ``owner.name(…)`` and every ``from owner import name`` with one of *names*, as (line, owner)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in names:
                yield node.lineno, ast.unparse(node.func.value)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in names:
                    yield node.lineno, node.module or ""


def is_stub(function: ast.FunctionDef) -> bool:
    return all(
        isinstance(statement, ast.Pass)
        or (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and statement.value.value is ...
        )
        for statement in function.body
    )


@pytest.mark.behaviour("Threads", "Only the sender's thread performs I/O: threads are made in one place")
def test_only_common_threads_makes_threads() -> None:
    found = [
        place(path, line)
        for path, tree in modules().items()
        if path != THREAD_MAKER
        for line, owner in uses(tree, THREAD_MAKERS)
        if owner in THREAD_MODULES
    ]
    assert found == []


def test_nothing_reads_the_wall_clock_through_datetime() -> None:
    found = [
        place(path, line)
        for path, tree in modules().items()
        for line, owner in uses(tree, WALL_CLOCK_READERS)
        if owner.split(".")[-1] in {"datetime", "date"}
    ]
    assert found == []


def expressions(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes of *tree* except docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return (node for node in ast.walk(tree) if id(node) not in docstrings)


@pytest.mark.behaviour("Package", "Nothing depends on a patch release of Python")
def test_no_pattern_is_possessive_or_atomic() -> None:
    root = PACKAGE.parent
    folders = ("kafka_sink", "pyspark_kafkalite", "scripts", "spark_jobs", "examples", "tests")
    found = [
        place(path, node.lineno)
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        # Most files need not be parsed.
        if path != Path(__file__) and POSSESSIVE.search(path.read_text(encoding="utf-8"))
        for node in expressions(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant)
        and POSSESSIVE.search(node.value.decode("latin-1") if isinstance(node.value, bytes) else str(node.value))
    ]
    assert found == []
    assert all(map(POSSESSIVE.search, ("a++", "[ab]*+c", "x?+", "a{1,2}+", "(?>ab)")))


def test_every_module_says_what_it_is() -> None:
    assert [place(path, 1) for path, tree in modules().items() if tree.body and not ast.get_docstring(tree)] == []


def test_nothing_is_left_for_later() -> None:
    words = [
        place(path, number)
        for path in modules()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(word in line for word in LEFT_FOR_LATER)
    ]
    assert words == []


def test_no_function_is_a_stub() -> None:
    found = []
    for path, tree in modules().items():
        # The methods of a Protocol, and those with a decorator (overload, abstractmethod), have no body by nature.
        protocols = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "Protocol" for base in node.bases)
        ]
        exempt = {inner for protocol in protocols for inner in ast.walk(protocol)}
        found += [
            place(path, node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node not in exempt and not node.decorator_list and is_stub(node)
        ]
    assert found == []


#: Matches an error about the value of an option.
NAMES_AN_OPTION = re.compile(
    r"^(unknown )?options? |\.option\(|\b(key|value)\.(format|schema)\b|ssl\.|sasl\.|deadLetterTopic"
)


def error_calls() -> Iterator[tuple[Path, ast.Call, str]]:
    """Each ``ConfigError(…)``, or a subclass of it, with its text as it stands in the source."""
    kinds = {ConfigError.__name__, *(kind.__name__ for kind in ConfigError.__subclasses__())}
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds and node.args:
                yield path, node, ast.unparse(node.args[0]).lstrip("f").strip("'\"")


@pytest.mark.behaviour("Documentation", "An error about an option has the option as an attribute")
def test_errors_that_name_an_option_have_it_as_a_value() -> None:
    calls = [each for each in error_calls() if "broker" not in each[0].parts and "testing" not in each[0].parts]
    assert len(calls) > 100
    found = [
        f"{place(path, call.lineno)}: {text[:80]}"
        for path, call, text in calls
        if NAMES_AN_OPTION.search(text) and not any(keyword.arg == "option" for keyword in call.keywords)
    ]
    assert found == [], "make it with ConfigError.of(option, …), or give option=…"
