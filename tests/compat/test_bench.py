"""The benchmarks that need a real Kafka still run, with few rows; their measurements are not checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.amounts import only_long
from tests.support.benchmarks import SCRIPT, run

if TYPE_CHECKING:
    from tests.support.real_kafka import RealKafka

TIMEOUT_S = 240


def bench(real_kafka: RealKafka, *arguments: str) -> Any:
    """Run a benchmark; return the JSON of its last line."""
    return run((*SCRIPT, *arguments), TIMEOUT_S, KAFKALITE_BENCH_BOOTSTRAP=real_kafka.bootstrap_servers)


@only_long
def test_every_sink_writes_every_row(real_kafka: RealKafka) -> None:
    sinks = "kafkalite,kafka,kafka-tuned,confluent,kafka-python,null"
    result = bench(real_kafka, "spark", "--rows", "2000", "--tasks", "1", "--runs", "1", "--sinks", sinks)
    assert set(result["sinks"]) == set(sinks.split(","))
    assert all(figures["rows_per_s"] > 0 for figures in result["sinks"].values())


@only_long
def test_columns_and_the_java_producer_send_every_row(real_kafka: RealKafka) -> None:
    (result,) = bench(real_kafka, "columns", "--rows", "2000", "--runs", "1", "--codecs", "lz4")
    assert set(result["senders"]) == {"kafkalite", "java", "java, system's send buffer"}
