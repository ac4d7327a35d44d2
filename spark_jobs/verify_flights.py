"""Reads the topic of flights_to_kafka.py back and compares it with the CSV file, record by record.

Run by scripts/demo.sh. The expected records are computed here again in plain Python, and read with confluent-kafka, so
neither Spark nor anything of kafkalite judges itself. Compared are the number of records, an order-free checksum of all
keys and values, and the order of the records of every key. The exit code is 1 when anything differs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING = "NA"
#: Give up when no record arrives for this long.
IDLE_LIMIT_S = 30.0

Pair = tuple[bytes | None, bytes | None]


def length_prefixed(data: bytes | None) -> bytes:
    """*data* with its length before it, so that no two pairs look alike; null is not the empty string."""
    return (-1).to_bytes(4, "big", signed=True) if data is None else len(data).to_bytes(4, "big") + data


@dataclass
class Digest:
    """What is compared of a sequence of records."""

    count: int = 0
    #: Sum of the records' 64-bit hashes, so their order does not matter.
    checksum: int = 0
    #: Key → chained hash of its values, so their order does. Records without a key have no order.
    order: dict[bytes, bytes] = field(default_factory=dict)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        record = length_prefixed(key) + length_prefixed(value)
        hashed = hashlib.blake2b(record, digest_size=8).digest()
        self.count += 1
        self.checksum = (self.checksum + int.from_bytes(hashed, "big")) % 2**64
        if key is not None:
            self.order[key] = hashlib.blake2b(self.order.get(key, b"") + hashed, digest_size=8).digest()


def expected_records(path: Path, rows: int | None) -> Iterator[Pair]:
    """What Spark's to_json(struct(*)) makes of every line: no spaces, no null fields, columns in the file's order."""
    with path.open(encoding="utf-8", newline="") as file:
        for line in islice(csv.DictReader(file), rows):
            fields = {
                name: text if name in TEXT_COLUMNS else int(text) for name, text in line.items() if text != MISSING
            }
            key = fields.get("tailnum")
            value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
            yield None if key is None else str(key).encode(), value.encode()


def written_records(bootstrap_servers: str, topic: str) -> Iterator[Pair]:
    """Every record of *topic* up to its present end, each partition in its order.

    :raises TimeoutError: nothing arrived for IDLE_LIMIT_S, though the end is not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verify-flights",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        missing = 0
        for number in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
            missing += high - low
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        deadline = time.monotonic() + IDLE_LIMIT_S
        while missing > 0:
            messages = consumer.consume(min(missing, 10_000), timeout=1.0)
            if messages:
                deadline = time.monotonic() + IDLE_LIMIT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{missing} records of {topic} did not arrive within {IDLE_LIMIT_S:g} s")
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(f"reading {topic}: {message.error()}")
                missing -= 1
                yield message.key(), message.value()
    finally:
        consumer.close()


def digest_of(records: Iterable[Pair], progress: Progress, title: str, total: int | None) -> Digest:
    task = progress.add_task(title, total=total)
    digest = Digest()
    for key, value in records:
        digest.add(key, value)
        if digest.count % 10_000 == 0:
            progress.update(task, completed=digest.count)
    progress.update(task, completed=digest.count, total=digest.count)
    return digest


def differences(expected: Digest, written: Digest) -> list[str]:
    found = []
    if written.count != expected.count:
        found.append(f"{expected.count:,} records expected, {written.count:,} in the topic")
    if written.checksum != expected.checksum:
        found.append(f"checksum {expected.checksum:016x} expected, {written.checksum:016x} in the topic")
    keys = [key for key, chain in expected.order.items() if written.order.get(key) != chain]
    if keys:
        shown = ", ".join(key.decode(errors="replace") for key in keys[:5])
        found.append(f"order or content differs for {len(keys):,} of {len(expected.order):,} keys: {shown}")
    unknown = written.order.keys() - expected.order.keys()
    if unknown:
        found.append(f"{len(unknown):,} keys in the topic that the file does not have")
    return found


def report_table(report: dict[str, object], expected: Digest) -> Table:
    """The sink's own figures of the write, as a table."""

    def number(name: str) -> int:
        return int(str(report[name]))

    seconds = max(number("elapsed_ms"), 1) / 1000
    partitions = report["partitions"]
    table = Table(title="written to Kafka", show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, value in {
        "rows": f"{number('rows'):,}",
        "bytes": f"{number('bytes'):,}",
        "batches": f"{number('batches'):,}",
        "partitions": f"{len(partitions) if isinstance(partitions, dict) else 0}",
        "compression ratio": f"{number('bytes') / max(number('wire_bytes'), 1):.2f}",
        "rows/s": f"{number('rows') / seconds:,.0f}",
        "elapsed": f"{seconds:.2f} s",
        "checked": f"{expected.count:,} records, {len(expected.order):,} keys in order",
    }.items():
        table.add_row(name, value)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare a topic of flights with the CSV file.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--input", required=True, type=Path, help="flights.csv")
    parser.add_argument("--rows", type=int, help="only the first so many rows were written")
    parser.add_argument("--report", required=True, type=Path, help="what the sink reported (its last line counts)")
    options = parser.parse_args()

    console = Console()
    with Progress(console=console, transient=True) as progress:
        expected = digest_of(expected_records(options.input, options.rows), progress, "computing", options.rows)
        written = digest_of(
            written_records(options.bootstrap_servers, options.topic), progress, "reading back", expected.count
        )
    found = differences(expected, written)
    if found:
        for difference in found:
            console.print(f"[red]DIFFERENT[/red] {difference}", highlight=False)
        return 1
    report = json.loads(options.report.read_text(encoding="utf-8").splitlines()[-1])
    console.print(report_table(report, expected))
    return 0


if __name__ == "__main__":
    sys.exit(main())
