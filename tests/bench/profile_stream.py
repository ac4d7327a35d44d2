"""The CPU time of a micro-batch by part: Spark's, kafkalite's own, and the broker's.

Run by ``scripts/bench.sh profile``; prints the table of docs/internals/performance.md. Spark's own sink, a Python sink
that does nothing, tuned, and kafkalite write the same micro-batches in turn. The kernel counts the time of processes;
kafkalite's own part of Spark's Python processes is the time of its calls (``timed_source``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming import StreamingQuery

from tests.bench import resources
from tests.bench.bench_stream import PARTITIONS, ROWS_PER_TRIGGER, STREAMS, start
from tests.bench.spark_sinks import LABELS, session
from tests.bench.timed_source import DRIVER, FOLDER, TASK, TimedSource
from tests.bench.topics import fresh_topic

PROFILED: Final = ("kafka", "null-tuned", "kafkalite", "kafkalite exactly once")
WARM_UP_TRIGGERS: Final = 15
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds since the start of the processes."""

    jvm: float
    python: float
    broker: float

    @classmethod
    def now(cls, brokers: Collection[int]) -> Cpu:
        below = resources.descendants(os.getpid()) - {os.getpid()}
        jvms = {pid for pid in below if "java" in resources.command(pid).partition(" ")[0]}
        seconds = resources.cpu_seconds
        return cls(seconds(jvms), seconds(below - jvms), seconds(brokers))


def _batches(query: StreamingQuery, least: int) -> dict[int, int]:
    """Wait for *least* completed micro-batches; return the ms of their ``addBatch`` by batch number."""
    found: dict[int, int] = {}
    while len(found) < least:
        if not query.isActive:
            raise RuntimeError(f"the stream has ended: {query.exception()}")
        time.sleep(_POLL_S)
        for progress in query.recentProgress:
            if progress["numInputRows"] == ROWS_PER_TRIGGER:
                found[progress["batchId"]] = progress["durationMs"]["addBatch"]
    return found


def _own(folder: Path, since: float, until: float) -> dict[str, list[tuple[float, float]]]:
    """Return the wall and CPU seconds of kafkalite's own calls by part."""
    own: dict[str, list[tuple[float, float]]] = {TASK: [], DRIVER: []}
    for file in folder.iterdir():
        for line in map(json.loads, file.read_text().splitlines()):
            if since <= line["ended"] <= until:
                own[line["part"]].append((line["wall"], line["cpu"]))
    return own


def profile(
    spark: Any, bootstrap_servers: str, stream: str, tasks: int, triggers: int, brokers: Collection[int]
) -> dict[str, Any]:
    """Return the parts of one micro-batch of *stream*, in ms."""
    folder = Path(os.environ[FOLDER])
    checkpoints = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with fresh_topic(bootstrap_servers, PARTITIONS) as topic, checkpoints as checkpoint:
        query = start(spark, stream, {"bootstrap.servers": bootstrap_servers}, topic, tasks, checkpoint)
        try:
            before = _batches(query, WARM_UP_TRIGGERS)
            since, cpu = time.monotonic(), Cpu.now(brokers)
            after = _batches(query, len(before) + triggers)
            until, cpu_after = time.monotonic(), Cpu.now(brokers)
        finally:
            query.stop()
    measured = [after[batch] for batch in after.keys() - before.keys()]
    own = _own(folder, since, until)

    def each(seconds: float) -> float:
        return seconds / len(measured) * 1000

    in_tasks, in_driver = (sum(cpu for _, cpu in own[part]) for part in (TASK, DRIVER))
    waits = [wall - cpu for wall, cpu in own[TASK]]
    return {
        "stream": stream,
        "tasks": tasks,
        "batches": len(measured),
        "addBatch, p50": statistics.median(measured),
        "CPU: Spark's JVM": each(cpu_after.jvm - cpu.jvm),
        "CPU: Spark's Python": each(cpu_after.python - cpu.python - in_tasks - in_driver),
        "CPU: kafkalite in the tasks": each(in_tasks),
        "CPU: kafkalite in planner and committer": each(in_driver),
        "CPU: the broker": each(cpu_after.broker - cpu.broker),
        "a task waits, p50": statistics.median(waits) * 1000 if waits else 0.0,
    }


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table in Markdown with the parts in rows and the streams in columns."""
    labels = {**LABELS, "null-tuned": f"{LABELS['null']}, tuned"}
    heads = [f"{labels.get(run['stream'], run['stream'])}, {run['tasks']} tasks" for run in found]
    lines = [f"| ms | {' | '.join(heads)} |", f"| --- |{' --- |' * len(found)}"]
    parts = list(found[0])[3:]
    lines += [f"| {part} | {' | '.join(f'{run[part]:.1f}' for run in found)} |" for part in parts]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--broker-pids", default="", help="processes of the broker, comma-separated")
    parser.add_argument("--jars", required=True, help="Spark's own Kafka connector, comma-separated")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--tasks", default="2,20", help="tasks per micro-batch, comma-separated (%(default)s)")
    parser.add_argument("--triggers", type=int, default=60, help="micro-batches that are measured (%(default)s)")
    parser.add_argument("--streams", default=",".join(PROFILED), help=f"some of {', '.join(STREAMS)}")
    options = parser.parse_args()
    brokers = {int(pid) for pid in options.broker_pids.split(",") if pid}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        spark = session(options.jars, options.cores)
        spark.dataSource.register(TimedSource)
        try:
            found = [
                profile(spark, options.bootstrap_servers, stream, tasks, options.triggers, brokers)
                for tasks in map(int, options.tasks.split(","))
                for stream in options.streams.split(",")
            ]
        finally:
            spark.stop()
    print(table(found))


if __name__ == "__main__":
    main()
