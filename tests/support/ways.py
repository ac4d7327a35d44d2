"""The ways to write, and the versions of Spark and Python on which they passed their tests.

The tests of a way have a marker: ``@pytest.mark.way(ATOMIC)``. ``scripts/test.sh --spark V`` runs these tests on
another version of Spark and adds the results to .work/ways.json, of which tests/ways.json is a copy.
``scripts/test.sh --ways`` writes them into the table of docs/versions.md.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from scripts.pages import print_into
from tests.support import figures

DF_WRITE: Final = "`df.write.format`"
AT_LEAST_ONCE_STREAM: Final = "`writeStream.format`, at least once"
EXACTLY_ONCE_STREAM: Final = "`writeStream.format`, exactly once"
AT_LEAST_ONCE: Final = "`kafka_sink.write`, at least once"
ATOMIC: Final = "`kafka_sink.write`, atomic"
PARALLEL: Final = "`kafka_sink.write`, parallel"
FOREACH_BATCH: Final = "`foreach_batch`"
CONNECT: Final = "Spark Connect"

WAYS: Final = (
    DF_WRITE,
    AT_LEAST_ONCE_STREAM,
    EXACTLY_ONCE_STREAM,
    AT_LEAST_ONCE,
    ATOMIC,
    PARALLEL,
    FOREACH_BATCH,
    CONNECT,
)

#: The name of a test report's property for its ways.
PROPERTY: Final = "way"

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "tests" / "ways.json"
PAGE: Final = ROOT / "docs" / "versions.md"


@dataclass
class Cell:
    """The test results of one way. *needs* are the requirements that skipped tests found missing in this Spark."""

    passed: int = 0
    failed: int = 0
    needs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.failed:
            return f"**{self.failed} of {self.passed + self.failed} tests fail**"
        if not self.passed:
            return ", ".join(self.needs) or "not run"
        return f"✓ {self.passed} test{'s' if self.passed > 1 else ''}"


@dataclass(frozen=True)
class Run:
    """The results of all ways on one version of Spark, with the versions of other installed packages."""

    spark: str
    python: str
    packages: Mapping[str, str]
    date: str
    commit: str
    cells: Mapping[str, Cell]

    @classmethod
    def of(cls, entry: Mapping[str, object]) -> Run:
        """Return the run of one entry of the file."""
        cells = entry["cells"]
        assert isinstance(cells, dict)
        return cls(**{**entry, "cells": {way: Cell(**cell) for way, cell in cells.items()}})  # type: ignore[arg-type]


def load(path: Path = RECORDED) -> list[Run]:
    """Return the runs, the oldest Spark first."""
    return [Run.of(entry) for entry in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def add(outcomes: Iterable[tuple[str, str, str]], path: Path) -> None:
    """Write the run that ends now to *path*, in place of an earlier one of the same Spark and Python, whose results are
    kept for ways that this run did not test.

    *outcomes* are way, outcome (passed, failed or skipped) and the reason of a skip.
    """
    cells: defaultdict[str, Cell] = defaultdict(Cell)
    for way, outcome, reason in outcomes:
        cell = cells[way]
        if outcome == "skipped":
            needs = reason.partition(":")[0]
            if needs.startswith("needs ") and needs not in cell.needs:
                cell.needs.append(needs)
        elif outcome == "passed":
            cell.passed += 1
        else:
            cell.failed += 1
    run = _run(cells)
    known = {(each.spark, each.python): each for each in load(path)}
    before = known.pop((run.spark, run.python), run)
    run = replace(run, cells={way: cells.get(way) or before.cells.get(way) or Cell() for way in WAYS})
    others = known.values()
    runs = sorted([*others, run], key=lambda each: (_numbers(each.spark), _numbers(each.python)))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(each) for each in runs], indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _run(cells: Mapping[str, Cell]) -> Run:
    import numpy

    # pandas has no type annotations.
    import pandas  # type: ignore[import-untyped,unused-ignore]
    import pyarrow
    import pyspark

    return Run(
        spark=pyspark.__version__,
        python=platform.python_version(),
        packages={"pyarrow": pyarrow.__version__, "pandas": pandas.__version__, "numpy": numpy.__version__},
        date=datetime.now(UTC).date().isoformat(),
        commit=figures.commit(),
        cells=cells,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def table(runs: Iterable[Run]) -> str:
    """Return the table of docs/versions.md: a row for each version of Spark and Python, a column for each way."""
    lines = [["Spark", "Python", *WAYS, "with"], ["---"] * (len(WAYS) + 3)]
    for run in runs:
        installed = ", ".join(f"{package} {version}" for package, version in run.packages.items())
        lines.append([run.spark, run.python, *(str(run.cells[way]) for way in WAYS), installed])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(runs: list[Run]) -> None:
    """Write the table into docs/versions.md."""
    print_into(PAGE, "ways", f"{table(runs)}\n")


def main() -> None:
    description = "Put the table of the ways to write into docs/versions.md."
    parser = argparse.ArgumentParser(prog="scripts/test.sh --ways", description=description)
    parser.add_argument("file", nargs="?", type=Path, default=RECORDED, help="default: tests/ways.json")
    write(load(parser.parse_args().file))


if __name__ == "__main__":
    main()
