"""The benchmark of memory still runs, with few rows; its measurements are not checked."""

from __future__ import annotations

from kafka_sink import EmbeddedCluster
from tests.bench.bench_memory import CASES, DAEMON, JVM, PLANNER, PROGRAM, WORKER
from tests.support import amounts
from tests.support.benchmarks import run_module

TIMEOUT_S = 200


@amounts.only_long
def test_every_process_of_a_job_is_measured() -> None:
    with EmbeddedCluster() as cluster:
        arguments = ["--bootstrap-servers", cluster.bootstrap_servers, "--scale", "0.001"]
        cases = ";".join(("1 M rows", "3 M rows, TLS"))
        found = run_module("tests.bench.bench_memory", [*arguments, "--cases", cases], TIMEOUT_S)
    assert set(cases.split(";")) <= set(CASES)
    assert set(found) == {"1 M rows"}, "no listener for TLS was named"
    assert {PROGRAM, JVM, DAEMON, PLANNER, WORKER} <= set(found["1 M rows"]["during"])
    assert found["1 M rows"]["after"][WORKER]["private"] > 0
