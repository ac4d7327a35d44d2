"""The wings of ARCHITECTURE.md: each package is in one, the import contracts list the same, and each has a budget."""

from __future__ import annotations

import configparser
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kafka_sink"
#: The modules directly in kafka_sink are the sink's public imports.
OF_THE_PACKAGE = "sink"


class Wing(NamedTuple):
    """A row of the diagram, including the rows below it that have no name of their own."""

    most_lines: int
    packages: list[str]


@cache
def wings() -> dict[str, Wing]:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawing = page.partition("\nwing ")[2].partition("\n```")[0]
    found: dict[str, Wing] = {}
    for line in drawing.splitlines()[1:]:
        name, most, packages = re.fullmatch(r"(?:(\w+) +([\d,]+))? +(.*)", line).groups()  # type: ignore[union-attr]
        if name is not None:
            found[name] = Wing(int(most.replace(",", "")), [])
        found[[*found][-1]].packages.extend(re.sub(r"\([^)]*\)", "", packages).split())
    return found


def lines_of(wing: str) -> int:
    files = [path for name in wings()[wing].packages for path in (PACKAGE / name).rglob("*.py")]
    files += PACKAGE.glob("*.py") if wing == OF_THE_PACKAGE else []
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def test_each_package_is_in_one_wing() -> None:
    packages = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert sorted(name for wing in wings().values() for name in wing.packages) == packages


def test_the_contracts_have_the_wings_of_the_drawing() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = contracts["importlinter:contract:wings"]["layers"].strip().splitlines()
    assert [sorted(re.findall(r"kafka_sink\.(\w+)", layer)) for layer in layers] == [
        sorted(wing.packages) for wing in wings().values()
    ]
    sink = re.findall(r"kafka_sink\.(\w+)", contracts["importlinter:contract:broker-without-sink"]["forbidden_modules"])
    assert sorted(sink) == sorted(wings()["sink"].packages)


@pytest.mark.behaviour("Package", "A wing of the package has no more lines than ARCHITECTURE.md allows it")
@pytest.mark.parametrize("wing", ["base", "sink", "broker", "tools"])
def test_a_wing_stays_within_its_lines(wing: str) -> None:
    lines, most = lines_of(wing), wings()[wing].most_lines
    assert lines <= most, f"{wing} has {lines:,} lines, at most {most:,} are allowed: remove what it can do without"
