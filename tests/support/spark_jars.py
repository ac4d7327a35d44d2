"""The jars of Spark's own Kafka connector, for the sessions that compare with it; fetched once by scripts/bench.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

_BENCH = Path(__file__).parents[2] / "scripts" / "bench.sh"
_FETCH_TIMEOUT_S = 240


def connector_jars() -> str:
    """As ``spark.jars`` wants them."""
    done = subprocess.run(
        ["bash", str(_BENCH), "jars"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_FETCH_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
