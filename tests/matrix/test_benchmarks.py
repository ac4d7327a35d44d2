"""The benchmarks inside Spark with few rows: their figures mean nothing here, but they must not rot.

They belong to the long run. They use the session and the Kafka of the matrix; their scripts start Sparks of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from tests.bench import bench_small, bench_spark
from tests.bench.bench_stream import ADD_BATCH, STREAMS, WHOLE_TRIGGER, Amounts, Bench, Measure
from tests.bench.listeners import read_listeners, write_listeners
from tests.bench.spark_sinks import register_null
from tests.support.amounts import only_long
from tests.support.benchmarks import SCRIPT, run
from tests.support.securities import PLAINTEXT, SASL_SSL, SecureServer

TIMEOUT_S = 600
FEW = Amounts(triggers=1, runs=1, warm_up_triggers=0, warm_up_runs=0)


@only_long
def test_both_formats_write_every_row_over_sasl_ssl(kafka: SecureServer, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "listeners.json"
    write_listeners(kafka, file)
    plaintext = kafka.addresses[PLAINTEXT]
    bench = bench_spark.Bench(spark, plaintext, [], read_listeners(plaintext, file))
    sinks = ("kafkalite", "kafka", "kafka-tuned", "kafkalite over PLAINTEXT")
    comparison = bench_spark.Comparison("few rows", rows=2000, sinks=sinks, security="SASL_SSL")
    found = bench_spark.compare(bench, comparison, 1, Console(quiet=True))
    assert tuple(found["sinks"]) == sinks
    assert all(figures["rows_per_s"] > 0 for figures in found["sinks"].values())
    assert set(bench.handshakes(("PLAINTEXT", "SASL_SSL"))) == {"PLAINTEXT", "SASL_SSL"}


@only_long
@pytest.mark.parametrize(
    ("measure", "streams"),
    [(ADD_BATCH, tuple(STREAMS)), (WHOLE_TRIGGER, ("kafka", "kafkalite", "null"))],
    ids=["addBatch", "whole trigger"],
)
def test_every_stream_writes_every_row_over_sasl_ssl(
    kafka: SecureServer, spark: SparkSession, measure: Measure, streams: tuple[str, ...]
) -> None:
    register_null(spark)
    bench = Bench(spark, kafka.looks[SASL_SSL], kafka.client_properties(SASL_SSL))
    result = bench.compare(measure, measure.streams, 2, FEW)
    assert tuple(result["streams"]) == streams
    assert all(figures["p50_ms"] > 0 for figures in result["streams"].values())
    assert result["streams"]["kafka"]["times_sparks_own"] == 1


@only_long
def test_small_writes_are_repeated_in_one_session(kafka: SecureServer, spark: SparkSession) -> None:
    register_null(spark)
    found = bench_small.repeated(spark, bench_small.COMPARED, kafka.addresses[PLAINTEXT], 1, warm_up_writes=1)
    assert set(found["sinks"]) == {"kafka", "kafkalite", "null"}
    assert all(figures["p50_ms"] > 0 for figures in found["sinks"].values())


def run_script(kafka: SecureServer, tmp_path: Path, *arguments: str) -> Any:
    """What the last line of a benchmark says."""
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
    assert set(result["handshake_ms"]) == {"PLAINTEXT", "SASL_SSL"}


@only_long
@pytest.mark.parametrize("command", ["stream", "trigger"])
def test_the_script_compares_micro_batches_over_sasl_ssl(kafka: SecureServer, tmp_path: Path, command: str) -> None:
    few = ("--tasks", "1", "--triggers", "1", "--runs", "1")
    (result,) = run_script(kafka, tmp_path, command, "--security", "SASL_SSL", *few, "--results", str(tmp_path))
    assert result["security"] == "SASL_SSL"
    assert (tmp_path / f"{command}-1-tasks-over-sasl-ssl.json").exists()


@only_long
def test_the_script_compares_small_writes_repeated_and_first(kafka: SecureServer, tmp_path: Path) -> None:
    result = run_script(kafka, tmp_path, "small", "--writes", "1", "--sessions", "1", "--results", str(tmp_path))
    assert set(result) == {"repeated", "first"}
    assert all(figures["median_s"] > 0 for figures in result["first"]["sinks"].values())
    assert {path.name for path in tmp_path.glob("small-*.json")} == {"small-repeated.json", "small-first.json"}
