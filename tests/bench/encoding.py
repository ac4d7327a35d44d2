"""Rows per second encoded on one thread: columns at once compared with other libraries, row by row.

The rows are those of one of Spark's Arrow batches, encoded repeatedly; the other libraries get them converted to their
own form in advance. The time is the thread's CPU time, which other load on the machine hardly affects.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.bench import results

#: The number of rows in one of Spark's Arrow batches.
BATCH: Final = 10_000
_COLUMNS: Final = (
    ("id", pa.int64()),
    ("customer", pa.string()),
    ("price", pa.float64()),
    ("quantity", pa.int32()),
    ("at", pa.timestamp("us", "UTC")),
)

#: Name of the work → repetitions of the five columns, and whether they may be null.
WORKS: Final = {"5 columns": (1, False), "5 nullable columns": (1, True), "40 columns": (8, False)}

#: Name → a function that encodes all rows; the first one is kafkalite's.
Encoders = Mapping[str, Callable[[], list[bytes] | pa.Array]]


def make_rows(work: str, count: int) -> pa.StructArray:
    """Return rows of *work*; in nullable columns about every tenth value is null."""
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


def _measure(encode: Callable[[], object], rows: int, batches: int) -> float:
    """Return the rows per second of the thread's CPU time."""
    started = time.thread_time()
    for _ in range(batches):
        encode()
    return rows * batches / (time.thread_time() - started)


def _listed(payloads: list[bytes] | pa.Array) -> list[bytes]:
    found: list[bytes] = payloads if isinstance(payloads, list) else payloads.to_pylist()
    return found


def compare(
    encoders: Callable[[pa.StructArray], Encoders],
    work: str,
    count: int = BATCH,
    runs: int = 5,
    batches: int = 20,
    *,
    slow: str,
    same: bool = True,
) -> dict[str, Any]:
    """Run the encoders in turns, *slow* with one batch per run; RuntimeError if *same* and their payloads differ."""
    found = encoders(make_rows(work, count))
    ours, *others = ((name, _listed(encode())) for name, encode in found.items())
    for name, theirs in others if same else ():
        if ours[1] != theirs:
            raise RuntimeError(f"{work}: the payloads differ from those of {name}")
    rates: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(runs):
        for name, encode in found.items():
            rates[name].append(_measure(encode, count, 1 if name == slow else batches))
    return {
        name: {"rows_per_s": round(statistics.median(each)), "runs": [round(rate) for rate in each]}
        for name, each in rates.items()
    }


def run(description: str | None, measure: Callable[..., dict[str, Any]], batches: int, save_as: str = "") -> None:
    """Run the command line of a comparison; *measure* is :func:`compare` with its encoders."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=BATCH, help="rows of the batch")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each encoder")
    parser.add_argument("--batches", type=int, default=batches, help="batches per run; row by row it is one")
    if save_as:
        parser.add_argument("--results", type=Path, help="folder for a JSON file")
    options = parser.parse_args()
    works = {}
    for work in WORKS:
        works[work] = found = measure(work, options.rows, options.runs, options.batches)
        rates = {name: each["rows_per_s"] for name, each in found.items()}
        ours = rates.pop("kafkalite")
        others = "   ".join(
            f"{name} {rate:>9,} rows/s ({ours / rate:.1f} times as fast)" for name, rate in rates.items()
        )
        print(f"{work:<20} {ours:>12,} rows/s   {others}")
    if save_as and options.results is not None:
        results.save(save_as, {"works": works, "rows": options.rows}, options.results)
    # One line of JSON for programs that keep the results.
    print(json.dumps({"works": works, "rows": options.rows}))
