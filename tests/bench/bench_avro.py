"""Rows per second encoded to Avro on one thread: columns at once compared with fastavro, row by row.

Run by ``scripts/bench.sh avro``; it needs no broker. The rows are those of one of Spark's Arrow batches, encoded over
and over; fastavro gets them as dictionaries that were made before. What is counted is the thread's CPU time, so that
other load on the machine does not matter much. Before anything is measured the payloads of both are compared.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa

from kafka_sink.formats.avro.column import derive_schema
from tests.bench import results
from tests.support.encoders import avro_encoder

#: The rows of one of Spark's Arrow batches.
BATCH: Final = 10_000
ENCODERS: Final = ("kafkalite", "fastavro")
_COLUMNS: Final = (
    ("id", pa.int64()),
    ("customer", pa.string()),
    ("price", pa.float64()),
    ("quantity", pa.int32()),
    ("at", pa.timestamp("us", "UTC")),
)

#: Columns of a row by the name of the work, and whether they may be null.
WORKS: Final = {"5 columns": (1, False), "5 nullable columns": (1, True), "40 columns": (8, False)}


def make_rows(work: str, count: int) -> pa.StructArray:
    """Rows of *work*; of nullable columns every tenth is null."""
    times, nullable = WORKS[work]
    rng = random.Random(1)
    fields = [pa.field(f"{name}_{turn}", kind, nullable) for turn in range(times) for name, kind in _COLUMNS]
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    makers: dict[pa.DataType, Callable[[], Any]] = {
        pa.int64(): lambda: rng.randrange(10**10),
        pa.string(): lambda: f"customer-{rng.randrange(10**6)}-{'x' * rng.randrange(10)}",
        pa.float64(): lambda: rng.random() * 100,
        pa.int32(): lambda: rng.randrange(100),
        pa.timestamp("us", "UTC"): lambda: start + dt.timedelta(microseconds=rng.randrange(10**12)),
    }
    columns = [
        pa.array([None if nullable and rng.random() < 0.1 else makers[each.type]() for _ in range(count)], each.type)
        for each in fields
    ]
    return pa.StructArray.from_arrays(columns, fields=fields)


def encoders(rows: pa.StructArray) -> dict[str, Callable[[], list[bytes] | pa.Array]]:
    """What encodes all of *rows*, by name."""
    schema = derive_schema(rows.type, "value")
    ours = avro_encoder(schema, rows.type, "value")
    parsed, dictionaries = fastavro.parse_schema(json.loads(schema)), rows.to_pylist()

    def by_fastavro() -> list[bytes]:
        found = []
        for row in dictionaries:
            target = io.BytesIO()
            fastavro.schemaless_writer(target, parsed, row)
            found.append(target.getvalue())
        return found

    return {"kafkalite": lambda: ours.encode(rows), "fastavro": by_fastavro}


def measure(encode: Callable[[], object], rows: int, batches: int) -> float:
    """Rows per second of the thread's CPU time."""
    started = time.thread_time()
    for _ in range(batches):
        encode()
    return rows * batches / (time.thread_time() - started)


def compare(work: str, count: int, runs: int, batches: int) -> dict[str, Any]:
    """Both encoders in turns; RuntimeError when their payloads differ."""
    rows = make_rows(work, count)
    found = encoders(rows)
    ours, theirs = found["kafkalite"](), found["fastavro"]()
    if not isinstance(ours, pa.Array) or ours.to_pylist() != theirs:
        raise RuntimeError(f"{work}: the payloads differ from fastavro's")
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
    parser.add_argument("--batches", type=int, default=50, help="batches per run; fastavro encodes one")
    parser.add_argument("--results", type=Path, help="folder for a JSON file")
    options = parser.parse_args()
    works = {}
    for work in WORKS:
        works[work] = found = compare(work, options.rows, options.runs, options.batches)
        ours, theirs = (found[name]["rows_per_s"] for name in ENCODERS)
        print(f"{work:<20} {ours:>12,} rows/s   fastavro {theirs:>9,} rows/s   {ours / theirs:.1f} times as fast")
    result = {"works": works, "rows": options.rows}
    if options.results is not None:
        results.save("avro", result, options.results)
    # One line for whoever keeps the results.
    print(json.dumps(result))


if __name__ == "__main__":
    main()
