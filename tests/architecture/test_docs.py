"""The site: every page is built without a warning, and the reference is complete."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kafka_sink import errors
from kafka_sink.broker.cluster.topic_state import InertTopicConfig, TopicConfig
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.cli.main import cli
from kafka_sink.client.blocking.admin import AdminConfig
from kafka_sink.common import config
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.sasl_mechanisms import MECHANISMS
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.spark.options import SinkOptions
from kafka_sink.spark.write_spec import WriteSpec
from scripts.error_table import error_tables
from scripts.pages import printed
from tests.support.browser import browser
from tests.support.pages import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Errors that users never see: those of the command line, which prints only their texts.
OF_COMMANDS = {"InputTooLongError"}
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, without a warning."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.behaviour(
    "Documentation", "The site is built without a warning; it has a search, a dark style, sound links"
)
def test_the_site_has_a_search_both_styles_and_sound_links(site: Path) -> None:
    assert "tutorial.html" in (site / "llms.txt").read_text()
    assert (site / "search.html").is_file() and "streaming" in (site / "searchindex.js").read_text()
    assert "prefers-color-scheme:dark" in "".join(css.read_text() for css in site.rglob("furo*.css"))
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if "_static" not in page.parts}
    anchors = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        for link in re.findall(r'\b(?:href|src)="(?![a-z]+:|//)([^"?]+)', text):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append((page.name, link))
    assert broken == []


@pytest.mark.skipif(not shutil.which("chromedriver"), reason="no browser: the package chromium-driver is missing")
def test_pages_of_the_site_fit_into_400_pixels(site: Path) -> None:
    pages = ("index", "tutorial", "streaming", "options", "versions", "security", "internals/speed")
    with browser(400, 800) as running:
        for page in pages:
            running.get((site / f"{page}.html").as_uri())
            assert running.execute_script("return document.documentElement.scrollWidth") <= 400, page


@pytest.mark.behaviour("Documentation", "Every error that users see has a cause and a remedy in docs/errors.md")
def test_every_error_is_on_the_page_of_errors() -> None:
    declared = {
        name
        for path in (ROOT / "kafka_sink").rglob("*.py")
        for name, bases in re.findall(r"^class (\w+Error)\(([^)]*)\):", path.read_text(), re.MULTILINE)
        if bases.partition(",")[0] != "Exception" or name == KafkaError.__name__
    }
    public = {name for name in errors.__all__ if name.endswith("Error")}
    assert declared - OF_COMMANDS == public
    assert [name for name in public if not {"__doc__", "remedy"} <= vars(getattr(errors, name)).keys()] == []
    assert printed(DOCS / "errors.md", "errors") == f"\n{error_tables()}", "run python -m scripts.error_table"


def test_every_mechanism_is_on_the_page_of_security() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    assert [name for name in MECHANISMS if f"`{name}`" not in page] == []


def test_lines_of_the_pages_are_short() -> None:
    others = [page for name in ("tests", "examples") for page in (ROOT / name).rglob("*.md")]
    long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md", *others)
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.lstrip().startswith("|") and "://" not in line
    ]
    assert long == []


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
    """Return the words of *words*, a command line of kafkalite, that are neither a command nor an option of it."""
    commands: list[click.Command] = [cli]
    while words and not words[0].startswith("-") and isinstance(group := commands[0], click.Group):
        names, words = words[0].split("|"), words[1:]
        # Each name in "list|create" has to exist.
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
    section = (DOCS / "security.md").read_text().partition("## Comparison with other clients")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    tests = re.findall(r"^test_\w+$", section, re.MULTILINE)
    declared = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert len(rows) == len(tests) == 14
    assert [name for name in tests if name not in declared] == []


#: Options by their names on the pages: the sink's options, and those of Kafka's that this project reads.
TABLES = (
    SinkOptions,
    WriteSpec,
    ProducerConfig,
    ConsumerConfig,
    AdminConfig,
    BrokerConfig,
    TopicConfig,
    InertTopicConfig,
)
UNITS = {"ms": 1, "s": 1_000, "second": 1_000, "minute": 60_000, "minutes": 60_000, "days": 86_400_000}
UNITS |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "": 1}


def prose(page: Path) -> str:
    """The page without its blocks of code, as one line."""
    return " ".join(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).split())


@pytest.mark.behaviour("Documentation", "Options and defaults on the pages are those of the code")
def test_options_on_the_pages_exist() -> None:
    known = {name for table in (*TABLES, RegistryConfig) for name in config.keys(table)}
    known |= {*ProducerConfig.NO_EFFECT, *ProducerConfig.NOT_SUPPORTED}
    for page in PAGES:
        for name in re.findall(r"`kafka\.([a-z][a-z0-9.]+[a-z0-9])(?:=[^`]*)?`", prose(page)):
            assert name in known or name.startswith("config.providers."), f"{page.name}: kafka.{name}"


def test_defaults_on_the_pages_are_those_of_the_code() -> None:
    stated = [
        (page.name, *found)
        for page in PAGES
        for found in re.findall(
            r"`(?:kafka\.)?([a-z][\w.]+)`(?: is| \()(?:by default )?(\d[\d,]*) ?(KiB|MiB|GiB|ms|s|minutes?|days)?\b",
            prose(page),
        )
    ]
    checked = 0
    for page, name, number, unit in stated:
        for table in TABLES:
            # The sink requests the largest transaction timeout that the brokers allow.
            if name in config.keys(table) and name != "transaction.timeout.ms":
                default = config.keys(table)[name][1].default
                if isinstance(default, int):
                    stands = int(number.replace(",", "")) * UNITS[unit]
                    # Kafka's largest message is 12 bytes more than 1 MiB.
                    assert abs(stands - default) <= default // 10_000, (page, name, number, unit, default)
                    checked += 1
                    break
    assert checked >= 5, stated


#: Texts of Spark and of Python.
OF_OTHERS = {"ModuleNotFoundError: No module named 'kafka_sink'"}
#: Types, code and commands, which are not texts of errors.
NO_TEXT = re.compile(r"^(?:array of|map of|interval day|kafkalite|pip|spark-submit|python|--)|[=(){}/$<>]")
WITH_TEXTS: tuple[str, ...] = ("limits", "troubleshooting", "monitoring", "permissions", "clusters", "errors")
WITH_TEXTS += ("dead-letters", "ui", "streaming", "batch")


@pytest.mark.behaviour("Documentation", "Texts of errors and warnings on the pages are those of the code")
def test_texts_on_the_pages_are_those_of_the_code() -> None:
    said = " ".join(
        " ".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant))
        for path in sorted((ROOT / "kafka_sink").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.JoinedStr, ast.Constant))
    )
    said = re.sub(r"%[sdr.0-9f,]+", " ", said)
    checked = 0
    for name in WITH_TEXTS:
        for text in re.findall(r"`([^`]+)`", prose(DOCS / f"{name}.md")):
            if len(text.split()) < 3 or text in OF_OTHERS or NO_TEXT.search(text):
                continue
            # Names, codes and addresses are placeholders, so they are removed.
            for piece in re.split(r"…|'[^']*'|\b[A-Z_]{4,}\b|\d+\.\d+\S*", text):
                words = " ".join(piece.split()).strip(" ,:;")
                if len(words.split()) >= 2:
                    assert words in " ".join(said.split()), f"{name}.md: {words!r} of {text!r}"
                    checked += 1
    assert checked >= 10
