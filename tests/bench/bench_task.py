"""The time of one task outside Spark: its wall time, and the CPU time of its process and of its own thread.

Run by ``scripts/bench.sh task``. A micro-batch consists of many tasks of few rows, so a tenth of a millisecond counts.
The tasks take turns with confluent-kafka, which sends the same rows with a producer that it keeps, row by row. All rows
are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.task_writer import write_task
from tests.bench import results
from tests.bench.topics import fresh_topic, records_in

PARTITIONS: Final = 4
#: Tasks per run; the spread is that of the runs' medians.
TASKS_OF_A_RUN: Final = 100
WARM_UP_TASKS: Final = 50
#: The rest of the CPU time is the producer's sender; the rest of the wall time is waiting for the broker and for a CPU.
CLOCKS: Final = {"wall": "wall ms", "cpu": "CPU ms", "thread": "of it the caller's"}
LABELS: Final = {"task": "kafkalite's task", "client": "confluent-kafka, rows with a kept producer"}

Write = Callable[[], None]


def rows_of(count: int) -> pa.RecordBatch:
    """Return keys of 10 and values of 100 characters."""
    keys = pa.array([f"key-{number:06}" for number in range(count)])
    return pa.RecordBatch.from_arrays([keys, pa.array(["v" * 100] * count)], ["key", "value"])


def measured(bootstrap_servers: str, rows: int, runs: int) -> dict[str, Any]:
    """Return the median of each run, in ms, by clock."""
    batch = rows_of(rows)
    taken: dict[str, dict[str, list[float]]] = {name: {clock: [] for clock in CLOCKS} for name in LABELS}
    with contextlib.ExitStack() as stack:
        topics = {name: stack.enter_context(fresh_topic(bootstrap_servers, PARTITIONS)) for name in LABELS}
        writers = {
            "task": _tasks(bootstrap_servers, topics["task"], batch),
            "client": _rows(bootstrap_servers, topics["client"], batch),
        }
        for write in writers.values():
            _timed(write, WARM_UP_TASKS)
        for _ in range(runs):
            for name, write in writers.items():
                for clock, value in zip(CLOCKS, _timed(write, TASKS_OF_A_RUN), strict=True):
                    taken[name][clock].append(round(value, 3))
        for name, topic in topics.items():
            expected = rows * (WARM_UP_TASKS + runs * TASKS_OF_A_RUN)
            found = records_in(bootstrap_servers, topic, PARTITIONS)
            if found != expected:
                raise RuntimeError(f"{LABELS[name]} wrote {found:,} of {expected:,} rows")
    return {"rows": rows, "tasks": TASKS_OF_A_RUN, "writers": taken}


def _tasks(bootstrap_servers: str, topic: str, batch: pa.RecordBatch) -> Write:
    options = parse_options({"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}).spec

    def write() -> None:
        write_task(iter([batch]), options)

    return write


def _rows(bootstrap_servers: str, topic: str, batch: pa.RecordBatch) -> Write:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 1})

    def write() -> None:
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            producer.produce(topic, value, key)
        producer.flush()

    return write


def _timed(write: Write, count: int) -> tuple[float, float, float]:
    """Return the median wall time and the mean CPU times of the process and of this thread, in ms, of *count* calls."""
    walls = []
    cpu, thread = time.process_time(), time.thread_time()
    for _ in range(count):
        started = time.perf_counter()
        write()
        walls.append(time.perf_counter() - started)
    spent = (time.process_time() - cpu, time.thread_time() - thread)
    return statistics.median(walls) * 1000, spent[0] / count * 1000, spent[1] / count * 1000


def show(result: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"one task of {result['rows']:,} rows, outside Spark")
    for heading in ("", *(each for clock in CLOCKS.values() for each in (clock, "lowest to highest"))):
        table.add_column(heading, justify="right" if heading else "left")
    for name, of_name in result["writers"].items():
        cells = []
        for clock in CLOCKS:
            values = of_name[clock]
            cells += [f"{statistics.median(values):.2f}", f"{min(values):.2f} to {max(values):.2f}"]
        table.add_row(LABELS[name], *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--rows", type=int, default=50, help="rows of a task (%(default)s)")
    parser.add_argument("--runs", type=int, default=10, help="runs of so many tasks (%(default)s)")
    parser.add_argument("--results", type=Path, help="folder for a JSON file of the result")
    options = parser.parse_args()
    result = measured(options.bootstrap_servers, options.rows, options.runs)
    show(result, Console(highlight=False))
    if options.results is not None:
        results.save("task", result, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps(result))


if __name__ == "__main__":
    main()
