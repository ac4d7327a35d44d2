"""What tests measured (fixture ``figure``) in a run, as JSON; ``tests/figures.json`` is that of the last long run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

LAST_LONG_RUN: Final = Path(__file__).parents[1] / "figures.json"


@dataclass(frozen=True, slots=True)
class Run:
    """When and on which commit it was measured, and by test, as pytest names it: ``name: value``, in order."""

    date: str
    commit: str
    figures: Mapping[str, list[str]]

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
    """Write what a run that ends now has measured."""
    run = Run(datetime.now(UTC).date().isoformat(), commit(), dict(sorted(figures.items())))
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
