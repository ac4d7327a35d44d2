"""The cost of exactly-once writes: the same rows at least once, in one transaction per task, and in one transaction.

Run by ``scripts/bench.sh exactly-once``. The three ways take turns; every run writes to a fresh topic, whose committed
rows are then counted. The commit time is measured on the driver, from the end of the last task to the last EndTxn
response.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import kafka_sink
from tests.bench import results
from tests.bench.spark_sinks import rows, session
from tests.bench.topics import WAIT_S, fresh_topic

PARTITIONS: Final = 4
_versions: Final = itertools.count(1)

Options = Mapping[str, str]
#: Each writes a DataFrame and returns how long the commit took, in ms.
Way = Callable[[DataFrame, Options], int]


def at_least_once(data: DataFrame, options: Options) -> int:
    return kafka_sink.write(data, options=options).commit_ms


def parallel(data: DataFrame, options: Options) -> int:
    app_id = f"bench-parallel-{options['topic']}"
    return kafka_sink.write(data, options=options, app_id=app_id, version=next(_versions), atomic=False).commit_ms


def atomic(data: DataFrame, options: Options) -> int:
    app_id = f"bench-atomic-{options['topic']}"
    return kafka_sink.write(data, options=options, app_id=app_id, version=next(_versions)).commit_ms


WAYS: Final[Mapping[str, Way]] = {
    "at least once": at_least_once,
    "a transaction per task": parallel,
    "one transaction": atomic,
}


def committed_end(bootstrap_servers: str, topic: str) -> int:
    """Return the number of offsets before the last stable offsets, control records included."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "bench",
        "isolation.level": "read_committed",
        "log_level": 3,
    }
    consumer = Consumer(settings)
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=WAIT_S)[1]
            for number in range(PARTITIONS)
        )
    finally:
        consumer.close()


def run(data: DataFrame, way: str, bootstrap_servers: str, topic: str, count: int) -> tuple[float, int]:
    """Return (seconds, ms of the commit) of one write; RuntimeError if its rows are not all committed."""
    expected = committed_end(bootstrap_servers, topic) + count
    started = time.perf_counter()
    commit_ms = WAYS[way](data, {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic})
    seconds = time.perf_counter() - started
    found = committed_end(bootstrap_servers, topic)
    # EndTxn's response means that the outcome is final; the markers may reach the partitions a moment later.
    while found < expected and time.perf_counter() < started + seconds + WAIT_S:
        found = committed_end(bootstrap_servers, topic)
    if found < expected:
        raise RuntimeError(f"{way}: {expected - found:,} of {count:,} rows are not committed")
    return seconds, commit_ms


def compare(
    spark: SparkSession, ways: Sequence[str], bootstrap_servers: str, count: int, tasks: int, runs: int
) -> dict[str, Any]:
    """Run the ways in turns after a warm-up; return medians per way. Each way has its own topic and, for exactly once,
    its own sink, and each run is the sink's next batch."""
    data = rows(spark, "keyed", count, tasks)
    taken: dict[str, list[tuple[float, int]]] = {way: [] for way in ways}
    with contextlib.ExitStack() as stack:
        topics = {way: stack.enter_context(fresh_topic(bootstrap_servers, PARTITIONS)) for way in ways}
        for turn in range(-1, runs):
            for way in ways:
                done = run(data, way, bootstrap_servers, topics[way], count)
                if turn >= 0:
                    taken[way].append(done)
    return {
        "rows": count,
        "tasks": tasks,
        "ways": {
            way: {
                "rows_per_s": round(count / statistics.median(seconds for seconds, _ in found)),
                "commit_p50_ms": statistics.median(ms for _, ms in found),
                "commit_slowest_ms": max(ms for _, ms in found),
                "runs": [round(count / seconds) for seconds, _ in found],
            }
            for way, found in taken.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--tasks", default="1,8,200", help="tasks of a write, comma-separated")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each number of tasks")
    options = parser.parse_args()

    console = Console(highlight=False)
    found = []
    spark = session("", options.cores)
    try:
        for tasks in map(int, options.tasks.split(",")):
            result = compare(spark, tuple(WAYS), options.bootstrap_servers, options.rows, tasks, options.runs)
            table = Table(title=f"{options.rows:,} rows, {tasks} tasks, median of {options.runs} runs")
            for heading in ("way", "rows/s", "commit p50 ms", "slowest ms"):
                table.add_column(heading, justify="left" if heading == "way" else "right")
            for way, figures in result["ways"].items():
                table.add_row(
                    way,
                    f"{figures['rows_per_s']:,}",
                    f"{figures['commit_p50_ms']:.0f}",
                    f"{figures['commit_slowest_ms']:.0f}",
                )
            console.print(table)
            found.append(result)
            if options.results is not None:
                results.save(f"exactly once {tasks} tasks", result, options.results)
    finally:
        spark.stop()
    # One line of JSON for programs that keep the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
