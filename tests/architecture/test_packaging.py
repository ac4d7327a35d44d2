"""The metadata in setup.cfg, the built packages and the workflows match the files in the tree."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import pytest

import kafka_sink
from scripts.build_copy import build_copy
from scripts.pages import printed

ROOT = Path(__file__).parents[2]
PACKAGES = ("kafka_sink", "pyspark_kafkalite")


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_package_is_found() -> None:
    """A folder of modules without __init__.py would be missing from the wheel."""
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert setup_cfg()["options.packages.find"]["include"].split() == [
        "kafka_sink",
        "kafka_sink.*",
        "pyspark_kafkalite",
    ]


@pytest.mark.behaviour("Package", "pip never lays a PySpark over the one that a hosted Spark brings")
def test_pyspark_is_an_extra_but_its_arrow_needs_are_not() -> None:
    required = {re.split(r"[<>=]", line, maxsplit=1)[0] for line in setup_cfg()["options"]["install_requires"].split()}
    assert {"pyarrow", "pandas"} <= required
    assert "pyspark" not in required
    assert setup_cfg()["options.extras_require"]["spark"].split() == ["pyspark>=3.5,<5"]


@pytest.mark.behaviour("Package", "What is published has extras for users only")
def test_groups_of_developers_are_no_extras() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    extras = set(setup_cfg()["options.extras_require"])
    assert {"test", "bench", "docs", "build", "demo"} <= set(groups)
    assert not extras & set(groups)


def test_version_is_told_by_the_package() -> None:
    assert kafka_sink.__version__ == setup_cfg()["metadata"]["version"]


def test_only_the_tested_system_is_named() -> None:
    metadata = setup_cfg()["metadata"]
    systems = [line for line in metadata["classifiers"].split("\n") if line.startswith("Operating System")]
    assert (metadata["platforms"], systems) == ("Linux", ["Operating System :: POSIX :: Linux"])


@pytest.mark.behaviour("Package", "A build has a number of its own, and links that work on an index's page")
def test_what_is_built_has_its_number_and_addresses(tmp_path: Path) -> None:
    url, ref = "https://code.example/kafkalite", "v1.2.3"
    build_copy(tmp_path, "1.2.3.dev4+g0123abcd", url, ref)
    assert "\nversion = 1.2.3.dev4+g0123abcd\nproject_urls =\n    Source = https://code" in (
        tmp_path / "setup.cfg"
    ).read_text(encoding="utf-8")
    assert 'VERSION: Final = "1.2.3.dev4+g0123abcd"' in (tmp_path / "kafka_sink/common/version.py").read_text()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]*)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 20
    for is_picture, link in links:
        place = f"{url}/{'raw' if is_picture else 'blob'}/{ref}/"
        assert link.startswith(place), link
        assert (ROOT / link.removeprefix(place).partition("#")[0]).exists(), link


@pytest.mark.behaviour(
    "Package", "Hooks and workflow run the checks of the test command, on each Python and Spark that is named"
)
def test_hooks_and_workflow_run_the_same_checks() -> None:
    script = (ROOT / "scripts" / "test.sh").read_text(encoding="utf-8")
    checks = re.findall(r'^    step "[^"]+" quietly nice (.+)$', script, re.MULTILINE)
    hooks = re.findall(r"entry: \.venv/bin/(.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert len(checks) == 4 and checks == hooks
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    assert "run: .ci/run\n" in workflow
    (pythons,) = re.findall(r"^        python: \[(.+)\]$", workflow, re.MULTILINE)
    named = re.findall(r"Python :: (3\.\d+)$", setup_cfg()["metadata"]["classifiers"], re.MULTILINE)
    assert re.findall(r"[\d.]+", pythons) == named
    sparks = set(re.findall(r'spark: "([\d.]+)"', workflow))
    ways = printed(ROOT / "docs" / "versions.md", "ways")
    assert sparks == {
        version.rpartition(".")[0] for version in re.findall(r"^\| (\d+\.\d+\.\d+) \|", ways, re.MULTILINE)
    }


@pytest.mark.behaviour("Package", "What runs in the project's workflows is pinned by its content")
def test_actions_of_workflows_are_pinned_by_commit() -> None:
    used = [
        line.partition("uses:")[2].strip()
        for file in (ROOT / ".github" / "workflows").iterdir()
        for line in file.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w/.-]+@[0-9a-f]{40}  # v[0-9.]+", each)] == []
