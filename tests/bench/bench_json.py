"""Rows per second written as JSON on one thread: columns at once compared with ``json.dumps``, row by row.

Run by ``scripts/bench.sh json``; it needs no broker. The rows are those of ``bench_avro``; ``json.dumps`` gets them as
dictionaries that were made before, with texts for timestamps. What is counted is the thread's CPU time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from kafka_sink.formats.json.column import JsonEncoder
from tests.bench.bench_avro import BATCH, WORKS, make_rows, measure

ENCODERS: Final = ("kafkalite", "json.dumps")


def encoders(rows: pa.StructArray) -> dict[str, Callable[[], list[bytes] | pa.Array]]:
    """What encodes all of *rows*, by name."""
    ours = JsonEncoder(rows.type, "value")
    dictionaries = [
        {name: each if isinstance(each, int | float | str) else each.isoformat() for name, each in row.items() if each}
        for row in rows.to_pylist()
    ]
    return {
        "kafkalite": lambda: ours.encode(rows),
        "json.dumps": lambda: [json.dumps(row, separators=(",", ":")).encode() for row in dictionaries],
    }


def compare(work: str, count: int, runs: int, batches: int) -> dict[str, Any]:
    """Both encoders in turns."""
    found = encoders(make_rows(work, count))
    rates: dict[str, list[float]] = {name: [] for name in ENCODERS}
    for _ in range(runs):
        for name in ENCODERS:
            rates[name].append(measure(found[name], count, batches if name == "kafkalite" else 1))
    return {
        name: {"rows_per_s": round(statistics.median(each)), "runs": [round(rate) for rate in each]}
        for name, each in rates.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=BATCH, help="rows of the batch")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each encoder")
    parser.add_argument("--batches", type=int, default=20, help="batches per run; json.dumps encodes one")
    options = parser.parse_args()
    for work in WORKS:
        found = compare(work, options.rows, options.runs, options.batches)
        ours, theirs = (found[name]["rows_per_s"] for name in ENCODERS)
        print(f"{work:<20} {ours:>12,} rows/s   json.dumps {theirs:>9,} rows/s   {ours / theirs:.1f} times as fast")


if __name__ == "__main__":
    main()
