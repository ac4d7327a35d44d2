"""The benchmarks of growth still run, with few rows: their figures are for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kafka_sink import EmbeddedCluster
from tests.bench import resources
from tests.support.amounts import amount, only_long

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 200
SIZES = amount("KAFKALITE_BENCH_SIZES", 2, long=4)


@only_long
def test_every_limit_is_measured() -> None:
    with EmbeddedCluster() as cluster:
        arguments = ["--bootstrap-servers", cluster.bootstrap_servers, "--scale", "0.0001", "--runs", "1"]
        arguments += ["--sizes", str(SIZES)]
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
    assert list(found["brokers"]["rows_per_s"]) == ["1", "2", "4", "8"][:SIZES]


def test_cpu_time_of_this_process_is_seen() -> None:
    if not resources.available():
        return
    before = resources.cpu_seconds([os.getpid()])
    while resources.cpu_seconds([os.getpid()]) - before < 0.05:
        sum(range(10_000))
    assert os.getpid() in resources.descendants(os.getpid())
    assert resources.resident_bytes(os.getpid()) > 1 << 20
