"""The table of docs/versions.md: the promises that each group of parts proves, and the state of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.proof.ledger import Ledger, Record
from tests.proof.parts import Part

#: Group → its description, in the order of the table.
GROUPS = {
    "suite": "all tests, on each Python",
    "pages": "tests that read pages",
    "site": "the site of the pages",
    "spark": "the sink on other versions of Spark and Python",
    "kafka": "tests on each version of Kafka",
    "broker": "other brokers",
    "suites": "suites and programs of other projects, on the embedded broker",
    "chaos": "exactly once while everything fails",
    "fuzz": "readers of others' bytes, under attack",
    "exploration": "every interleaving of exactly-once drivers",
    "long": "tests with larger amounts",
    "kerberos": "logins with Kerberos",
    "browser": "the pages in a browser",
    "mutation": "changed sources that unit tests notice",
    "matrix": "each security with each way to write",
    "yarn": "YARN, in both deploy modes",
    "kubernetes": "Kubernetes",
    "demo": "the demonstration",
    "soak": "micro-batches over SASL_SSL, as fast as possible",
    "hosts": "two hours of many streams on many hosts, all restarted in turn",
    "bench": "benchmarks",
}


def table(parts: Sequence[Part], ledger: Ledger) -> str:
    """Return the table in Markdown, with a row for each group."""
    lines = ["| proven by | parts | last runs |", "| --- | ---: | --- |"]
    for group, text in GROUPS.items():
        inside = [part for part in parts if part.group == group]
        lines.append(f"| {text} (`{group}`) | {len(inside)} | {'; '.join(_cell(inside, ledger))} |")
    return "\n".join(lines) + "\n"


def _cell(parts: Sequence[Part], ledger: Ledger) -> Iterator[str]:
    records = [record for part in parts if (record := ledger.get(part)) is not None]
    passed = [record for record in records if record.outcome == "passed"]
    if passed:
        counts = Counter[str]()
        for record in passed:
            counts.update(record.counts)
        said = ", ".join(f"{count:,} {word}" for word, count in counts.items())
        yield f"{len(passed)} passed, {_dates(passed)}{': ' if said else ''}{said}"
    yield from (f"**{record.part} failed**" for record in records if record.outcome == "failed")
    yield from (f"{record.part} not run: {record.reason}" for record in records if record.outcome == "cannot run")
    missing = [part for part in parts if ledger.get(part) is None]
    if missing:
        yield f"{len(missing)} not run yet" if passed else "not run yet"


def _dates(records: Sequence[Record]) -> str:
    days = sorted(record.date.partition("T")[0] for record in records)
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
