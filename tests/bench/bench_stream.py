"""The time of a micro-batch: writeStream.format("kafkalite"), Spark's own sink, and a Python sink that does nothing.

Run by ``scripts/bench.sh stream`` and, with ``--whole-trigger``, by ``scripts/bench.sh trigger``. Every stream gets
1,000 rows per trigger from the source rate-micro-batch. The times are those of Spark's progress reports:

* ``addBatch``, the part of a trigger that depends on the sink, at least once and exactly once. With ``--security`` all
  streams write over that listener.
* ``triggerExecution``, the complete trigger, where Spark writes the progress of a stream during the next batch
  (``asyncProgressTrackingEnabled``), for all streams and at least once only.

Streams take turns in one session, and each writes to a fresh topic whose rows are counted when it has ended. The sink
that does nothing runs both unchanged and with Spark's Python processes tuned as kafkalite tunes them: the floor. The
streams share Spark's Python workers, so the untuned one also benefits from settings that others made in them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lpad
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

from tests.bench import results
from tests.bench.listeners import read_listeners
from tests.bench.spark_sinks import LABELS, WITHOUT_RECORDS, session
from tests.bench.topics import await_records, fresh_topic

ROWS_PER_TRIGGER: Final = 1000
PARTITIONS: Final = 4
PLAINTEXT: Final = "PLAINTEXT"
#: Spark's own sink, which the other streams are compared with.
SPARKS_OWN: Final = "kafka"
_ONCE: Final = "kafkalite exactly once"

#: Name → ``format`` and options.
STREAMS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    SPARKS_OWN: ("kafka", {}),
    "kafkalite": ("kafkalite", {}),
    _ONCE: ("kafkalite", {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "bench-stream"}),
    "null": ("null-arrow", {}),
    "null-tuned": ("null-arrow-tuned", {}),
}


@dataclass(frozen=True, slots=True)
class Measure:
    """The part of a trigger that is compared."""

    #: The prefix of its results' names.
    name: str
    #: Spark's name of the part in ``durationMs``.
    duration: str
    streams: tuple[str, ...] = tuple(STREAMS)
    #: Further options for every stream.
    options: Mapping[str, str] = field(default_factory=dict)


ADD_BATCH: Final = Measure("stream", "addBatch")
WHOLE_TRIGGER: Final = Measure(
    "trigger",
    "triggerExecution",
    # Spark would record the contents of a batch after the batch, which exactly once refuses.
    tuple(stream for stream in STREAMS if stream != _ONCE),
    # Spark allows this only for the sinks of a list, which has no Python data sources.
    {"asyncProgressTrackingEnabled": "true", "_asyncProgressTrackingOverrideSinkSupportCheck": "true"},
)


def start(
    spark: SparkSession,
    stream: str,
    client: Mapping[str, str],
    topic: str,
    tasks: int,
    checkpoint: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> StreamingQuery:
    """Start the *stream* of this name, with *tasks* per micro-batch and the options *more*."""
    kind, options = STREAMS[stream]
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_TRIGGER)
        .option("numPartitions", tasks)
        .load()
    )
    key = col("value").cast("string")
    return (
        source.select(key.alias("key"), lpad(key, 100, "x").alias("value"))
        .writeStream.format(kind)
        .options(**{f"kafka.{name}": value for name, value in client.items()})
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .options(**options)
        .options(**more)
        .start()
    )


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is measured. The warm-up is not timed: workers start, and the JVM compiles."""

    triggers: int = 30
    runs: int = 3
    warm_up_triggers: int = 5
    warm_up_runs: int = 1


