"""Rows per second of format("kafkalite") beside Spark's own format("kafka"): same session, same rows, same broker.

Run by ``scripts/bench.sh spark``, which starts the broker and gives Spark its own connector's jars. After some warm-up
the two take turns, so that whatever else the machine does falls on both. Every write goes to a fresh topic whose
end offsets are then counted: a fast write that loses rows is no result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lpad
from rich.console import Console
from rich.table import Table

FORMATS = ("kafkalite", "kafka")
#: Untimed writes of each format: the JVM compiles, workers start.
WARM_UPS = 2
VALUE_CHARACTERS = 100
WAIT_S = 30.0


def session(jars: str, cores: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("bench-spark")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def rows_of_100_bytes(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    key = col("id").cast("string")
    return spark.range(0, rows, 1, tasks).select(key.alias("key"), lpad(key, VALUE_CHARACTERS, "x").alias("value"))


@contextmanager
def fresh_topic(bootstrap_servers: str, partitions: int) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    topic = f"bench-{uuid.uuid4().hex}"
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
    try:
        yield topic
    finally:
        admin.delete_topics([topic])[topic].result(WAIT_S)


def records_in(bootstrap_servers: str, topic: str, partitions: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench"})
    try:
        watermarks = (
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)
            for number in range(partitions)
        )
        return sum(high - low for low, high in watermarks)
    finally:
        consumer.close()


def write(rows: DataFrame, name: str, expected: int, options: argparse.Namespace) -> float:
    """Seconds that one write takes; RuntimeError when not every row is in the topic afterwards."""
    with fresh_topic(options.bootstrap_servers, options.partitions) as topic:
        writer = rows.write.format(name).option("kafka.bootstrap.servers", options.bootstrap_servers)
        for pair in options.properties:
            writer = writer.option(f"kafka.{pair.partition('=')[0]}", pair.partition("=")[2])
        started = time.perf_counter()
        writer.option("topic", topic).mode("append").save()
        seconds = time.perf_counter() - started
        found = records_in(options.bootstrap_servers, topic, options.partitions)
    if found != expected:
        raise RuntimeError(f"format({name!r}) wrote {found:,} of {expected:,} rows")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare format('kafkalite') with Spark's own format('kafka').")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--jars", required=True, help="Spark's own Kafka connector, comma-separated")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3, help="timed writes of each format")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=4, help="Spark partitions")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument(
        "-X",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a producer property for both, as -X compression.type=lz4",
    )
    options = parser.parse_args()

    console = Console()
    spark = session(options.jars, options.cores)
    seconds: dict[str, list[float]] = {name: [] for name in FORMATS}
    try:
        rows = rows_of_100_bytes(spark, options.rows, options.tasks)
        for name in FORMATS * WARM_UPS:
            console.print(f"warming up {name} …")
            write(rows, name, options.rows, options)
        for run in range(options.runs):
            for name in FORMATS:
                seconds[name].append(write(rows, name, options.rows, options))
                rate = options.rows / seconds[name][-1]
                console.print(f"run {run + 1}  {name:<10} {rate:>12,.0f} rows/s", highlight=False)
    finally:
        spark.stop()

    rates = {name: options.rows / statistics.median(times) for name, times in seconds.items()}
    table = Table(title=f"{options.rows:,} rows, local[{options.cores}], median of {options.runs} runs")
    for heading in ("format", "rows/s", "seconds of each run"):
        table.add_column(heading, justify="left" if heading == "format" else "right")
    for name, times in seconds.items():
        table.add_row(name, f"{rates[name]:,.0f}", "  ".join(f"{value:.2f}" for value in times))
    console.print(table)
    ratio = rates["kafkalite"] / rates["kafka"]
    console.print(f"kafkalite / kafka = {ratio:.2f}", highlight=False)
    # One line for whoever keeps the results.
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result = {
        "rows": options.rows,
        "rows_per_s": {name: round(rate) for name, rate in rates.items()},
        "ratio": round(ratio, 3),
        "cores": options.cores,
        "tasks": options.tasks,
        "partitions": options.partitions,
        "properties": options.properties,
        "machine": machine,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
