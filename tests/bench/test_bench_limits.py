"""The benchmarks of growth still run, with few rows: their figures are for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kafka_sink import EmbeddedCluster
from tests.bench import resources

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 200


def test_every_limit_is_measured() -> None:
    with EmbeddedCluster() as cluster:
        arguments = ["--bootstrap-servers", cluster.bootstrap_servers, "--scale", "0.0001", "--runs", "1"]
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.bench_limits", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"memory", "rows", "partitions", "brokers"}
    assert found["brokers"]["rows_per_s"].keys() == {"1", "2", "4", "8"}


def test_cpu_time_of_this_process_is_seen() -> None:
    if not resources.available():
        return
    before = resources.cpu_seconds([os.getpid()])
    while resources.cpu_seconds([os.getpid()]) - before < 0.05:
        sum(range(10_000))
    assert os.getpid() in resources.descendants(os.getpid())
    assert resources.resident_bytes(os.getpid()) > 1 << 20
