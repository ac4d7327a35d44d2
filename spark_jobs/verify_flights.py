"""Reads a topic of flights back and compares it with the CSV file, record by record.

Run by scripts/demo.sh. The expected records are computed here in plain Python, and the committed records are read with
confluent-kafka, so that neither Spark nor kafkalite verifies itself (for your own topics use kafkalite verify).
Values in Avro are read with confluent-kafka's deserializer. The script compares keys and values of all records, and the
order of the records of every key. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import pickle
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING = "NA"
#: Give up when no record arrives for this long.
IDLE_LIMIT_S = 30.0

Pair = tuple[bytes | None, bytes | None]


def length_prefixed(data: bytes | None) -> bytes:
    """Return *data* after its length, so that different pairs have different bytes; null differs from empty data."""
    return (-1).to_bytes(4, "big", signed=True) if data is None else len(data).to_bytes(4, "big") + data


@dataclass
class Digest:
    """The hashes by which sequences of records are compared."""

    #: Hash of a record → number of its occurrences.
    records: Counter[bytes] = field(default_factory=Counter)
    #: Key → chained hash of its records, which depends on their order. Records without a key have no order.
    order: dict[bytes, bytes] = field(default_factory=dict)
    count: int = 0

    def add(self, key: bytes | None, value: bytes | None) -> None:
        record = length_prefixed(key) + length_prefixed(value)
        hashed = hashlib.blake2b(record, digest_size=8).digest()
        self.count += 1
        self.records[hashed] += 1
        if key is not None:
            self.order[key] = hashlib.blake2b(self.order.get(key, b"") + hashed, digest_size=8).digest()


@dataclass(frozen=True)
class Verdict:
    """The numbers of records that are missing, duplicated or not in the file, and of keys whose sequence of records
    differs."""

    missing: int
    twice: int
    extra: int
    keys_differ: int

    @property
    def is_equal(self) -> bool:
        return not (self.missing or self.twice or self.extra or self.keys_differ)


def compare(expected: Digest, written: Digest) -> Verdict:
    surplus = written.records - expected.records
    twice = sum(count for record, count in surplus.items() if record in expected.records)
    return Verdict(
        missing=(expected.records - written.records).total(),
        twice=twice,
        extra=surplus.total() - twice,
        keys_differ=sum(written.order.get(key) != chain for key, chain in expected.order.items()),
    )


def expected_records(path: Path, rows: int | None) -> Iterator[Pair]:
    """Return every line as Spark's to_json(struct(*)) writes it: no spaces or null fields, columns in file order."""
    with path.open(encoding="utf-8", newline="") as file:
        for line in islice(csv.DictReader(file), rows):
            fields = {
                name: text if name in TEXT_COLUMNS else int(text) for name, text in line.items() if text != MISSING
            }
            key = fields.get("tailnum")
            value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
            yield None if key is None else str(key).encode(), value.encode()


def written_records(bootstrap_servers: str, topic: str) -> Iterator[Pair]:
    """Return every committed record of *topic* up to its current end, each partition in its order.

    :raises TimeoutError: nothing arrived for IDLE_LIMIT_S, though the end is not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "verify-flights",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    try:
        unread = set(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        deadline = time.monotonic() + IDLE_LIMIT_S
        while unread:
            messages = consumer.consume(10_000, timeout=0.2)
            if messages:
                deadline = time.monotonic() + IDLE_LIMIT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(
                    f"{topic}: the end of partitions {sorted(unread)} was not reached within {IDLE_LIMIT_S:g} s"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    yield message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise RuntimeError(f"reading {topic}: {error}")
    finally:
        consumer.close()


def as_json(records: Iterable[Pair], registry: str, topic: str) -> Iterator[Pair]:
    """Return *records* with their Avro values as JSON, decoded with their schemas in the *registry*."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    read = AvroDeserializer(SchemaRegistryClient({"url": registry}))
    context = SerializationContext(topic, MessageField.VALUE)
    for key, value in records:
        fields = {name: each for name, each in read(value, context).items() if each is not None}
        yield key, json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of_file(path: Path, rows: int | None, kept: Path | None, progress: Progress) -> Digest:
    """Return the digest of the file's records; from *kept*, if an earlier comparison of this demo has stored it."""
    if kept is not None and kept.exists():
        digest: Digest = pickle.loads(kept.read_bytes())
        return digest
    digest = digest_of(expected_records(path, rows), progress, "computing", rows)
    if kept is not None:
        kept.write_bytes(pickle.dumps(digest))
    return digest


def digest_of(records: Iterable[Pair], progress: Progress, title: str, total: int | None) -> Digest:
    task = progress.add_task(title, total=total)
    digest = Digest()
    for key, value in records:
        digest.add(key, value)
        if digest.count % 10_000 == 0:
            progress.update(task, completed=digest.count)
    progress.update(task, completed=digest.count, total=digest.count)
    return digest


def result_table(title: str, reports: list[dict[str, Any]], expected: Digest, verdict: Verdict) -> Table:
    """Return the sink's own report of its writes, and the result of the comparison with the topic."""

    def total(name: str) -> int:
        return sum(int(report[name]) for report in reports)

    seconds = max(total("elapsed_ms"), 1) / 1000
    in_order = len(expected.order) - verdict.keys_differ
    table = Table(title=title, show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, value in {
        "writes": f"{len(reports):,}",
        "rows": f"{total('rows'):,}",
        "bytes": f"{total('bytes'):,}",
        "compression ratio": f"{total('bytes') / max(total('wire_bytes'), 1):.2f}",
        "rows/s": f"{total('rows') / seconds:,.0f}",
        "elapsed": f"{seconds:.2f} s",
    }.items():
        table.add_row(name, value)
    table.add_section()
    table.add_row("records expected", f"{expected.count:,}")
    for name, count in (("missing", verdict.missing), ("twice", verdict.twice), ("extra", verdict.extra)):
        table.add_row(name, f"{count:,}", style="red" if count else None)
    table.add_row(
        "keys in order", f"{in_order:,} of {len(expected.order):,}", style="red" if verdict.keys_differ else None
    )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare a topic of flights with the CSV file.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--input", required=True, type=Path, help="flights.csv")
    parser.add_argument("--rows", type=int, help="number of rows that were written (default: all)")
    parser.add_argument("--report", required=True, type=Path, help="reports of the sink, one JSON line per write")
    parser.add_argument("--expected", type=Path, help="where one run leaves what the file has, for the next")
    parser.add_argument("--registry", help="address of the schema registry, if the values are Avro")
    parser.add_argument("--title", default="written to Kafka")
    options = parser.parse_args()

    console = Console()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        expected = digest_of_file(options.input, options.rows, options.expected, progress)
        records = written_records(options.bootstrap_servers, options.topic)
        if options.registry:
            records = as_json(records, options.registry, options.topic)
        written = digest_of(records, progress, "reading back", expected.count)
    verdict = compare(expected, written)
    reports = [json.loads(line) for line in options.report.read_text(encoding="utf-8").splitlines()]
    console.print(result_table(options.title, reports, expected, verdict))
    return 0 if verdict.is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
