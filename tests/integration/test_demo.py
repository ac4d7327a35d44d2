"""The demo, with fewer rows: what a newcomer runs first must never be broken."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

DEMO = Path(__file__).parents[2] / "scripts" / "demo.sh"
TIMEOUT_S = 240


def run_demo(*arguments: str) -> str:
    done = subprocess.run(
        ["bash", str(DEMO), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_flight_is_there() -> None:
    printed = run_demo("--nodes", "2", "--rows", "3000")
    assert "every record is there" in printed
    # the sink's own count
    assert "3,000" in printed
