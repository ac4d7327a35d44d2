"""The site: every page is built without a warning, and the reference is complete."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kafka_sink.cli.main import cli
from kafka_sink.common.errors import KafkaError
from tests.support.pages import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Errors that no user sees: of the command line, which prints their texts.
OF_COMMANDS = {"InputTooLongError"}
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.mark.behaviour("Documentation", "The site is built without a warning; links between pages lead somewhere")
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tutorial.html" in (tmp_path / "llms.txt").read_text()


@pytest.mark.behaviour("Documentation", "Every error that users see has a cause and a remedy in docs/errors.md")
def test_every_error_is_on_the_page_of_errors() -> None:
    declared = {
        name
        for path in (ROOT / "kafka_sink").rglob("*.py")
        for name, bases in re.findall(r"^class (\w+Error)\(([^)]*)\):", path.read_text(), re.MULTILINE)
        if bases.partition(",")[0] != "Exception" or name == KafkaError.__name__
    }
    named = set(re.findall(r"`(\w+Error)`", (DOCS / "errors.md").read_text()))
    assert declared - OF_COMMANDS == named


@pytest.mark.behaviour("Documentation", "Every block of code is valid, and every command has the options that it names")
def test_blocks_of_python_and_shell_are_valid() -> None:
    for page in PAGES:
        for code in blocks(page, "python"):
            try:
                ast.parse(code)
            except SyntaxError as error:
                pytest.fail(f"{page.name}: {error}\n{code}")
        for code in blocks(page, "sh"):
            done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, f"{page.name}: {done.stderr}\n{code}"


def test_commands_on_the_pages_have_the_options_that_they_name() -> None:
    lines = [
        (page.name, line.partition("#")[0])
        for page in PAGES
        for code in blocks(page, "sh")
        for line in re.sub(r"\\\n", " ", code).splitlines()
        if line.startswith("kafkalite ")
    ]
    assert len(lines) > 20
    assert [(page, line, wrong) for page, line in lines if (wrong := unknown_words(line.split()[1:]))] == []


CONTEXT = click.Context(cli)


def unknown_words(words: list[str]) -> list[str]:
    """Those of *words*, a command line of kafkalite, that are no command or no option of it."""
    commands: list[click.Command] = [cli]
    while words and isinstance(group := commands[0], click.Group):
        names, words = words[0].split("|"), words[1:]
        # Of "list|create" each has to exist.
        found = [
            group.get_command(click.Context(group), name) for name in names if name in group.list_commands(CONTEXT)
        ]
        if len(found) != len(names):
            return names
        commands = [command for command in found if command is not None]
    known = {option for command in commands for each in command.params for option in each.opts}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in known | {"-h", "--help"}]


@pytest.mark.behaviour("Documentation", "Each cell of the comparison with other clients has a test of ours")
def test_each_cell_beside_other_clients_has_a_test() -> None:
    section = (DOCS / "security.md").read_text().partition("## Beside other clients")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    tests = re.findall(r"^test_\w+$", section, re.MULTILINE)
    declared = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert len(rows) == len(tests) == 14
    assert [name for name in tests if name not in declared] == []
