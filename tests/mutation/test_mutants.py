"""The mutants of a source; and the mutated modules and their tests exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutation.mutants import mutants
from tests.mutation.targets import TARGETS, equivalents

ROOT = Path(__file__).parents[2]
SOURCE = """
MOST = 5

def is_small(number: int = 3) -> bool:
    \"\"\"Up to 5.\"\"\"
    return number <= MOST and not number == 1
"""


def test_each_place_is_changed_once() -> None:
    found = {str(mutant): mutant.source for mutant in mutants(SOURCE)}
    assert list(found) == [
        "2: 5 -> 6",
        "6: without number <= MOST",
        "6: without not number == 1",
        "6: LtE -> Lt",
        "6: not not",
        "6: Eq -> NotEq",
        "6: 1 -> 2",
    ]
    assert "number < MOST and (not number == 1)" in found["6: LtE -> Lt"]
    assert [mutant.line for mutant in mutants(SOURCE, frozenset({"MOST"}))] == []
    assert len(list(mutants(SOURCE, frozenset({"is_small"})))) == 6


def test_unit_tests_notice_mutants() -> None:
    command = [sys.executable, "-m", "tests.mutation", "bounded", "--only", "Lt -> "]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert "bounded: 1 mutants, 1 killed, 0 equivalent, 0 survived" in done.stdout, done.stdout + done.stderr


def test_targets_are_there() -> None:
    for target in TARGETS.values():
        assert all((ROOT / "kafka_sink" / source).exists() for source in target.sources)
        assert all((ROOT / test).exists() for test in target.tests)
    listed = {path.stem for path in (ROOT / "tests/mutation/equivalent").glob("*")}
    assert listed == TARGETS.keys()
    assert all(reason for name in TARGETS for reason in equivalents(name).values())
