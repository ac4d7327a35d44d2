"""Rows per second encoded to Protobuf on one thread: columns at once compared with Google's library, row by row, and
with ptars, which is written in Rust.

Run by ``scripts/bench.sh protobuf``; it needs no broker. The rows are those of ``bench_avro``; Google's library gets
them as dictionaries that were made before, of which it makes a message each, and ptars as Arrow. What is counted is the
thread's CPU time. Before anything is measured the payloads of all are compared.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
from collections.abc import Callable
from typing import Any, Final

import ptars
import pyarrow as pa
from google.protobuf import message_factory

from kafka_sink.formats.protobuf.derived import derive_schema
from kafka_sink.formats.protobuf.descriptors import pool_of
from tests.bench.bench_avro import BATCH, WORKS, make_rows, measure
from tests.support.encoders import protobuf_encoder

ENCODERS: Final = ("kafkalite", "google", "ptars")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def encoders(rows: pa.StructArray) -> dict[str, Callable[[], list[bytes] | pa.Array]]:
    """What encodes all of *rows*, by name."""
    derived = derive_schema(rows.type, "value")
    ours = protobuf_encoder(derived.schema, rows.type, "value")
    kind = message_factory.GetMessageClass(pool_of(derived.text).FindMessageTypeByName(derived.schema.root))
    dictionaries = [{name: _told(each) for name, each in row.items() if each is not None} for row in rows.to_pylist()]
    handler = ptars.HandlerPool([kind.DESCRIPTOR.file]).get_for_message(kind.DESCRIPTOR)
    batch = pa.RecordBatch.from_struct_array(rows).cast(handler.schema())
    return {
        "kafkalite": lambda: ours.encode(rows),
        "google": lambda: [kind(**row).SerializeToString() for row in dictionaries],
        "ptars": lambda: handler.record_batch_to_array(batch),
    }


def _told(value: Any) -> Any:
    """*value* as Google's library takes it without a conversion of its own."""
    if not isinstance(value, dt.datetime):
        return value
    since = value - _EPOCH
    return {"seconds": since // dt.timedelta(seconds=1), "nanos": since.microseconds * 1000}


def compare(work: str, count: int, runs: int, batches: int) -> dict[str, Any]:
    """The encoders in turns; RuntimeError when their payloads differ."""
    found = encoders(make_rows(work, count))
    ours = found["kafkalite"]()
    for name in ENCODERS[1:]:
        theirs = found[name]()
        if _listed(ours) != _listed(theirs):
            raise RuntimeError(f"{work}: the payloads differ from those of {name}")
    rates: dict[str, list[float]] = {name: [] for name in ENCODERS}
    for _ in range(runs):
        for name in ENCODERS:
            rates[name].append(measure(found[name], count, 1 if name == "google" else batches))
    return {name: {"rows_per_s": round(statistics.median(each))} for name, each in rates.items()}


def _listed(payloads: list[bytes] | pa.Array) -> list[bytes]:
    found: list[bytes] = payloads if isinstance(payloads, list) else payloads.to_pylist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=BATCH, help="rows of the batch")
    parser.add_argument("--runs", type=int, default=5, help="timed runs of each encoder")
    parser.add_argument("--batches", type=int, default=20, help="batches per run; Google's library encodes one")
    options = parser.parse_args()
    for work in WORKS:
        found = compare(work, options.rows, options.runs, options.batches)
        ours = found["kafkalite"]["rows_per_s"]
        others = "   ".join(
            f"{name} {found[name]['rows_per_s']:>9,} rows/s ({ours / found[name]['rows_per_s']:.1f} times as fast)"
            for name in ENCODERS[1:]
        )
        print(f"{work:<20} {ours:>12,} rows/s   {others}")


if __name__ == "__main__":
    main()
