"""Time of a micro-batch: writeStream.format("kafkalite") beside a Python sink that does nothing and Spark's own sink.

Run by ``scripts/bench.sh stream``. Every stream gets 1,000 rows per trigger from the source rate-micro-batch; what is
compared is ``addBatch`` of Spark's own progress reports, the part of a trigger that a sink can do anything about.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lpad
from rich.console import Console
from rich.table import Table

from tests.bench import results
from tests.bench.spark_sinks import session
from tests.bench.topics import fresh_topic

ROWS_PER_TRIGGER: Final = 1000
#: Untimed at the start of every stream: workers start.
WARM_UP_TRIGGERS: Final = 5

#: ``format`` and options by name; the first is the floor that the others are held against.
STREAMS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "null": ("null-arrow", {}),
    "kafkalite": ("kafkalite", {}),
    "kafkalite exactly once": (
        "kafkalite",
        {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "bench-stream"},
    ),
    "kafka": ("kafka", {}),
}


def add_batch_ms(spark: SparkSession, stream: str, bootstrap_servers: str, tasks: int, triggers: int) -> list[int]:
    """``addBatch`` of *triggers* micro-batches, in ms, after the warm-up."""
    kind, options = STREAMS[stream]
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_TRIGGER)
        .option("numPartitions", tasks)
        .load()
    )
    key = col("value").cast("string")
    rows = source.select(key.alias("key"), lpad(key, 100, "x").alias("value"))
    with fresh_topic(bootstrap_servers, 4) as topic, tempfile.TemporaryDirectory() as checkpoint:
        query = (
            rows.writeStream.format(kind)
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", checkpoint)
            .options(**options)
            .start()
        )
        try:
            wanted = WARM_UP_TRIGGERS + triggers
            found: dict[int, int] = {}
            while len(found) < wanted:
                if query.awaitTermination(0.2):
                    raise RuntimeError(f"the stream into {stream} ended by itself")
                for progress in query.recentProgress:
                    if progress["numInputRows"] == ROWS_PER_TRIGGER:
                        found[progress["batchId"]] = progress["durationMs"]["addBatch"]
        finally:
            query.stop()
    return [found[batch] for batch in sorted(found)][WARM_UP_TRIGGERS:wanted]


def compare(
    spark: SparkSession, streams: Sequence[str], bootstrap_servers: str, tasks: int, triggers: int, runs: int
) -> dict[str, Any]:
    """Streams in turns; p50 and p99 of ``addBatch`` over all runs of each."""
    taken: dict[str, list[int]] = {stream: [] for stream in streams}
    for turn in range(-1, runs):
        for stream in streams:
            times = add_batch_ms(spark, stream, bootstrap_servers, tasks, triggers)
            # The first turn warms up the JVM, which the first stream would pay for otherwise.
            taken[stream] += times if turn >= 0 else []
    floor = statistics.median(taken[streams[0]])
    return {
        "tasks": tasks,
        "rows_per_trigger": ROWS_PER_TRIGGER,
        "streams": {
            stream: {
                "p50_ms": statistics.median(times),
                "p99_ms": sorted(times)[min(int(len(times) * 0.99), len(times) - 1)],
                "of_floor": round(statistics.median(times) / floor, 3),
                "triggers": len(times),
            }
            for stream, times in taken.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--jars", required=True, help="Spark's own Kafka connector, comma-separated")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--tasks", default="2,20", help="tasks per micro-batch, comma-separated")
    parser.add_argument("--triggers", type=int, default=30, help="timed micro-batches of a run")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each stream")
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each number of tasks")
    options = parser.parse_args()

    console = Console(highlight=False)
    found = []
    spark = session(options.jars, options.cores)
    try:
        for tasks in map(int, options.tasks.split(",")):
            streams = options.streams.split(",")
            result = compare(spark, streams, options.bootstrap_servers, tasks, options.triggers, options.runs)
            table = Table(title=f"addBatch of {ROWS_PER_TRIGGER} rows, {tasks} tasks")
            for heading in ("stream", "p50 ms", "p99 ms", "of the floor"):
                table.add_column(heading, justify="left" if heading == "stream" else "right")
            for stream, figures in result["streams"].items():
                table.add_row(
                    stream, f"{figures['p50_ms']:.0f}", f"{figures['p99_ms']:.0f}", f"{figures['of_floor']:.2f}"
                )
            console.print(table)
            found.append(result)
            if options.results is not None:
                results.save(f"stream {tasks} tasks", result, options.results)
    finally:
        spark.stop()
    # One line for whoever keeps the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
