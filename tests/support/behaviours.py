"""The behaviours that tests verify, by the markers of the tests: ``@pytest.mark.behaviour("part", "behaviour")``.

``scripts/test.sh --behaviours`` prints them, and for each test its figures of the last long run
(``tests/figures.json``). It parses the sources and imports no test, so it takes a second.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from tests.support import figures

ROOT: Final = Path(__file__).parents[2]

#: Every part that a behaviour may belong to, in the order in which they are printed.
PARTS: Final = (
    "Threads",
    "KafkaProducer",
    "Interceptors and serializers",
    "Metadata",
    "Partitioner",
    "RecordAccumulator",
    "Drain",
    "Delivery time-out",
    "ProducerBatch",
    "Record format",
    "Compression",
    "Avro",
    "JSON",
    "Protobuf",
    "Schema registry",
    "Dead letters",
    "BufferPool",
    "Sender",
    "Retries",
    "Batch split",
    "Idempotence",
    "Transactions",
    "Group coordinator",
    "Group offsets",
    "Consumer groups",
    "Groups of other clients",
    "Kafka's Java clients",
    "Judged by Java",
    "What people paste",
    "Spark's own Kafka connector",
    "Transactions of other clients",
    "Same answers as Apache Kafka",
    "ACLs",
    "Transaction coordinator",
    "Transactions in the log",
    "Protocol",
    "NetworkClient",
    "ApiVersions",
    "Connection states",
    "InFlightRequests",
    "KafkaChannel",
    "Slow transports",
    "TLS under load",
    "KSelector",
    "TLS",
    "Security under load",
    "SASL",
    "Readers",
    "Metrics",
    "Lineage",
    "Log",
    "Log reader",
    "Retention and DeleteRecords",
    "Exactly once: plan",
    "Exactly once: refused instead of guessed",
    "Exactly once: brokers that do not verify transactions",
    "Exactly once: the same batch number with other rows",
    "Exactly once: neighbours",
    "Exactly once: parallel",
    "Exactly once: atomic",
    "Exactly once: wrong and lost answers",
    "Exactly once: ids and versions",
    "Exactly once: too late",
    "Exactly once: lost ends",
    "Exactly once: replaced coordinators",
    "Exactly once: versions out of order",
    "Exactly once: advice",
    "Exactly once: every interleaving",
    "Sink options and commit messages",
    "Tasks",
    "Streams and foreachBatch",
    "Stop means stop",
    "Versions",
    "Spark Connect",
    "Spark jobs",
    "Progress and continuous triggers",
    "kafkalite verify",
    "kafkalite check",
    "Admin APIs",
    "Compaction",
    "Faults on demand",
    "pytest plugin",
    "Pages in the browser",
    "Groups and transactions from the command line",
    "EmbeddedCluster",
    "Package",
    "Documentation",
    "Demo",
    "SocketServer",
    "Broker connections",
    "Acceptor",
    "ConnectionQuotas",
    "Processor",
    "Throttling and quotas",
    "RequestChannel",
    "Request memory",
    "Request metrics",
    "Faults: the embedded broker",
    "Faults: exactly once",
    "Faults: a real cluster",
    "Faults: network",
    "Faults: librdkafka's mock cluster",
    "Faults: errors of records",
    "Faults: interrupts and signals",
    "Faults: disk and power",
    "Faults: hostile clients",
    "Faults: simulator",
    "Faults: hostile servers",
    "Faults: security",
)


class Behaviour(NamedTuple):
    """A behaviour of a part of the project."""

    part: str
    text: str


class MarkerError(Exception):
    """A marker that cannot be parsed, or that belongs to no test."""


def behaviours(root: Path = ROOT) -> dict[Behaviour, list[str]]:
    """Return each behaviour with the node ids of the tests that verify it; a file represents all of its tests."""
    found: dict[Behaviour, list[str]] = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if ".behaviour(" not in source:
            continue
        name = path.relative_to(root).as_posix()
        tree = ast.parse(source, name)
        markers = {node: _read(node, name) for node in ast.walk(tree) if _is_marker(node)}
        for marker, test in _marked(tree):
            found[markers.pop(marker)].append(f"{name}::{test}" if test else name)
        for marker in markers:
            raise MarkerError(f"{name}:{marker.lineno}: the marker stands at no test")
    return dict(found)


def _is_marker(node: ast.AST) -> TypeGuard[ast.Call]:
    match node:
        case ast.Call(func=ast.Attribute(attr="behaviour")):
            return True
    return False


def _read(marker: ast.AST, file: str) -> Behaviour:
    match marker:
        case ast.Call(args=[ast.Constant(str(part)), ast.Constant(str(text))], keywords=[]):
            return Behaviour(part, text)
    raise MarkerError(f"{file}:{getattr(marker, 'lineno', 0)}: a marker has two strings, its part and what holds")


def _marked(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield the markers of a file, each with the name of its test, or "" for all tests of the file."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators) if name.startswith("test_"):
                yield from ((each, name) for each in decorators if _is_marker(each))
            case ast.Assign(targets=[ast.Name("pytestmark")], value=ast.List(elts=marks)):
                yield from ((each, "") for each in marks if _is_marker(each))
            case ast.Assign(targets=[ast.Name("pytestmark")], value=mark) if _is_marker(mark):
                yield mark, ""


def listing(found: Mapping[Behaviour, list[str]], part: str, run: figures.Run, width: int) -> Iterator[str]:
    """The lines of all parts with *part* in their names."""
    for each in PARTS:
        if part.casefold() not in each.casefold():
            continue
        yield each
        for behaviour, tests in found.items():
            if behaviour.part == each:
                yield from textwrap.wrap(behaviour.text, width, initial_indent="  ", subsequent_indent="    ")
                for test in tests:
                    yield f"      {test}"
                    for figure in run.of(test):
                        yield from textwrap.wrap(figure, width, initial_indent=" " * 8, subsequent_indent=" " * 10)
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/test.sh --behaviours", description="Print which behaviour is held by which test."
    )
    parser.add_argument("part", nargs="?", default="", help="only parts with this in their names")
    part: str = parser.parse_args().part
    found = behaviours()
    shown = [each for each in found if part.casefold() in each.part.casefold()]
    if not shown:
        parser.error(f"no part has {part!r} in its name; there are: " + ", ".join(PARTS))
    run = figures.load()
    print("\n".join(listing(found, part, run, min(shutil.get_terminal_size().columns, 120))))
    parts = len({each.part for each in shown})
    print(f"{len(shown)} behaviours of {parts} parts. Figures of the last long run: {run.date}, commit {run.commit}.")


if __name__ == "__main__":
    main()
