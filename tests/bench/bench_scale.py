"""The cost of 10,000 tasks, 1,000 brokers and 100,000 partitions: measured coefficients, and a model that uses them.

Run by ``scripts/bench.sh scale``; needs no Kafka. Sizes are those of the real codec and of the real messages, times are
measured on this machine, and the model computes requests and connections (:mod:`scale_model`). The model is verified
against the counted requests of batches, on embedded brokers and in memory (:mod:`scale_worlds`). ``scale.md`` explains
the result.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.client.metadata.cluster import Cluster, next_snapshot
from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import Plan, Progress
from kafka_sink.exactly_once.progress import encode_lists
from kafka_sink.exactly_once.transactions import PROCESS_BYTES, OpenTransaction, Transaction, writer_id
from kafka_sink.protocol import codec
from kafka_sink.protocol.messages.metadata import MetadataResponse
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.task.task_outcome import TaskOutcome, TaskTransaction
from tests.bench import results, scale_model
from tests.bench.scale_model import Shape
from tests.bench.scale_worlds import SINK, TOPIC, WRITER, Counted, metadata_answer, run_in_memory, run_on

_METADATA_VERSION: Final = 12
#: Kafka's offset.metadata.max.bytes, minus the prefix of each partition's entry.
_ENTRY_CHARACTERS: Final = 4096 - 40
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class MetadataCost:
    """The cost of one Metadata response with all partitions of a topic."""

    partitions: int
    brokers: int
    bytes: int
    decode_ms: float
    #: From the decoded response to the snapshot that producers use.
    snapshot_ms: float
    #: The memory of the snapshot, and the peak while it is made.
    kept_bytes: int
    peak_bytes: int


def metadata_cost(brokers: int, partitions: int, runs: int = 3) -> MetadataCost:
    """Measure the codec and the snapshot; the times are the shortest of *runs*."""
    data = b"".join(map(bytes, codec.encode(metadata_answer(brokers, partitions), _METADATA_VERSION)))

    def snapshot(answer: MetadataResponse) -> Cluster:
        return next_snapshot(
            Cluster(), answer, version=_METADATA_VERSION, is_partial=False, retain=lambda topic: True
        ).cluster

    decode, build = [], []
    for _ in range(runs):
        begun = time.process_time()
        answer = codec.decode(MetadataResponse, data, _METADATA_VERSION)
        decoded = time.process_time()
        cluster = snapshot(answer)
        build.append(time.process_time() - decoded)
        decode.append(decoded - begun)
        assert cluster.partition_count(TOPIC) == partitions
        del answer, cluster
    tracemalloc.start()
    try:
        kept = snapshot(codec.decode(MetadataResponse, data, _METADATA_VERSION))
        kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return MetadataCost(partitions, brokers, len(data), min(decode) * 1000, min(build) * 1000, kept_bytes, peak_bytes)


def progress_characters(tasks: int, workers: int) -> int:
    """Return the length of a batch's list of transactions in the stored progress, with producer ids that have gaps."""
    transactions = []
    for task in range(tasks):
        worker, number = task % workers, task // workers
        name = writer_id(SINK, (worker + 2**40).to_bytes(PROCESS_BYTES, "big"), number + 1)
        transactions.append(Transaction(name, 1_000_000 + 2 * task, 40))
    return len(encode_lists(Progress(1, WRITER, TransactionVersion.V2, 0, tuple(transactions)), SINK))


def message_bytes(touched: int) -> int:
    """Return the length of the pickled message of a task that wrote to *touched* partitions in its own transaction."""
    driver = Transaction(f"{SINK}/{TOPIC}.driver", 1_000_000, 7)
    plan = Plan(f"{SINK}/{TOPIC}", driver, TransactionVersion.V2, 900_000, Moment.now(SYSTEM_CLOCK), None, 1)
    partitions = [TopicPartition(TOPIC, number) for number in range(touched)]
    ranges = {partition: PartitionRange(10, 1_000_000_000, 1_000_000_009) for partition in partitions}
    own = Transaction(writer_id(f"{SINK}/{TOPIC}", bytes(PROCESS_BYTES), 1), 1_000_001, 40)
    outcome = TaskOutcome(
        task_partition=1,
        rows_in=10 * touched,
        rows_acked=10 * touched,
        record_bytes=1000 * touched,
        wire_bytes=1000 * touched,
        batches=touched,
        elapsed_ms=1000,
        ranges=ranges,
        ack_ms={10: touched},
        transaction=TaskTransaction(WRITER, 1, plan, OpenTransaction(own, frozenset(partitions))),
    )
    return len(pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL))


