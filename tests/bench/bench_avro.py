"""Rows per second encoded to Avro on one thread: columns at once compared with fastavro, row by row.

Run by ``scripts/bench.sh avro``; it needs no broker. :mod:`tests.bench.encoding` describes the method. fastavro gets
dictionaries that were made before. The payloads of both are compared before the measurement.
"""

from __future__ import annotations

import io
import json
from functools import partial

import fastavro
import pyarrow as pa

from kafka_sink.formats.avro.column import derive_schema
from tests.bench.encoding import Encoders, compare, run
from tests.support.encoders import avro_encoder


def encoders(rows: pa.StructArray) -> Encoders:
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


measure = partial(compare, encoders, slow="fastavro")

if __name__ == "__main__":
    run(__doc__, measure, 50, save_as="avro")
