"""The comparisons that need a real Kafka, with few rows: their figures mean nothing here, but they must not rot."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.amounts import only_long

if TYPE_CHECKING:
    from tests.compat.conftest import RealKafka

BENCH = Path(__file__).parents[2] / "scripts" / "bench.sh"
TIMEOUT_S = 240


def bench(real_kafka: RealKafka, *arguments: str) -> Any:
    """What the last line of a benchmark says."""
    done = subprocess.run(
        ["bash", str(BENCH), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "KAFKALITE_BENCH_BOOTSTRAP": real_kafka.bootstrap_servers},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@only_long
def test_every_sink_writes_every_row(real_kafka: RealKafka) -> None:
    sinks = "kafkalite,kafka,kafka-tuned,confluent,kafka-python,null"
    result = bench(real_kafka, "spark", "--rows", "2000", "--tasks", "1", "--runs", "1", "--sinks", sinks)
    assert set(result["sinks"]) == set(sinks.split(","))
    assert all(figures["rows_per_s"] > 0 for figures in result["sinks"].values())


def test_columns_and_the_java_producer_send_every_row(real_kafka: RealKafka) -> None:
    (result,) = bench(real_kafka, "columns", "--rows", "2000", "--runs", "1", "--codecs", "lz4")
    assert set(result["senders"]) == {"kafkalite", "java", "java, system's send buffer"}