@dataclass(frozen=True, slots=True)
class Bench:
    """The session, the bootstrap servers for creating and counting topics, and the properties for writing to them."""

    spark: SparkSession
    bootstrap_servers: str
    #: Properties of a client, including ``bootstrap.servers``.
    client: Mapping[str, str]

    def durations_ms(self, measure: Measure, stream: str, tasks: int, amounts: Amounts) -> list[int]:
        """Return the ms of ``amounts.triggers`` micro-batches after the warm-up; RuntimeError if rows are missing."""
        # A stream that is stopped may still be writing its progress.
        checkpoints = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with fresh_topic(self.bootstrap_servers, PARTITIONS) as topic, checkpoints as checkpoint:
            query = start(self.spark, stream, self.client, topic, tasks, checkpoint, measure.options)
            try:
                wanted = amounts.warm_up_triggers + amounts.triggers
                found: dict[int, int] = {}
                while len(found) < wanted:
                    # It also accepts fractions, which its annotation denies.
                    if query.awaitTermination(0.2):  # type: ignore[arg-type]
                        raise RuntimeError(f"the stream into {stream} ended unexpectedly")
                    for progress in query.recentProgress:
                        if progress["numInputRows"] == ROWS_PER_TRIGGER:
                            found[progress["batchId"]] = progress["durationMs"][measure.duration]
            finally:
                query.stop()
            least = 0 if stream in WITHOUT_RECORDS else len(found) * ROWS_PER_TRIGGER
            stored = await_records(self.bootstrap_servers, topic, PARTITIONS, least)
        if stored < least:
            raise RuntimeError(f"{stream} wrote {stored:,} of {least:,} rows")
        return [found[batch] for batch in sorted(found)][amounts.warm_up_triggers : wanted]

    def compare(self, measure: Measure, streams: Sequence[str], tasks: int, amounts: Amounts) -> dict[str, Any]:
        """Run the streams in turns; return p50 and p99 over all runs of each."""
        taken: dict[str, list[list[int]]] = {stream: [] for stream in streams}
        for turn in range(-amounts.warm_up_runs, amounts.runs):
            for stream in streams:
                times = self.durations_ms(measure, stream, tasks, amounts)
                if turn >= 0:
                    taken[stream].append(times)
        return {
            "tasks": tasks,
            "rows_per_trigger": ROWS_PER_TRIGGER,
            "duration": measure.duration,
            "options": dict(measure.options),
            "streams": {stream: _summary(runs, taken.get(SPARKS_OWN)) for stream, runs in taken.items()},
        }


def _summary(runs: Sequence[Sequence[int]], of_sparks_own: Sequence[Sequence[int]] | None) -> dict[str, Any]:
    times = [ms for run in runs for ms in run]
    p50_ms = statistics.median(times)
    found: dict[str, Any] = {
        "p50_ms": p50_ms,
        "p99_ms": sorted(times)[min(int(len(times) * 0.99), len(times) - 1)],
        "triggers": len(times),
        "runs": [statistics.median(run) for run in runs],
    }
    if of_sparks_own is not None:
        found["times_sparks_own"] = round(p50_ms / statistics.median(ms for run in of_sparks_own for ms in run), 3)
    return found


def show(title: str, result: Mapping[str, Any], console: Console) -> None:
    table = Table(title=title)
    for heading in ("stream", "p50 ms", "p99 ms", "times Spark's own"):
        table.add_column(heading, justify="left" if heading == "stream" else "right")
    for stream, figures in result["streams"].items():
        ratio = f"{figures['times_sparks_own']:.2f}" if "times_sparks_own" in figures else "–"
        table.add_row(LABELS.get(stream, stream), f"{figures['p50_ms']:.0f}", f"{figures['p99_ms']:.0f}", ratio)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--jars", required=True, help="Spark's own Kafka connector, comma-separated")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--tasks", default="2,20", help="tasks per micro-batch, comma-separated (%(default)s)")
    parser.add_argument("--triggers", type=int, default=Amounts().triggers, help="timed micro-batches per run (30)")
    parser.add_argument("--runs", type=int, default=Amounts().runs, help="timed runs per stream (3)")
    parser.add_argument("--whole-trigger", action="store_true", help="triggerExecution with asynchronous progress")
    parser.add_argument("--streams", help=f"comma-separated, of {','.join(STREAMS)} (all that can be measured)")
    parser.add_argument(
        "--security",
        default=PLAINTEXT,
        help=f"security protocol of the listener to write to, such as SASL_SSL ({PLAINTEXT})",
    )
    parser.add_argument("--listeners", type=Path, help="JSON file with client properties by security protocol")
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each number of tasks")
    options = parser.parse_args()
    listeners = read_listeners(options.bootstrap_servers, options.listeners)
    if options.security not in listeners:
        parser.error(
            f"--security {options.security}: expected one of {', '.join(listeners)}, as defined by --listeners"
        )
    measure = WHOLE_TRIGGER if options.whole_trigger else ADD_BATCH
    streams = options.streams.split(",") if options.streams else measure.streams
    if unknown := set(streams) - set(measure.streams):
        parser.error(f"--streams {', '.join(sorted(unknown))}: expected some of {', '.join(measure.streams)}")

    console = Console(highlight=False)
    found = []
    over = "" if options.security == PLAINTEXT else f" over {options.security}"
    spark = session(options.jars, options.cores)
    try:
        bench = Bench(spark, options.bootstrap_servers, listeners[options.security])
        for tasks in map(int, options.tasks.split(",")):
            result = bench.compare(measure, streams, tasks, Amounts(options.triggers, options.runs))
            result |= {"security": options.security, "cores": options.cores}
            show(f"{measure.duration} of {ROWS_PER_TRIGGER:,} rows, {tasks} tasks{over}", result, console)
            found.append(result)
            if options.results is not None:
                results.save(f"{measure.name} {tasks} tasks{over}", result, options.results)
    finally:
        spark.stop()
    # One line of JSON for programs that keep the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
