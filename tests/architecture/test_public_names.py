"""The names that users may import: the list of public names, and pages that use no others."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

from scripts.print_public import PUBLIC, lines, names_of

ROOT = Path(__file__).parents[2]
NAMES = ROOT / "docs" / "public-names.txt"
#: Pages and examples that users read and copy; the jobs of spark_jobs are a part of this project.
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / "examples").rglob("*") if path.suffix in {".py", ".ipynb", ".md"}),
]
IMPORT = re.compile(r"^\s*(?:from (kafka_sink[\w.]*) import \(?([\w, ]+)|import (kafka_sink[\w.]*))", re.MULTILINE)


def text_of(page: Path) -> str:
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells)


@pytest.mark.behaviour("Documentation", "Pages, examples and notebooks import only names that are promised")
def test_pages_import_only_public_names() -> None:
    promised = {name: set(names_of(importlib.import_module(name))) for name in PUBLIC}
    found, wrong = 0, []
    for page in PAGES:
        for module, names, whole in IMPORT.findall(text_of(page)):
            found += 1
            unknown = {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()}
            unknown -= promised.get(module or whole, set())
            if (module or whole) not in promised or unknown:
                wrong.append(f"{page.name}: {module or whole} {sorted(unknown)}")
    assert wrong == []
    assert found > 20


@pytest.mark.behaviour("Documentation", "A change of what is promised to programs is seen and written down")
def test_public_names_are_those_in_the_list() -> None:
    expected, present = NAMES.read_text().splitlines(), list(lines())
    text = "run: python -m scripts.print_public > docs/public-names.txt, and say in CHANGELOG.md what changed for users"
    assert sorted(set(present) - set(expected)) == sorted(set(expected) - set(present)) == [], text


def test_every_error_of_the_page_is_public() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    promised = names_of(importlib.import_module("kafka_sink.errors"))
    assert set(re.findall(r"`(\w+Error)`", page)) == {name for name in promised if name.endswith("Error")}