@dataclass(frozen=True)
class Coefficients:
    """The measured costs that the model multiplies."""

    metadata: MetadataCost
    progress_characters_of_a_task: float
    message_bytes: int
    message_bytes_of_a_partition: float


def measure(shape: Shape) -> Coefficients:
    """Return the coefficients for a batch of *shape*."""
    least, more = message_bytes(1), message_bytes(1001)
    return Coefficients(
        metadata_cost(shape.brokers, shape.partitions),
        progress_characters(shape.tasks, shape.workers) / shape.tasks,
        least,
        (more - least) / 1000,
    )


def counts(shape: Shape) -> list[tuple[str, str, float]]:
    """Return rows of (what, formula, value) that formulas alone give, for an exactly-once batch in parallel."""
    exactly = scale_model.connections_of_a_worker(shape, exactly_once=True)
    of_driver = scale_model.connections_of_the_driver(shape)
    tasks, driver = scale_model.tasks_of_parallel(shape), scale_model.driver_of_parallel(shape)
    characters = progress_characters(shape.tasks, shape.workers)
    return [
        (
            "connections of a worker, at least once",
            "1 + leaders of its tasks",
            scale_model.connections_of_a_worker(shape, exactly_once=False),
        ),
        ("connections of a worker, exactly once", "the same + 1 + coordinators reached + other leaders", exactly),
        ("connections of the driver, exactly once", "1 + brokers + 3 × coordinators", of_driver),
        ("all connections, exactly once", "workers × a worker's + the driver's", shape.workers * exactly + of_driver),
        ("metadata requests", "workers, once each", shape.workers),
        ("record batches", "tasks × partitions of a task", shape.tasks * shape.touched),
        ("produce requests, at least", "tasks × leaders of a task", tasks["Produce"]),
        (
            "InitProducerId of tasks, at least once",
            "workers, once each",
            scale_model.at_least_once(shape)["InitProducerId"],
        ),
        ("searches for free ids", "workers × coordinators reached", tasks["DescribeTransactions"]),
        ("transactions", "tasks + 1", shape.tasks + 1),
        ("partitions of transactions, markers to write", "tasks × partitions of a task", shape.tasks * shape.touched),
        ("EndTxn of the driver", "tasks + 1", driver["EndTxn"]),
        ("ListTransactions of the driver", "2 × brokers", driver["ListTransactions"]),
        ("DescribeTransactions of the driver", "2 × coordinators reached", driver["DescribeTransactions"]),
        ("progress, characters", "6 to 18 per task, fewer with more tasks per worker", characters),
        ("partitions that store the progress", "4,096 characters each", -(-characters // _ENTRY_CHARACTERS)),
    ]


def measured(shape: Shape, found: Coefficients) -> list[tuple[str, str, str]]:
    """Return rows of (what, formula, value) that multiply the measured coefficients."""
    message = found.message_bytes + found.message_bytes_of_a_partition * (shape.touched - 1)
    metadata = found.metadata
    return [
        ("metadata response", "42 bytes per partition", f"{metadata.bytes / _MIB:,.1f} MiB"),
        ("decoding the response", "CPU", f"{metadata.decode_ms:,.0f} ms"),
        ("snapshot of the metadata", "CPU", f"{metadata.snapshot_ms:,.0f} ms"),
        ("memory of a worker for the metadata", "", f"{metadata.kept_bytes / _MIB:,.0f} MiB"),
        ("peak memory of decoding", "", f"{metadata.peak_bytes / _MIB:,.0f} MiB"),
        ("commit message of a task", "1 kB + 38 bytes per partition", f"{message:,.0f} bytes"),
        ("all commit messages on the driver", "tasks × message", f"{shape.tasks * message / _MIB:,.0f} MiB"),
    ]


def docs_table(shapes: Mapping[str, Shape]) -> str:
    """Return the table of ``docs/internals/scale.md``: :func:`counts` of each shape."""
    columns = [counts(shape) for shape in shapes.values()]
    lines = [f"| one batch | formula | {' | '.join(shapes)} |", f"| --- | --- | {' | '.join('---:' for _ in shapes)} |"]
    for rows in zip(*columns, strict=True):
        what, formula, _ = rows[0]
        lines.append(f"| {what} | {formula} | {' | '.join(f'{value:,.0f}' for _, _, value in rows)} |")
    return "\n".join(lines)


#: The shapes that ``docs/internals/scale.md`` compares.
DOCS: Final[Mapping[str, Shape]] = {
    "every task writes to every partition": Shape(10_000, 1000, 1000, 100_000, 100_000),
    "every partition has one task": Shape(10_000, 1000, 1000, 100_000, 10),
    "the same in 200 tasks": Shape(200, 100, 1000, 100_000, 500),
}


def compared(shape: Shape, counted: Counted) -> list[tuple[str, float, int]]:
    """Return (request, model, counted) of a parallel batch, for the requests that were counted."""
    found = []
    for who, expected, seen in (
        ("task", scale_model.tasks_of_parallel(shape), counted.workers),
        ("driver", scale_model.driver_of_parallel(shape), counted.driver),
    ):
        found += [(f"{who}: {name}", expected.get(name, 0), seen[name]) for name in sorted({*expected, *seen})]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000, help="tasks of a batch")
    parser.add_argument("--workers", type=int, default=1000, help="Python processes that run the tasks")
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=100_000, help="partitions of the topic")
    parser.add_argument("--touched", type=int, default=0, help="partitions that a task writes to; 0 = all")
    parser.add_argument("--tenth", type=int, default=10, help="factor by which the counted batches are smaller")
    parser.add_argument(
        "--nodes", type=int, default=10, help="number of embedded brokers of the batch that is run on them"
    )
    parser.add_argument("--docs", action="store_true", help="only print the table of docs/internals/scale.md")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    options = parser.parse_args()
    if options.docs:
        print(docs_table(DOCS))
        return

    shape = Shape(
        options.tasks, options.workers, options.brokers, options.partitions, options.touched or options.partitions
    )
    console = Console(highlight=False, width=120)
    found = measure(shape)
    table = Table(title=f"{shape.tasks:,} tasks, {shape.brokers:,} brokers, {shape.partitions:,} partitions")
    for heading in ("what", "formula", "value"):
        table.add_column(heading)
    for what, formula, value in counts(shape):
        table.add_row(what, formula, f"{value:,.0f}")
    for row in measured(shape, found):
        table.add_row(*row)
    console.print(table)

    smaller = [max(each // options.tenth, 1) for each in (shape.tasks, shape.workers, shape.brokers, shape.partitions)]
    tasks, workers, brokers, partitions = smaller
    in_memory = Shape(tasks, workers, brokers, partitions, touched=0)
    real = Shape(max(smaller[0] // options.tenth, 1), 2, options.nodes, 4 * options.nodes, 4 * options.nodes)
    counted: dict[str, Any] = {}
    _show(console, counted, "in memory", in_memory, _in_memory(in_memory))
    _show(console, counted, "embedded brokers", real, run_really(real, exactly_once=True)[-1])
    content: Mapping[str, Any] = {"shape": asdict(shape), "coefficients": asdict(found), "counted": counted}
    if options.results is not None:
        results.save("scale", content, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps(content))


def _in_memory(shape: Shape) -> Counted:
    return run_in_memory(
        brokers=shape.brokers, partitions=shape.partitions, tasks=shape.tasks, workers=shape.workers, batches=3
    )[-1]


def run_really(shape: Shape, *, exactly_once: bool) -> list[Counted]:
    """Run three batches of *shape* on embedded brokers with real sockets; return the counts of each."""
    config = BrokerConfig(num_network_threads=1, num_io_threads=1)
    with EmbeddedCluster(nodes=shape.brokers, config=config) as cluster:
        return run_on(
            cluster,
            workers=shape.workers,
            tasks=shape.tasks,
            partitions=shape.partitions,
            batches=3,
            exactly_once=exactly_once,
        )


def _show(console: Console, all_found: dict[str, Any], where: str, shape: Shape, counted: Counted) -> None:
    table = Table(
        title=f"{where}: {shape.tasks:,} tasks, {shape.workers} workers, {shape.brokers} brokers, a third batch"
    )
    for heading in ("request", "model", "counted"):
        table.add_column(heading, justify="left" if heading == "request" else "right")
    for name, expected, seen in compared(shape, counted):
        table.add_row(name, f"{expected:,.0f}", f"{seen:,}")
    console.print(table)
    all_found[where] = {name: [round(expected, 1), seen] for name, expected, seen in compared(shape, counted)}


if __name__ == "__main__":
    main()
