"""The modules to mutate, the tests that must detect the mutants, and the mutants that change no behaviour."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final, NamedTuple


class Target(NamedTuple):
    """The modules of *sources*, files and folders of ``kafka_sink``, are mutated, in these *names* (empty: everywhere).
    The *tests*, those that detect most first, must detect the mutants."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    names: frozenset[str] = frozenset()


def _unit(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{package}/test_{name}.py" for name in names)


_OF_RECORDS: Final = ("tests/unit/records", "tests/unit/columns", "tests/golden/test_records_golden.py")

TARGETS: Final = {
    "situation": Target(("exactly_once/situation.py",), _unit("exactly_once", "situation")),
    "description": Target(
        ("exactly_once/transactions.py",),
        _unit("exactly_once", "situation", "decision"),
        frozenset({"COMPLETING_MS", "NO_RECORD_MS", "_RECORD_MS", "record_of", "TransactionDescription"}),
    ),
    "progress": Target(
        ("exactly_once/progress.py",),
        _unit("exactly_once", "progress", "same_rows", "decision", "manifest"),
        # Without the documents of groups, which no decision depends on.
        frozenset(
            [
                "_FIRST_DENSE",
                "_BITS",
                "_GROUP_BYTES",
                "_SHIFTS",
                "_METADATA_LIMIT",
                "_FIRST_READ",
                "_MOST_PARTS",
                "_LAST_MOMENT_S",
                "_LEAST_ENTRY",
                "_LEAST_END",
                "encode_lists",
                "_dense",
                "_undense",
                "decode_lists",
                "_transactions_of_process",
                "latest_batch",
                "_FirstPart",
                "ProgressStore",
            ]
        ),
    ),
    "writers": Target(("exactly_once/writing.py",), _unit("exactly_once", "writing")),
    "columns": Target(("columns",), ("tests/unit/columns", "tests/unit/records/test_vectorized.py")),
    "encoding": Target(
        tuple(f"records/{name}.py" for name in ("batch", "layout", "reference", "vectorized")), _OF_RECORDS
    ),
    "decoding": Target(
        tuple(f"records/{name}.py" for name in ("reader", "spans", "compacted", "message_sets", "control")), _OF_RECORDS
    ),
    "validation": Target(("records/validation.py", "records/compression.py"), _OF_RECORDS),
    "batching": Target(
        ("producer/batching",),
        _unit(
            "producer",
            *("producer_batch", "batch_drain", "accumulator", "column_append", "buffer_pool", "batch_split"),
            *("partition_queues", "calls_in_progress"),
        ),
    ),
    "partitioners": Target(
        ("producer/plugins/built_in_partitioner.py", "producer/plugins/partitioner.py"),
        (*_unit("producer", "built_in_partitioner", "partitioner", "murmur2"), "tests/unit/producer"),
    ),
    "log": Target(("broker/log",), ("tests/unit/broker/log",)),
    "bounded": Target(("common/bounded.py",), _unit("common", "bounded", "latest")),
}


def equivalents(name: str) -> dict[str, str]:
    """Return the mutants of target *name* that change no behaviour: a part of each one's text, with the reason. Each
    target has its own file, so that a new line for one does not make the proof of the others stale."""
    path = Path(__file__).parent / "equivalent" / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))
