"""How a write of the sink scales: the memory of a worker, and the speed with more rows, partitions and brokers.

Run by ``scripts/bench.sh limits``: ``memory``, ``rows`` and ``partitions`` on a real broker, ``brokers`` on embedded
brokers. Topics keep only their last segments, so that they fit on the disk; the rows are counted by end offsets.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from kafka_sink import EmbeddedCluster
from tests.bench import resources, results
from tests.bench.spark_sinks import SINKS, rows, session
from tests.bench.topics import SMALL_LOG, end_offsets, fresh_topic

_MIB: Final = 1 << 20


def write(spark: SparkSession, bootstrap_servers: str, shape: str, count: int, tasks: int, partitions: int) -> float:
    """Return the rows per second of one write; RuntimeError if the topic did not grow by every row."""
    with fresh_topic(bootstrap_servers, partitions, SMALL_LOG) as topic:
        data = rows(spark, shape, count, tasks)
        started = time.perf_counter()
        SINKS["kafkalite"](data, topic, bootstrap_servers, {})
        seconds = time.perf_counter() - started
        found = end_offsets(bootstrap_servers, topic, partitions)
    if found != count:
        raise RuntimeError(f"{found:,} of {count:,} rows are in the topic")
    return count / seconds


def memory(spark: SparkSession, bootstrap_servers: str, scale: float, runs: int, sizes: int) -> dict[str, Any]:
    """Return the resident memory of the worker that writes 10 GB through the default 32 MB of buffer.memory."""
    count = max(int(10_000_000 * scale), 1000)
    write(spark, bootstrap_servers, "1 kB", max(count // 100, 1000), 1, 4)
    watch = resources.MemoryWatch()
    with watch.watching(os.getpid()):
        rate = write(spark, bootstrap_servers, "1 kB", count, 1, 4)
    # The largest worker is the one that wrote; the others only plan and commit.
    samples = max(watch.samples.values(), key=max)
    steady = samples[len(samples) // 10 :]
    return {
        "rows": count,
        "gigabytes": round(count / 1e6, 1),
        "rows_per_s": round(rate),
        "peak_mib": round(max(samples) / _MIB, 1),
        "least_mib": round(min(steady) / _MIB, 1),
        "samples": len(samples),
    }


def growth_of_rows(spark: SparkSession, bootstrap_servers: str, scale: float, runs: int, sizes: int) -> dict[str, Any]:
    """Return the rates with those of a sink that does nothing: Spark's start-up weighs more the fewer the rows are."""

    def nothing(count: int) -> float:
        data = rows(spark, "keyed", count, 4)
        started = time.perf_counter()
        SINKS["null"](data, "", bootstrap_servers, {})
        return count / (time.perf_counter() - started)

    counts = [max(int(count * scale), 1000) for count in (1_000_000, 10_000_000, 100_000_000)[:sizes]]
    write(spark, bootstrap_servers, "keyed", counts[0], 4, 4)
    found = _rates(counts, runs, lambda count: write(spark, bootstrap_servers, "keyed", count, 4, 4))
    nothing(counts[0])
    idle = _rates(counts, runs, nothing)
    return {**found, "nothing_rows_per_s": idle["rows_per_s"], "least_of_most_of_nothing": idle["least_of_most"]}


def growth_of_partitions(
    spark: SparkSession, bootstrap_servers: str, scale: float, runs: int, sizes: int
) -> dict[str, Any]:
    count = max(int(5_000_000 * scale), 1000)
    write(spark, bootstrap_servers, "keyed", count, 4, 4)
    return _rates(
        [1, 10, 100, 1000][:sizes], runs, lambda parts: write(spark, bootstrap_servers, "keyed", count, 4, parts)
    )


def growth_of_brokers(
    spark: SparkSession, bootstrap_servers: str, scale: float, runs: int, sizes: int
) -> dict[str, Any]:
    count = max(int(5_000_000 * scale), 1000)

    def with_brokers(nodes: int) -> float:
        with EmbeddedCluster(nodes) as cluster:
            return write(spark, cluster.bootstrap_servers, "keyed", count, 4, 8)

    with_brokers(1)
    return _rates([1, 2, 4, 8][:sizes], runs, with_brokers)


def _rates(sizes: list[int], runs: int, run: Callable[[int], float]) -> dict[str, Any]:
    """Measure the sizes in turns, so that a slow minute of the machine affects all of them."""
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(runs):
        for size in sizes:
            # One run of the largest size takes most of the time, and is long enough to be reliable.
            if turn == 0 or size != max(sizes):
                taken[size].append(run(size))
    rates = {str(size): round(statistics.median(found)) for size, found in taken.items()}
    return {
        "rows_per_s": rates,
        "runs": {str(size): [round(rate) for rate in found] for size, found in taken.items()},
        "least_of_most": round(min(rates.values()) / max(rates.values()), 3),
    }


LIMITS: Final[Mapping[str, Callable[[SparkSession, str, float, int, int], dict[str, Any]]]] = {
    "memory": memory,
    "rows": growth_of_rows,
    "partitions": growth_of_partitions,
    "brokers": growth_of_brokers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--jars", default="", help="not used")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of rows")
    parser.add_argument("--sizes", type=int, default=4, help="number of steps of each limit, smallest first")
    parser.add_argument("--limits", default=",".join(LIMITS))
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each limit")
    options = parser.parse_args()

    found = {}
    spark = session(options.jars, options.cores)
    try:
        for limit in options.limits.split(","):
            found[limit] = LIMITS[limit](spark, options.bootstrap_servers, options.scale, options.runs, options.sizes)
            print(limit, found[limit], flush=True)
            if options.results is not None:
                results.save(f"limit {limit}", found[limit], options.results)
    finally:
        spark.stop()
    # One line of JSON for programs that keep the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
