"""The comparison with Spark's own sink, with few rows: its figures mean nothing here, but it must not rot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.compat.conftest import RealKafka

BENCH = Path(__file__).parents[2] / "scripts" / "bench.sh"
TIMEOUT_S = 240


def test_both_sinks_write_every_row(real_kafka: RealKafka) -> None:
    done = subprocess.run(
        ["bash", str(BENCH), "spark", "--rows", "2000", "--runs", "1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "KAFKALITE_BENCH_BOOTSTRAP": real_kafka.bootstrap_servers},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["rows"] == 2000
    assert set(result["rows_per_s"]) == {"kafkalite", "kafka"}
