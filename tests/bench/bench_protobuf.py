"""Rows per second encoded to Protobuf on one thread: columns at once compared with Google's library, row by row, and
with ptars, which is written in Rust.

Run by ``scripts/bench.sh protobuf``; it needs no broker. :mod:`tests.bench.encoding` describes the method. Google's
library gets dictionaries that were made before, and makes a message of each; ptars gets Arrow. The payloads of all are
compared before the measurement.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any, Final

import ptars
import pyarrow as pa
from google.protobuf import message_factory

from kafka_sink.formats.protobuf.column import derive_schema
from kafka_sink.formats.protobuf.descriptors import pool_of
from tests.bench.encoding import Encoders, compare, run
from tests.support.encoders import protobuf_encoder

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def encoders(rows: pa.StructArray) -> Encoders:
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
    """Return *value* in the form that Google's library takes without a conversion."""
    if not isinstance(value, dt.datetime):
        return value
    since = value - _EPOCH
    return {"seconds": since // dt.timedelta(seconds=1), "nanos": since.microseconds * 1000}


measure = partial(compare, encoders, slow="google")

if __name__ == "__main__":
    run(__doc__, measure, 20)
