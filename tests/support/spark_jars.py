"""The jars of Spark's own Kafka connector, for the sessions that compare with it; fetched once by scripts/bench.sh."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.amounts import LONG

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


def connector_jars_at_hand() -> str:
    """The same, for a test of the normal run, which downloads none: it is skipped unless they have been fetched."""
    if not LONG and not list(_BENCH.parents[1].glob(".work/spark-kafka*/.complete")):
        pytest.skip("Spark's own Kafka connector is not at hand; scripts/bench.sh jars fetches it")
    return connector_jars()
