"""The editor's rules of CONTRIBUTING, as far as a program can keep them: shelves, pages, sentences and texts."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import kafka_sink
import kafka_sink.admin
import kafka_sink.errors
import kafka_sink.testing
from kafka_sink.cli.main import cli
from tests.proof.ledger import comment_lines
from tests.support import prose
from tests.support.amounts import only_long

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.behaviour(
    "Documentation", "Pages keep the editor's rules: shelves, plain sentences, once each"
)

#: Pages of users and operators, as the menu lists them.
LISTS = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
NAMES = [line for block in LISTS for line in block.splitlines() if line and not line.startswith(":")]
#: Those that include a file above the folder, and their text.
INCLUDED = {"examples": "examples/README.md"}
SHELVES = {name: (ROOT / INCLUDED.get(name, f"docs/{name}.md")).read_text(encoding="utf-8") for name in NAMES}
OTHERS = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (*sorted((DOCS / "internals").glob("*.md")), *(ROOT / f"{n}.md" for n in ("README", "SECURITY")))
    if "{include}" not in page.read_text(encoding="utf-8")
}
#: Pages that list runs and differences.
LOGS = {"docs/internals/compatibility.md", "docs/internals/differences.md"}
#: Pages whose example is run by a test other than test_docs_commands.py, which runs each command of ``kafkalite``.
RUN = {
    "tutorial": "tests/spark/test_tutorial.py",
    "clusters": "tests/spark/test_clusters_page.py",
    "examples": "tests/spark/test_examples.py",
    "producer": "tests/integration/test_producer_page.py",
    "from-python-clients": "tests/integration/test_producer_page.py",
    "testing": "tests/integration/test_pytest_plugin.py",
    "changing-a-schema": "tests/integration/test_changing_a_schema.py",
    **dict.fromkeys(
        ("api", "batch", "errors", "from-spark", "json", "options", "streaming"), "tests/spark/test_pages.py"
    ),
}


def test_users_have_at_most_28_pages_and_no_internals() -> None:
    assert len(SHELVES) <= 28
    assert not any("internals" in name for name in SHELVES)
    assert {page.stem for page in DOCS.glob("*.md")} == {"index", "changelog", *SHELVES}


def test_a_page_has_a_purpose_an_example_and_a_next_page() -> None:
    for name, page in SHELVES.items():
        purpose = page.split("\n\n")[1]
        assert "This page" in purpose, f"{name}: begin with what the page is for"
        assert "```" in page, f"{name}: an example"
        assert page.rstrip().split("\n\n")[-1].startswith("Read next: "), f"{name}: end with 'Read next'"
        assert name in RUN or re.search(r"^(.*\| )?kafkalite ", page, re.MULTILINE), f"{name}: which test runs it?"
    assert [file for file in RUN.values() if not (ROOT / file).is_file()] == []


def test_pages_keep_the_rules_for_words_and_headings() -> None:
    pages = {name: page for name, page in {**SHELVES, **OTHERS}.items() if name not in LOGS}
    assert [f"{name}: {fault}" for name, page in pages.items() for fault in prose.faults(page)] == []


def test_sentences_have_at_most_25_words_on_average() -> None:
    averages = {name: prose.words_of_a_sentence(page) for name, page in {**SHELVES, **OTHERS}.items()}
    assert {name: average for name, average in averages.items() if average > 25} == {}


def test_pages_say_nothing_twice() -> None:
    runs = prose.repeated({**SHELVES, **OTHERS})
    assert len(runs) <= 5, "\n".join(map(str, runs))


def documented() -> Iterator[tuple[str, str]]:
    """Public names with their docstrings, and commands and options with their help."""
    for module in (kafka_sink, kafka_sink.admin, kafka_sink.errors, kafka_sink.testing):
        for name in getattr(module, "__all__", dir(module)):
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            yield name, inspect.getdoc(value) or ""
            if inspect.isclass(value):
                parts = {part: each for part, each in vars(value).items() if not part.startswith("_")}
                yield from ((f"{name}.{part}", inspect.getdoc(each) or "") for part, each in parts.items())
    yield from helped(cli, "kafkalite")


def helped(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for option in command.params:
        yield f"{name} {option.name}", getattr(option, "help", None) or ""
    if isinstance(command, click.Group):
        for part, each in command.commands.items():
            yield from helped(each, f"{name} {part}")


def in_words(text: str) -> str:
    """Return *text* of a docstring or a comment, in which a word replaces each name of code."""
    return re.sub(r"``[^`]*``|:\w+:`[^`]*`|\*\w+\*", "code", text)


def test_docstrings_and_help_keep_the_rules_for_words() -> None:
    texts = [(name, in_words(text)) for name, text in documented()]
    assert len(texts) > 200
    assert [f"{name}: {fault}" for name, text in texts for fault in prose.faults(text)] == []


class Parsed(NamedTuple):
    """A module with its lines and its tree."""

    name: str
    lines: list[str]
    tree: ast.Module


def parsed(folder: str) -> list[Parsed]:
    """Return all modules below *folder*."""
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Parsed(name, text.split("\n"), ast.parse(text)) for name, text in texts]


@pytest.fixture(scope="module")
def package() -> list[Parsed]:
    """The modules of kafka_sink, parsed once for all tests of this file."""
    return parsed("kafka_sink")


def internal(modules: list[Parsed]) -> Iterator[tuple[str, str]]:
    """All docstrings and comments of *modules*, with their locations."""
    documented_nodes = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for name, lines, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, documented_nodes) and (text := ast.get_docstring(node)):
                yield f"{name}:{node.body[0].lineno}", text
        comment: list[str] = []
        comments = comment_lines(lines, tree)
        for number, line in enumerate([*lines, ""], 1):
            if number in comments:
                comment.append(line.lstrip("#: "))
            elif comment:
                yield f"{name}:{number - len(comment)}", " ".join(comment)
                comment = []


def check_words(modules: list[Parsed], least: int) -> None:
    """Check at least *least* docstrings and comments of *modules*."""
    texts = [(place, in_words(text)) for place, text in internal(modules)]
    assert len(texts) > least
    assert [f"{place}: {fault}" for place, text in texts for fault in prose.faults(text)] == []


def test_all_docstrings_and_comments_keep_the_rules_for_words(package: list[Parsed]) -> None:
    check_words(package, 5000)


@only_long
@pytest.mark.parametrize(("folder", "least"), [("tests", 4000), ("scripts", 50), ("spark_jobs", 20)])
def test_docstrings_and_comments_of_tools_keep_the_rules(folder: str, least: int) -> None:
    check_words(parsed(folder), least)


def errors(package: list[Parsed]) -> Iterator[tuple[str, str]]:
    """The texts of errors and warnings in the code, with their locations."""
    for name, _, tree in package:
        for node in ast.walk(tree):
            said: list[ast.expr] = []
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                said = node.exc.args
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "warning":
                said = node.args
            parts = [part.value for each in said for part in ast.walk(each) if isinstance(part, ast.Constant)]
            yield f"{name}:{getattr(node, 'lineno', 0)}", "".join(part for part in parts if isinstance(part, str))


def test_errors_and_warnings_keep_the_rules_for_words(package: list[Parsed]) -> None:
    texts = [(place, text) for place, text in errors(package) if text]
    assert len(texts) > 500
    assert [f"{place}: {fault}" for place, text in texts for fault in prose.faults(f"{text}.")] == []
