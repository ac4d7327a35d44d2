"""The benchmarks of limits still run, with few rows; their measurements are not checked."""

from __future__ import annotations

import os
from pathlib import Path

from kafka_sink import EmbeddedCluster
from tests.bench import resources
from tests.support import amounts
from tests.support.benchmarks import run_module

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 200
SIZES = amounts.BENCH_SIZES


@amounts.only_long
def test_every_limit_is_measured() -> None:
    with EmbeddedCluster() as cluster:
        arguments = ["--bootstrap-servers", cluster.bootstrap_servers, "--scale", "0.0001", "--runs", "1"]
        arguments += ["--sizes", str(SIZES)]
        found = run_module("tests.bench.bench_limits", arguments, TIMEOUT_S)
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
