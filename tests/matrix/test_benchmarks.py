"""The benchmarks inside Spark still run, with few rows; their measurements are not checked.

They are part of the long run. They use the Kafka of the matrix, and start their own Sparks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.listeners import write_listeners
from tests.support.amounts import only_long
from tests.support.benchmarks import SCRIPT, run
from tests.support.securities import PLAINTEXT, SecureServer

TIMEOUT_S = 600


def run_script(kafka: SecureServer, tmp_path: Path, *arguments: str) -> Any:
    """Run a benchmark; return the JSON of its last line."""
    listeners = tmp_path / "listeners.json"
    write_listeners(kafka, listeners)
    return run(
        (*SCRIPT, *arguments),
        TIMEOUT_S,
        KAFKALITE_BENCH_BOOTSTRAP=kafka.addresses[PLAINTEXT],
        KAFKALITE_BENCH_LISTENERS=str(listeners),
    )


@only_long
def test_the_script_compares_both_formats_over_sasl_ssl(kafka: SecureServer, tmp_path: Path) -> None:
    result = run_script(kafka, tmp_path, "spark", "--security", "SASL_SSL", "--rows", "2000", "--runs", "1")
    assert set(result["sinks"]) == {"kafkalite", "kafka", "kafka-tuned", "kafkalite over PLAINTEXT"}
    assert all(figures["rows_per_s"] > 0 for figures in result["sinks"].values())
    assert set(result["handshake_ms"]) == {"PLAINTEXT", "SASL_SSL"}


@only_long
@pytest.mark.parametrize(
    ("command", "streams"),
    [
        ("stream", {"kafka", "kafkalite", "kafkalite exactly once", "null", "null-tuned"}),
        ("trigger", {"kafka", "kafkalite", "null", "null-tuned"}),
    ],
    ids=["addBatch", "whole trigger"],
)
def test_the_script_compares_micro_batches_over_sasl_ssl(
    kafka: SecureServer, tmp_path: Path, command: str, streams: set[str]
) -> None:
    few = ("--tasks", "1", "--triggers", "1", "--runs", "1")
    (result,) = run_script(kafka, tmp_path, command, "--security", "SASL_SSL", *few, "--results", str(tmp_path))
    assert result["security"] == "SASL_SSL"
    assert set(result["streams"]) == streams
    assert all(figures["p50_ms"] > 0 for figures in result["streams"].values())
    assert result["streams"]["kafka"]["times_sparks_own"] == 1
    assert (tmp_path / f"{command}-1-tasks-over-sasl-ssl.json").exists()


@only_long
def test_the_script_compares_small_writes_repeated_and_first(kafka: SecureServer, tmp_path: Path) -> None:
    result = run_script(kafka, tmp_path, "small", "--writes", "1", "--sessions", "1", "--results", str(tmp_path))
    assert set(result) == {"repeated", "first"}
    assert set(result["repeated"]["sinks"]) == {"kafka", "kafkalite", "null", "null-tuned"}
    assert all(figures["p50_ms"] > 0 for figures in result["repeated"]["sinks"].values())
    assert all(figures["median_s"] > 0 for figures in result["first"]["sinks"].values())
    assert {path.name for path in tmp_path.glob("small-*.json")} == {"small-repeated.json", "small-first.json"}
