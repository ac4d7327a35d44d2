"""KafkaProducer.send_columns from one thread compared with Kafka's own Java producer (kafka-producer-perf-test).

Run by ``scripts/bench.sh columns``. Both send the same values, from memory, to fresh topics on the same broker, in
turns; both wait for all replicas and are idempotent. The Java producer has the settings that suit it best here. It
warms up within a long run and reports its own rate, which excludes the start of the JVM; its CPU time includes it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import string
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from kafka_sink import KafkaProducer
from kafka_sink.producer.futures import Delivery
from tests.bench import resources, results
from tests.bench.java_tool import records_per_s
from tests.bench.topics import fresh_topic, records_in

CODECS: Final = ("none", "lz4", "zstd", "snappy", "gzip")
#: The number of rows in one of Spark's Arrow batches.
CHUNK_ROWS: Final = 10_000
VALUE_BYTES: Final = 108

OURS: Final[Mapping[str, Any]] = {"acks": "all", "batch.size": 524288, "linger.ms": 100, "send.buffer.bytes": -1}
JAVA: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": "true",
    "batch.size": 262144,
    "linger.ms": 10,
    "buffer.memory": 67108864,
}
#: Sender → its properties. The system's TCP send buffer also speeds up Java's producer, which few of its users know.
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "kafkalite": OURS,
    "java": JAVA,
    "java, system's send buffer": {**JAVA, "send.buffer.bytes": -1},
}


def make_values(count: int = CHUNK_ROWS) -> list[str]:
    """Return texts of random capitals, as the Java tool generates them by default."""
    rng = random.Random(1)
    return ["".join(rng.choices(string.ascii_uppercase, k=VALUE_BYTES)) for _ in range(count)]


def send_ours(bootstrap_servers: str, topic: str, values: Sequence[str], rows: int, codec: str) -> float:
    """Return the rows per second from the first ``send_columns`` to the last acknowledgement."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})
    acknowledged = [0]

    def outcome(delivery: Delivery) -> None:
        if delivery.error is None:
            acknowledged[0] += delivery.count

    settings = {**OURS, "compression.type": codec, "bootstrap.servers": bootstrap_servers}
    with KafkaProducer(settings) as producer:
        producer.partitions_for(topic)
        started = time.perf_counter()
        for start in range(0, rows, len(values)):
            part = batch.slice(0, min(rows - start, len(values)))
            producer.send_columns(topic, part, on_delivery=outcome)
        producer.flush()
        seconds = time.perf_counter() - started
    if acknowledged[0] != rows:
        raise RuntimeError(f"{acknowledged[0]:,} of {rows:,} rows were acknowledged")
    return rows / seconds


def send_with_java(
    bootstrap_servers: str, topic: str, payload: Path, rows: int, codec: str, settings: Mapping[str, Any]
) -> float:
    properties = {**settings, "compression.type": codec, "bootstrap.servers": bootstrap_servers}
    return records_per_s(topic, rows, properties, "--payload-file", str(payload))


def measure(
    sender: str, bootstrap_servers: str, values: Sequence[str], payload: Path, rows: int, codec: str, partitions: int
) -> tuple[float, float]:
    """Return (rows per second, CPU seconds of the client) of one run; RuntimeError if rows are missing afterwards."""
    with fresh_topic(bootstrap_servers, partitions) as topic:
        before = resources.cpu_seconds([os.getpid()])
        if sender == "kafkalite":
            rate = send_ours(bootstrap_servers, topic, values, rows, codec)
        else:
            rate = send_with_java(bootstrap_servers, topic, payload, rows, codec, SETTINGS[sender])
        cpu_s = resources.cpu_seconds([os.getpid()]) - before
        found = records_in(bootstrap_servers, topic, partitions)
    if found != rows:
        raise RuntimeError(f"{sender} stored {found:,} of {rows:,} rows")
    return rate, cpu_s


def compare(bootstrap_servers: str, codec: str, rows: int, runs: int, partitions: int, say: Console) -> dict[str, Any]:
    """Let the senders take turns after a short warm-up; return their medians."""
    values = make_values()
    taken: dict[str, list[tuple[float, float]]] = {sender: [] for sender in SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        payload = Path(folder) / "values.txt"
        payload.write_text("\n".join(values))
        for turn in range(-1, runs):
            for sender in SETTINGS:
                count = rows if turn >= 0 else max(rows // 10, 1)
                found = measure(sender, bootstrap_servers, values, payload, count, codec, partitions)
                say.print(
                    f"{codec}  {'warm-up' if turn < 0 else f'run {turn + 1}'}  {sender:<28} {found[0]:>12,.0f} rows/s"
                )
                if turn >= 0:
                    taken[sender].append(found)
    senders: dict[str, dict[str, Any]] = {
        sender: {
            "rows_per_s": round(statistics.median(rate for rate, _ in found)),
            "client_cpu_s_per_million": round(statistics.median(cpu for _, cpu in found) / (rows / 1e6), 3),
            "runs": [round(rate) for rate, _ in found],
        }
        for sender, found in taken.items()
    }
    return {
        "codec": codec,
        "rows": rows,
        "partitions": partitions,
        "settings": SETTINGS,
        "senders": senders,
        "ratio": round(senders["kafkalite"]["rows_per_s"] / senders["java"]["rows_per_s"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codecs", default="none,lz4", help=f"comma-separated, of {', '.join(CODECS)}")
    parser.add_argument("--results", type=Path, help="folder for a JSON file of each codec")
    options = parser.parse_args()

    console = Console(highlight=False)
    found = []
    for codec in options.codecs.split(","):
        result = compare(options.bootstrap_servers, codec, options.rows, options.runs, options.partitions, console)
        table = Table(title=f"{codec}: median of {options.runs} runs")
        for heading in ("sender", "rows/s", "client CPU s / M rows"):
            table.add_column(heading, justify="left" if heading == "sender" else "right")
        for sender, figures in result["senders"].items():
            table.add_row(sender, f"{figures['rows_per_s']:,}", f"{figures['client_cpu_s_per_million']:.2f}")
        console.print(table, f"kafkalite / java = {result['ratio']:.2f}")
        found.append(result)
        if options.results is not None:
            results.save(f"columns {codec}", result, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps(found))


if __name__ == "__main__":
    main()
