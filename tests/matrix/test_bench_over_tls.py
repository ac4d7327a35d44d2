"""The benchmark over TLS with few rows: its figures mean nothing here, but it must not rot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.bench.listeners import write_listeners
from tests.support.securities import PLAINTEXT, SecureServer

BENCH = Path(__file__).parents[2] / "scripts" / "bench.sh"
TIMEOUT_S = 240


def test_both_formats_write_every_row_over_sasl_ssl(kafka: SecureServer, tmp_path: Path) -> None:
    listeners = tmp_path / "listeners.json"
    write_listeners(kafka, listeners)
    done = subprocess.run(
        ["bash", str(BENCH), "spark", "--security", "SASL_SSL", "--rows", "2000", "--runs", "1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={
            **os.environ,
            "KAFKALITE_BENCH_BOOTSTRAP": kafka.addresses[PLAINTEXT],
            "KAFKALITE_BENCH_LISTENERS": str(listeners),
        },
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["sinks"]) == {"kafkalite", "kafka", "kafka-tuned", "kafkalite over PLAINTEXT"}
    assert all(figures["rows_per_s"] > 0 for figures in result["sinks"].values())
    assert set(result["handshake_ms"]) == {"PLAINTEXT", "SASL_SSL"}
