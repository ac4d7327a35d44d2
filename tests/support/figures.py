"""The figures that pages and tests show, as JSON: ``tests/figures.json``.

Tests measure some (fixture ``figure``), and the file has those of the last long run. The others are the medians of
speed, which ``tests/bench/report.py`` takes from the results of the benchmarks.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

LAST_LONG_RUN: Final = Path(__file__).parents[1] / "figures.json"


@dataclass(frozen=True, slots=True)
class Run:
    """When and on which commit it was measured, and by test, as pytest names it: ``name: value``, in order. *speed* is
    measured apart."""

    date: str
    commit: str
    figures: Mapping[str, list[str]]
    speed: Mapping[str, Any] = field(default_factory=dict)

    def of(self, test: str) -> list[str]:
        """The figures of *test*, with those of its parameters named by them; of a whole file's tests for a file."""
        found = []
        for measured, texts in self.figures.items():
            rest = measured.removeprefix(test)
            if measured.startswith(test) and rest[:1] in ("", "[", ":"):
                found += [f"{rest.lstrip(':')} {text}".lstrip() for text in texts]
        return found


def load(path: Path = LAST_LONG_RUN) -> Run:
    return Run(**json.loads(path.read_text(encoding="utf-8")))


def save(figures: Mapping[str, list[str]], path: Path) -> None:
    """Write what a run that ends now has measured, beside the figures of speed."""
    _write(Run(datetime.now(UTC).date().isoformat(), commit(), dict(sorted(figures.items())), load().speed), path)


def save_speed(speed: Mapping[str, Any]) -> None:
    """Write the figures of speed beside those of the last long run."""
    _write(replace(load(), speed=speed), LAST_LONG_RUN)


def _write(run: Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(run), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit that is tested, with ``-dirty`` if the tree differs from it."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=LAST_LONG_RUN.parent, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
