"""Rows per second and CPU of format("kafkalite") and of other ways from a DataFrame to Kafka, in one session.

Run by ``scripts/bench.sh spark``, which starts the broker and gives Spark the jars of its own connector. After a
warm-up the sinks take turns, so that other load on the machine affects all of them. Every write goes to a fresh topic
whose end offsets are then counted, so that no sink is fast because it loses rows. CPU seconds are those of this process
and its child processes (JVM, Python workers); those of the broker are counted separately.

With ``--security`` the sinks write over that listener of the same broker, kafkalite also over the PLAINTEXT listener,
and the time until a connection is ready is measured for both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from kafka_sink import KafkaProducer
from tests.bench import resources, results
from tests.bench.listeners import read_listeners
from tests.bench.spark_sinks import CONFLUENT, KAFKA_PYTHON, KAFKA_TUNED, SHAPES, SINKS, WITHOUT_RECORDS, rows, session
from tests.bench.topics import fresh_topic, records_in

PLAINTEXT: Final = "PLAINTEXT"
OVER: Final = " over "
#: The default of ``--sinks`` with ``--security``.
_SECURE_SINKS: Final = f"kafkalite,kafka,kafka-tuned,kafkalite{OVER}{PLAINTEXT}"
_HANDSHAKES: Final = 50

#: Loops in Python write the number of rows divided by this: fewer rows suffice to measure their speed.
_ROW_LOOPS: Final[Mapping[str, int]] = {"confluent": 10, "kafka-python": 40}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One table: sinks, number and shape of rows, and target. The other sinks are compared with the first one."""

    name: str
    shape: str = "keyed"
    rows: int = 10_000_000
    sinks: tuple[str, ...] = ("kafkalite", "kafka")
    options: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 4
    tasks: int = 4
    #: The listener that all sinks write to, unless their name ends in OVER and another listener.
    security: str = PLAINTEXT

    def rows_of(self, sink: str) -> int:
        return max(self.rows // _ROW_LOOPS.get(sink, 1), self.tasks)


#: The comparisons in docs/internals/speed.md.
COMPARISONS: Final = (
    Comparison("uncompressed", sinks=("kafkalite", "kafka", "kafka-tuned", "confluent", "kafka-python", "null")),
    Comparison("lz4", sinks=("kafkalite", "kafka", "kafka-tuned"), options={"kafka.compression.type": "lz4"}),
    Comparison("zstd", options={"kafka.compression.type": "zstd"}),
    Comparison("1 kB values", "1 kB", rows=1_000_000),
    Comparison("10 kB values", "10 kB", rows=100_000),
    Comparison("headers", "headers", rows=4_000_000),
    Comparison("no key", "no key", rows=5_000_000),
    Comparison("skewed keys", "skewed", rows=5_000_000),
    Comparison("1,000 partitions", rows=5_000_000, partitions=1000),
    Comparison("Avro, 5 columns", "5 columns", rows=5_000_000, options={"value.format": "avro"}),
    Comparison("Avro, 40 columns", "40 columns", rows=1_000_000, options={"value.format": "avro"}),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One write: its duration, and the CPU time of both sides (0 where it is unknown)."""

    seconds: float
    client_cpu_s: float
    broker_cpu_s: float


@dataclass(frozen=True, slots=True)
class Bench:
    """The session and the brokers of the comparisons."""

    spark: SparkSession
    bootstrap_servers: str
    broker_pids: Sequence[int]
    #: Name of the listener → properties of its clients.
    listeners: Mapping[str, Mapping[str, str]]

    def run(self, comparison: Comparison, sink: str, count: int) -> Run:
        """Write *count* rows; RuntimeError if not every one is in the topic afterwards."""
        with fresh_topic(self.bootstrap_servers, comparison.partitions) as topic:
            data = rows(self.spark, comparison.shape, count, comparison.tasks)
            name, _, security = sink.partition(OVER)
            listener = dict(self.listeners[security or comparison.security])
            server = listener.pop("bootstrap.servers")
            options = {**comparison.options, **{f"kafka.{key}": value for key, value in listener.items()}}
            client, broker = self._client_cpu_s(), resources.cpu_seconds(self.broker_pids)
            started = time.perf_counter()
            SINKS[name](data, topic, server, options)
            seconds = time.perf_counter() - started
            done = Run(seconds, self._client_cpu_s() - client, resources.cpu_seconds(self.broker_pids) - broker)
            found = records_in(self.bootstrap_servers, topic, comparison.partitions)
        if sink not in WITHOUT_RECORDS and found != count:
            raise RuntimeError(f"{sink} wrote {found:,} of {count:,} rows")
        return done

    def handshakes(self, securities: Sequence[str]) -> dict[str, float]:
        """Return the median ms from a new producer to its first response, over each of *securities* in turns."""
        taken: dict[str, list[float]] = {security: [] for security in securities}
        with fresh_topic(self.bootstrap_servers, 1) as topic:
            for _ in range(_HANDSHAKES):
                for security in securities:
                    started = time.perf_counter()
                    with KafkaProducer(self.listeners[security]) as producer:
                        producer.partitions_for(topic)
                        taken[security].append((time.perf_counter() - started) * 1000)
        return {security: round(statistics.median(found), 2) for security, found in taken.items()}

    @staticmethod
    def _client_cpu_s() -> float:
        return resources.cpu_seconds(resources.descendants(os.getpid())) if resources.available() else 0.0


def compare(bench: Bench, comparison: Comparison, runs: int, console: Console) -> dict[str, Any]:
    """Let the sinks take turns after a warm-up; return medians of rows per second and CPU seconds per million rows."""
    taken: dict[str, list[Run]] = {sink: [] for sink in comparison.sinks}
    for turn in range(-1, runs):
        for sink in comparison.sinks:
            count = comparison.rows_of(sink)
            done = bench.run(comparison, sink, count)
            if turn >= 0:
                taken[sink].append(done)
            turn_name = "warm-up" if turn < 0 else f"run {turn + 1}"
            console.print(f"{comparison.name}  {turn_name}  {sink:<13} {count / done.seconds:>12,.0f} rows/s")
    return {
        "comparison": asdict(comparison),
        "runs": runs,
        "sinks": {sink: _summary(taken[sink], comparison.rows_of(sink)) for sink in comparison.sinks},
    }


def _summary(taken: Sequence[Run], count: int) -> dict[str, Any]:
    millions = count / 1e6
    return {
        "rows": count,
        "rows_per_s": round(count / statistics.median(run.seconds for run in taken)),
        "client_cpu_s_per_million": round(statistics.median(run.client_cpu_s for run in taken) / millions, 3),
        "broker_cpu_s_per_million": round(statistics.median(run.broker_cpu_s for run in taken) / millions, 3),
        "runs": [round(count / run.seconds) for run in taken],
        "client_cpu_runs": [round(run.client_cpu_s / millions, 3) for run in taken],
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    found = result["sinks"]
    first = next(iter(found))
    table = Table(title=f"{result['comparison']['name']}: median of {result['runs']} runs")
    for heading in ("sink", "rows/s", f"{first} is", "client CPU s / M rows", "broker CPU s / M rows"):
        table.add_column(heading, justify="left" if heading == "sink" else "right")
    for sink, figures in found.items():
        table.add_row(
            sink,
            f"{figures['rows_per_s']:,}",
            f"{found[first]['rows_per_s'] / figures['rows_per_s']:.2f} x",
            f"{figures['client_cpu_s_per_million']:.2f}",
            f"{figures['broker_cpu_s_per_million']:.2f}",
        )
    console.print(table)
    if "handshake_ms" in result:
        shown = ", ".join(f"{security} {ms:.1f} ms" for security, ms in result["handshake_ms"].items())
        console.print(f"time of a connection until its first response, once per task and broker: {shown}")


def _comparisons(options: argparse.Namespace) -> list[Comparison]:
    """Return the named comparisons, or the one that the options describe."""
    if options.goals is not None:
        named = [item for item in COMPARISONS if not options.goals or item.name in options.goals]
        return [
            Comparison(
                item.name,
                item.shape,
                max(int(item.rows * options.scale), item.tasks),
                item.sinks,
                item.options,
                item.partitions,
                item.tasks,
            )
            for item in named
        ]
    properties = dict(pair.split("=", 1) for pair in options.properties)
    is_secure = options.security != PLAINTEXT
    sinks = options.sinks or (_SECURE_SINKS if is_secure else "kafkalite,kafka")
    return [
        Comparison(
            f"over {options.security}" if is_secure else options.shape,
            options.shape,
            options.rows,
            tuple(sinks.split(",")),
            {f"kafka.{name}": value for name, value in properties.items()},
            options.partitions,
            options.tasks,
            options.security,
        )
    ]


def _listeners(options: argparse.Namespace, parser: argparse.ArgumentParser) -> dict[str, dict[str, str]]:
    found = read_listeners(options.bootstrap_servers, options.listeners)
    if options.security not in found:
        parser.error(f"--security {options.security}: expected one of {', '.join(found)}, as defined by --listeners")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--broker-pids", default="", help="process ids of the broker, comma-separated")
    parser.add_argument("--jars", required=True, help="Spark's own Kafka connector, comma-separated")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--runs", type=int, default=3, help="timed writes per sink")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="keyed")
    parser.add_argument(
        "--sinks",
        help=f"comma-separated, of {', '.join(SINKS)}; SINK{OVER}{PLAINTEXT} writes to that listener "
        f"(kafkalite,kafka; {_SECURE_SINKS})",
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=4, help="Spark partitions")
    parser.add_argument(
        "-X",
        dest="properties",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a producer property for all sinks, such as -X compression.type=lz4",
    )
    parser.add_argument(
        "--security",
        default=PLAINTEXT,
        help=f"security protocol of the listener to write to, such as SSL ({PLAINTEXT})",
    )
    parser.add_argument("--listeners", type=Path, help="JSON file with client properties by security protocol")
    parser.add_argument(
        "--goals", nargs="*", metavar="NAME", help="run the comparisons of docs/internals/speed.md instead, all or some"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of rows that --goals writes")
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each comparison")
    options = parser.parse_args()
    listeners = _listeners(options, parser)

    console = Console(highlight=False)
    found = []
    spark = session(options.jars, options.cores)
    try:
        pids = [int(pid) for pid in options.broker_pids.split(",") if pid]
        bench = Bench(spark, options.bootstrap_servers, pids, listeners)
        for comparison in _comparisons(options):
            result = compare(bench, comparison, options.runs, console)
            result |= {
                "cores": options.cores,
                "peers": {"kafka-tuned": KAFKA_TUNED, "confluent": CONFLUENT, "kafka-python": KAFKA_PYTHON},
            }
            if comparison.security != PLAINTEXT:
                result["handshake_ms"] = bench.handshakes((PLAINTEXT, comparison.security))
            show(result, console)
            found.append(result)
            if options.results is not None:
                results.save(f"spark {comparison.name}", result, options.results)
    finally:
        spark.stop()
    # One line of JSON for programs that keep the results.
    print(json.dumps(found if options.goals is not None else found[0]))


if __name__ == "__main__":
    main()
