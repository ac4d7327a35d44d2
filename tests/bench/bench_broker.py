"""The embedded broker compared with a real Apache Kafka on the same machine, with the same clients, in turns.

Run by ``scripts/bench.sh broker``. Kafka's own Java producer (kafka-producer-perf-test) writes with its defaults, with
large batches, and with one record per request; ``send_columns`` writes columns; and confluent-kafka reads the stored
records. The CPU time of the broker's process is shown with each rate: where broker and client share the cores of a
machine, it is a better measure than the elapsed time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

from kafka_sink import KafkaProducer
from tests.bench import resources, results
from tests.bench.java_tool import records_per_s
from tests.bench.topics import fresh_topic, records_in

PARTITIONS: Final = 4
_IDLE_S: Final = 2.0
_MIB: Final = 1 << 20

DEFAULTS: Final[Mapping[str, Any]] = {}
LARGE: Final[Mapping[str, Any]] = {"batch.size": 524288, "linger.ms": 20, "buffer.memory": 67108864}
#: One record per request, each acknowledged by the leader: the cost of the network layer alone.
SINGLE: Final[Mapping[str, Any]] = {"batch.size": 0, "linger.ms": 0, "acks": 1, "enable.idempotence": "false"}


@dataclass(frozen=True)
class Work:
    """One kind of work: *run* does it with a number of records and returns its seconds."""

    name: str
    value_bytes: int
    #: Records for one run, times ``--scale``.
    records: int
    run: Callable[[str, str, int, int], float]


def java(settings: Mapping[str, Any]) -> Callable[[str, str, int, int], float]:
    def run(bootstrap_servers: str, topic: str, records: int, value_bytes: int) -> float:
        # The tool's own rate excludes the start of its JVM.
        properties = {**settings, "bootstrap.servers": bootstrap_servers}
        return records / records_per_s(topic, records, properties, "--record-size", str(value_bytes))

    return run


def columns(bootstrap_servers: str, topic: str, records: int, value_bytes: int) -> float:
    values = [bytes([number % 251]) * value_bytes for number in range(10_000)]
    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
    with KafkaProducer({"bootstrap.servers": bootstrap_servers, **LARGE}) as producer:
        producer.partitions_for(topic)
        began = time.perf_counter()
        for _ in range(records // len(values)):
            producer.send_columns(topic, rows)
        producer.flush()
        return time.perf_counter() - began


def fetch(bootstrap_servers: str, topic: str, records: int, value_bytes: int) -> float:
    """Read the records that :func:`columns` writes before, outside the measured time."""
    columns(bootstrap_servers, topic, records, value_bytes)
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "bench", "log_level": 3}
    consumer = Consumer({**settings, "fetch.max.bytes": 16 * _MIB, "max.partition.fetch.bytes": 4 * _MIB})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        read, began = 0, time.perf_counter()
        while read < records:
            found = consumer.consume(10_000, timeout=30)
            if not found:
                raise RuntimeError(f"{read:,} of {records:,} records were read")
            read += len(found)
        return time.perf_counter() - began
    finally:
        consumer.close()


WORKS: Final = (
    Work("Java producer, defaults, 1 kB", 1000, 400_000, java(DEFAULTS)),
    Work("Java producer, large batches, 1 kB", 1000, 1_000_000, java(LARGE)),
    Work("Java producer, defaults, 100 B", 100, 2_000_000, java(DEFAULTS)),
    Work("Java producer, large batches, 100 B", 100, 5_000_000, java(LARGE)),
    Work("Java producer, a record a request, 100 B", 100, 30_000, java(SINGLE)),
    Work("columns, large batches, 1 kB", 1000, 1_000_000, columns),
    Work("confluent-kafka reads large batches, 1 kB", 1000, 1_000_000, fetch),
)


@contextlib.contextmanager
def embedded() -> Iterator[tuple[str, int]]:
    """Run ``kafkalite broker`` with its defaults in a separate process; yields its bootstrap servers and its pid."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as directory:
        command = [sys.executable, "-m", "kafka_sink.cli", "broker", "--port", "0", "--data-dir", f"{directory}/data"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                line = process.stdout.readline().strip()
                yield line.removeprefix("bootstrap.servers="), process.pid
            finally:
                process.terminate()
                process.wait(30)


def measure(work: Work, bootstrap_servers: str, pid: int, records: int) -> dict[str, float]:
    """Return the figures of one run; RuntimeError if records are missing afterwards."""
    with fresh_topic(bootstrap_servers, PARTITIONS) as topic:
        before = resources.cpu_seconds([pid]) if pid else 0.0
        seconds = work.run(bootstrap_servers, topic, records, work.value_bytes)
        cpu_s = resources.cpu_seconds([pid]) - before if pid else 0.0
        found = records_in(bootstrap_servers, topic, PARTITIONS)
    if found != records:
        raise RuntimeError(f"{work.name}: {found:,} of {records:,} records were stored")
    return {"records_per_s": records / seconds, "broker_cpu_s_per_million": cpu_s * 1e6 / records}


def compare(work: Work, brokers: Mapping[str, tuple[str, int]], scale: float, runs: int) -> dict[str, Any]:
    """Run *work* on the brokers in turns, after an untimed run on each; return the medians."""
    records = max(round(work.records * scale / 10_000), 1) * 10_000
    found: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
    for turn in range(runs + 1):
        for name, (bootstrap_servers, pid) in brokers.items():
            one = measure(work, bootstrap_servers, pid, max(records // 40_000, 1) * 10_000 if turn == 0 else records)
            if turn:
                found[name].append(one)
    return {
        "records": records,
        "value_bytes": work.value_bytes,
        "brokers": {
            name: {figure: round(statistics.median(run[figure] for run in of), 3) for figure in of[0]}
            | {"runs": [round(run["records_per_s"]) for run in of]}
            for name, of in found.items()
        },
    }


def show(found: Mapping[str, Any], say: Console) -> None:
    table = Table("", "kafkalite", "Kafka", "", "broker CPU s per million: kafkalite", "Kafka")
    for name, result in found.items():
        ours, theirs = result["brokers"]["kafkalite"], result["brokers"]["kafka"]
        rates = ours["records_per_s"], theirs["records_per_s"]
        cpu = ours["broker_cpu_s_per_million"], theirs["broker_cpu_s_per_million"]
        table.add_row(
            name,
            f"{rates[0]:,.0f}/s",
            f"{rates[1]:,.0f}/s",
            f"{rates[0] / rates[1]:.2f}x",
            *(f"{one:.2f}" for one in cpu),
        )
    say.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True, help="bootstrap.servers of the real Kafka")
    parser.add_argument("--broker-pids", default="", help="process id of the real Kafka, to measure its CPU time")
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of records")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--works", default="", help="run only the works whose names contain this text")
    parser.add_argument("--results", type=Path, help="folder for the JSON file")
    options = parser.parse_args()
    say = Console(stderr=True)
    with embedded() as ours:
        time.sleep(_IDLE_S)
        idle_mib = resources.resident_bytes(ours[1]) / _MIB
        brokers = {"kafkalite": ours, "kafka": (options.bootstrap_servers, int(options.broker_pids or 0))}
        found = {}
        for work in WORKS:
            if options.works in work.name:
                found[work.name] = compare(work, brokers, options.scale, options.runs)
                say.print(work.name, found[work.name]["brokers"])
        content = {"idle_mib": round(idle_mib, 1), "runs": options.runs, "works": found}
    show(found, say)
    say.print(f"memory of an idle node: {idle_mib:.0f} MiB")
    if options.results:
        results.save("broker", content, options.results)
    print(json.dumps(content))


if __name__ == "__main__":
    main()
