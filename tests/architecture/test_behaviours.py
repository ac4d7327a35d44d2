"""No part and no behaviour is missing or misspelt in the list of ``scripts/test.sh --behaviours``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support import figures
from tests.support.behaviours import PARTS, ROOT, Behaviour, MarkerError, behaviours, listing

#: Behaviours are added; a behaviour is removed only together with the feature that it describes.
FEWEST = 635

#: A name states the condition and the behaviour; further details belong in the marker or the docstring.
LONGEST_NAME = 60


@pytest.fixture(scope="module")
def found() -> dict[Behaviour, list[str]]:
    return behaviours()


def test_every_behaviour_is_of_a_known_part(found: dict[Behaviour, list[str]]) -> None:
    assert [f"{each.part}: {tests}" for each, tests in found.items() if each.part not in PARTS] == []


def test_every_part_has_behaviours_and_stands_once(found: dict[Behaviour, list[str]]) -> None:
    assert set(PARTS) - {each.part for each in found} == set()
    assert [part for part, count in Counter(PARTS).items() if count > 1] == []


def test_no_behaviour_was_lost(found: dict[Behaviour, list[str]]) -> None:
    assert len(found) >= FEWEST


def test_no_name_of_a_test_is_longer_than_60_characters() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}: {name} has {len(name)} characters"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if len(name) > LONGEST_NAME
    ]
    assert too_long == []


def test_every_test_with_figures_is_there() -> None:
    measured = {test.split("[", 1)[0] for test in figures.load().figures}
    assert [test for test in sorted(measured) if not is_there(*test.partition("::")[::2])] == []
    assert measured


def is_there(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and (not name or f"\ndef {name}(" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.behaviour("Log")\ndef test_one(): ...',
        '@pytest.mark.behaviour("Log", f"{1}")\ndef test_one(): ...',
        '@pytest.mark.behaviour("Log", "holds")\ndef helper(): ...',
        'mark = pytest.mark.behaviour("Log", "holds")',
    ],
    ids=["no text", "no plain text", "no test", "no mark"],
)
def test_a_marker_that_would_be_overlooked_is_an_error(source: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(source, encoding="utf-8")
    with pytest.raises(MarkerError, match=r"tests/test_it\.py:\d"):
        behaviours(tmp_path)


def test_behaviour_listing_shows_tests_and_their_figures(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_all.py").write_text(
        'pytestmark = [pytest.mark.timeout(1), pytest.mark.behaviour("SASL", "Holds")]', encoding="utf-8"
    )
    (tmp_path / "tests" / "test_one.py").write_text(
        '@pytest.mark.behaviour("TLS", "Other")\n@pytest.mark.behaviour("SASL", "Holds")\ndef test_it(): ...',
        encoding="utf-8",
    )
    measured = {"tests/test_one.py::test_it[a]": ["rows: 5"], "tests/test_one.py::test_its": ["rows: 6"]}
    figures.save(measured, tmp_path / "figures.json")
    run = figures.load(tmp_path / "figures.json")
    assert list(listing(behaviours(tmp_path), "sasl", run, 100)) == [
        "SASL",
        "  Holds",
        "      tests/test_all.py",
        "      tests/test_one.py::test_it",
        "        [a] rows: 5",
        "",
    ]
