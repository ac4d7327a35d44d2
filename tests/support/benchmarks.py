"""Benchmarks as separate processes, as users run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPT = ("bash", str(ROOT / "scripts" / "bench.sh"))


def run_module(name: str, arguments: Sequence[str], timeout_s: float) -> Any:
    """Return the result of ``python -m NAME``."""
    return run((sys.executable, "-m", name, *arguments), timeout_s, PYTHONPATH=str(ROOT))


def run(command: Sequence[str], timeout_s: float, **environment: str) -> Any:
    """Return the JSON value of the last line that *command* prints."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
