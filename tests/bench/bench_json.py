"""Rows per second written as JSON on one thread: columns at once compared with ``json.dumps``, row by row.

Run by ``scripts/bench.sh json``; it needs no broker. :mod:`tests.bench.encoding` describes the method.
``json.dumps`` gets dictionaries that were made before, with texts for timestamps.
"""

from __future__ import annotations

import json
from functools import partial

import pyarrow as pa

from kafka_sink.formats.json.column import JsonEncoder
from tests.bench.encoding import Encoders, compare, run


def encoders(rows: pa.StructArray) -> Encoders:
    ours = JsonEncoder(rows.type, "value")
    dictionaries = [
        {name: each if isinstance(each, int | float | str) else each.isoformat() for name, each in row.items() if each}
        for row in rows.to_pylist()
    ]
    return {
        "kafkalite": lambda: ours.encode(rows),
        "json.dumps": lambda: [json.dumps(row, separators=(",", ":")).encode() for row in dictionaries],
    }


measure = partial(compare, encoders, slow="json.dumps", same=False)

if __name__ == "__main__":
    run(__doc__, measure, 20)
