"""The time of a small write: ``df.write`` of 1,000 rows, as the first write of a session and repeated in one session.

Run by ``scripts/bench.sh small``. Repeated writes take turns with Spark's own sink in one session, each to the topic
that its sink has written to before. First writes run in fresh sessions, each in a process of its own
(:mod:`tests.bench.first_write`), and are compared with a Python sink that does nothing. All rows are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from tests.bench import results
from tests.bench.spark_sinks import LABELS, SINKS, WITHOUT_RECORDS, rows, session
from tests.bench.topics import fresh_topic, records_in

ROWS: Final = 1000
TASKS: Final = 2
PARTITIONS: Final = 4
#: Untimed writes of each sink: workers start, and the JVM compiles.
WARM_UP_WRITES: Final = 5
#: Consecutive writes whose median is one run; the spread of repeated writes is that of these medians.
WRITES_OF_A_RUN: Final = 10
COMPARED: Final = ("kafka", "kafkalite", "null", "null-tuned")
REPEATED: Final = "repeated"
FIRST: Final = "first"

_ROOT: Final = Path(__file__).parents[2]
_FIRST_WRITE_LIMIT_S: Final = 120


def repeated(
    spark: SparkSession, sinks: Sequence[str], bootstrap_servers: str, writes: int, warm_up_writes: int = WARM_UP_WRITES
) -> dict[str, Any]:
    """Write in turns, each sink to its own topic; return p50 and p99 of each."""
    taken: dict[str, list[float]] = {sink: [] for sink in sinks}
    data = rows(spark, "keyed", ROWS, TASKS)
    with contextlib.ExitStack() as stack:
        topics = {sink: stack.enter_context(fresh_topic(bootstrap_servers, PARTITIONS)) for sink in sinks}
        for turn in range(-warm_up_writes, writes):
            for sink in sinks:
                started = time.perf_counter()
                SINKS[sink](data, topics[sink], bootstrap_servers, {})
                seconds = time.perf_counter() - started
                taken[sink] += [seconds * 1000] if turn >= 0 else []
        for sink in sinks:
            _check(sink, bootstrap_servers, topics[sink], (warm_up_writes + writes) * ROWS)
    return {
        **_amounts(),
        "sinks": {
            sink: {
                "p50_ms": round(statistics.median(times), 1),
                "p99_ms": round(sorted(times)[min(int(len(times) * 0.99), len(times) - 1)], 1),
                "writes": len(times),
                "runs": [
                    round(statistics.median(times[start : start + WRITES_OF_A_RUN]), 1)
                    for start in range(0, len(times), WRITES_OF_A_RUN)
                ],
            }
            for sink, times in taken.items()
        },
    }


def first(sinks: Sequence[str], bootstrap_servers: str, jars: str, cores: int, sessions: int) -> dict[str, Any]:
    """Write in turns, each time in a fresh session; return the medians."""
    taken: dict[str, list[float]] = {sink: [] for sink in sinks}
    for _ in range(sessions):
        for sink in sinks:
            with fresh_topic(bootstrap_servers, PARTITIONS) as topic:
                taken[sink].append(_first_write_s(sink, bootstrap_servers, topic, jars, cores))
                _check(sink, bootstrap_servers, topic, ROWS)
    return {
        **_amounts(),
        "sinks": {
            sink: {"median_s": round(statistics.median(times), 3), "runs": [round(each, 3) for each in times]}
            for sink, times in taken.items()
        },
    }


def _first_write_s(sink: str, bootstrap_servers: str, topic: str, jars: str, cores: int) -> float:
    arguments = [sink, bootstrap_servers, topic, str(ROWS), str(TASKS), jars, str(cores)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.first_write", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_FIRST_WRITE_LIMIT_S,
        check=False,
        cwd=_ROOT,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the first write into {sink} failed: {done.stderr.strip()[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def _check(sink: str, bootstrap_servers: str, topic: str, count: int) -> None:
    found = 0 if sink in WITHOUT_RECORDS else records_in(bootstrap_servers, topic, PARTITIONS)
    if sink not in WITHOUT_RECORDS and found != count:
        raise RuntimeError(f"{sink} wrote {found:,} of {count:,} rows")


def _amounts() -> dict[str, int]:
    return {"rows": ROWS, "tasks": TASKS}


def show_repeated(result: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"df.write of {ROWS:,} rows, {TASKS} tasks, repeated")
    for heading in ("sink", "p50 ms", "p99 ms", "times Spark's own"):
        table.add_column(heading, justify="left" if heading == "sink" else "right")
    sinks = result["sinks"]
    for sink, figures in sinks.items():
        ratio = f"{figures['p50_ms'] / sinks['kafka']['p50_ms']:.2f}" if "kafka" in sinks else "–"
        table.add_row(LABELS.get(sink, sink), f"{figures['p50_ms']:.0f}", f"{figures['p99_ms']:.0f}", ratio)
    console.print(table)


def show_first(result: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"the first df.write of a session, {ROWS:,} rows, {TASKS} tasks")
    for heading in ("sink", "median s", "more than a sink that does nothing"):
        table.add_column(heading, justify="left" if heading == "sink" else "right")
    sinks = result["sinks"]
    for sink, figures in sinks.items():
        more = f"{figures['median_s'] - sinks['null']['median_s']:+.2f} s" if "null" in sinks else "–"
        table.add_row(LABELS.get(sink, sink), f"{figures['median_s']:.2f}", more)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--jars", required=True, help="Spark's own Kafka connector, comma-separated")
    parser.add_argument("--cores", type=int, default=2, help="local[CORES]")
    parser.add_argument("--parts", default=f"{REPEATED},{FIRST}", help="comma-separated (%(default)s)")
    parser.add_argument("--sinks", default=",".join(COMPARED), help="comma-separated (%(default)s)")
    parser.add_argument("--writes", type=int, default=50, help="timed writes per sink in one session (%(default)s)")
    parser.add_argument("--sessions", type=int, default=5, help="fresh sessions per sink (%(default)s)")
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each part")
    options = parser.parse_args()
    parts, sinks = options.parts.split(","), options.sinks.split(",")
    if unknown := set(parts) - {REPEATED, FIRST}:
        parser.error(f"--parts {', '.join(sorted(unknown))}: expected some of {REPEATED}, {FIRST}")

    console = Console(highlight=False)
    found = {}
    if REPEATED in parts:
        spark = session(options.jars, options.cores)
        try:
            found[REPEATED] = repeated(spark, sinks, options.bootstrap_servers, options.writes)
        finally:
            spark.stop()
        show_repeated(found[REPEATED], console)
    if FIRST in parts:
        found[FIRST] = first(sinks, options.bootstrap_servers, options.jars, options.cores, options.sessions)
        show_first(found[FIRST], console)
    for part, result in found.items():
        result["cores"] = options.cores
        if options.results is not None:
            results.save(f"small {part}", result, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
