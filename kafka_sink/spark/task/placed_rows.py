"""Rows between the tasks that choose their partitions and the tasks that write them (atomic writes).

Both run in Spark Python workers. Bad rows travel with the good ones, because only one task may write to a partition of
the dead letter topic, and because only the tasks that write report. The dead letters for a partition *p* are one row
with the partition ``-1 - p``, and an Arrow stream as its value: a column of headers would cost every row its passage
through the JVM. A row that is dropped has the partition :data:`_DROPPED`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.spark.task.bad_rows import BadRows, TaskRows
from kafka_sink.spark.task.dead_letters import first_message

#: The place of a row that is dropped; its value is the text of its problem, or null.
_DROPPED: Final = int(np.iinfo(np.int32).min)


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """*rows* and the *places* (int32[rows]) by which Spark groups them, made by one of the functions that follow."""

    rows: pa.RecordBatch
    places: NDArray[np.int32]

    @classmethod
    def good(cls, rows: pa.RecordBatch, partitions: NDArray[np.int32]) -> PlacedRows:
        """Rows for *partitions* (int32[rows])."""
        return cls(rows, partitions)

    @classmethod
    def letters(cls, topic: str, letters: pa.RecordBatch, partitions: NDArray[np.int32]) -> PlacedRows:
        """Dead *letters* for *partitions* (int32[rows]) of *topic*: one row for each partition."""
        distinct = np.unique(partitions)
        streams = []
        for partition in distinct:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, letters.schema) as stream:
                stream.write_batch(letters.take(pa.array(np.flatnonzero(partitions == partition))))
            streams.append(sink.getvalue().to_pybytes())
        columns = [pa.array(streams, pa.binary()), pa.array([topic] * len(distinct), pa.string())]
        return cls(pa.record_batch(columns, names=["value", "topic"]), (-1 - distinct).astype(np.int32))

    @classmethod
    def dropped(cls, count: int, first: str) -> PlacedRows:
        """*count* rows that are dropped, the *first* with the text of its problem."""
        texts = pa.array([first, *[None] * (count - 1)], pa.binary())
        return cls(pa.record_batch([texts], names=["value"]), np.full(count, _DROPPED, dtype=np.int32))

    def for_spark(self, like: pa.Schema) -> pa.RecordBatch:
        """The rows with the columns of *like*, as Spark reads them, and their places in the last column."""
        columns = {field.name: _column(self.rows, field) for field in like if field.name != "partition"}
        return pa.record_batch([*columns.values(), pa.array(self.places)], names=[*columns, "partition"])


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """The column of *rows* that *field* names; nulls if there is none. Spark reads bytes with offsets of 32 bits, as it
    hands them out itself."""
    kind = pa.binary() if pa.types.is_large_binary(field.type) else field.type
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    column = rows.column(field.name)
    if column.type == kind:
        return column
    # Bytes of a shortened text need not be text.
    return column.cast(pa.binary()).view(kind) if pa.types.is_string(kind) else column.cast(kind)


def take_placed(
    rows: TaskRows, bad: BadRows, send: Callable[[pa.RecordBatch, NDArray[np.int32] | None], None]
) -> tuple[TaskRows, int]:
    """The good rows of *rows*, and how many rows there were before bad ones were packed.

    Bad rows are counted in *bad*, and dead letters go to *send* with their partitions.
    """
    batch = rows.batch
    partitions = batch.column("partition").to_numpy()
    if int(partitions.min(initial=0)) >= 0:
        return rows, batch.num_rows
    contents = batch.column("value")
    dropped = np.flatnonzero(partitions == _DROPPED)
    if len(dropped):
        texts = contents.take(pa.array(dropped)).cast(pa.binary()).drop_null()
        bad.note(len(dropped), texts[0].as_py().decode() if len(texts) else "")
    dead = np.flatnonzero((partitions < 0) & (partitions != _DROPPED))
    sent = 0
    for row in dead:
        stream = contents.slice(row, 1).cast(pa.binary())[0].as_buffer()
        for letters in pa.ipc.open_stream(stream):
            sent += int(letters.num_rows)
            bad.note(letters.num_rows, first_message(letters))
            send(letters, np.full(letters.num_rows, -1 - partitions[row], np.int32))
    return rows.without(np.flatnonzero(partitions < 0).tolist()), batch.num_rows - len(dead) + sent
