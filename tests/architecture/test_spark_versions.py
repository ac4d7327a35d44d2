"""The tables of the ways to write match the results of the runs on other versions of Spark (tests/ways.json)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.pages import printed
from tests.support import ways
from tests.support.ways import Cell


@pytest.fixture(scope="module")
def runs() -> list[ways.Run]:
    return ways.load()


def test_page_has_the_table_of_the_last_runs(runs: list[ways.Run]) -> None:
    assert printed(ways.PAGE, "ways").strip() == ways.table(runs)


@pytest.mark.behaviour(
    "Versions", "Each way to write works on every Spark in the table of versions, or it says what it needs"
)
def test_no_cell_of_the_table_is_empty_or_failed(runs: list[ways.Run]) -> None:
    assert {"3.5", "4.0", "4.1", "4.2", "4.3"} <= {run.spark.rpartition(".")[0] for run in runs}
    assert {"3.11", "3.12", "3.13"} <= {run.python.rpartition(".")[0] for run in runs}
    for run in runs:
        for way in ways.WAYS:
            cell = run.cells[way]
            assert not cell.failed, (run.spark, way)
            assert cell.passed or cell.needs, (run.spark, way)


def test_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "ways.json"
    reason = "needs Spark 4.0: Python data sources, and this is 3.5.9"
    ways.add([(ways.ATOMIC, "failed", "")], file)
    ways.add([(ways.ATOMIC, "passed", ""), (ways.DF_WRITE, "skipped", reason), (ways.CONNECT, "failed", "")], file)
    (run,) = ways.load(file)
    assert run.cells[ways.ATOMIC] == Cell(passed=1)
    ways.add([(ways.PARALLEL, "passed", "")], file)
    assert ways.load(file)[0].cells == {**run.cells, ways.PARALLEL: Cell(passed=1)}
    assert [str(run.cells[way]) for way in (ways.ATOMIC, ways.DF_WRITE, ways.CONNECT, ways.PARALLEL)] == [
        "✓ 1 test",
        "needs Spark 4.0",
        "**1 of 1 tests fail**",
        "not run",
    ]
