"""Rows between the tasks that choose their partitions and the tasks that write them (atomic writes).

Both run in Spark Python workers. Bad rows travel with the good ones, because only one task may write to a partition of
the dead letter topic, and because only the tasks that write report. The dead letters for a partition *p* are one row
with the partition ``-1 - p``, and an Arrow stream as its value: a column of headers would cost every row its passage
through the JVM. A row that is dropped has the partition :data:`DROPPED`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.spark.task.bad_rows import BadRows, TaskRows
from kafka_sink.spark.task.dead_letters import first_message

#: The partition of a row that is dropped; its value is the text of its problem, or null.
DROPPED: Final = int(np.iinfo(np.int32).min)


def packed(letters: pa.RecordBatch, partitions: NDArray[np.int32]) -> tuple[pa.RecordBatch, NDArray[np.int32]]:
    """One row for each of *partitions* (int32[rows]) with its *letters*, and the partitions of these rows."""
    found = np.unique(partitions)
    streams = []
    for partition in found:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, letters.schema) as stream:
            stream.write_batch(letters.take(pa.array(np.flatnonzero(partitions == partition))))
        streams.append(sink.getvalue().to_pybytes())
    return pa.record_batch([pa.array(streams, pa.binary())], names=["value"]), (-1 - found).astype(np.int32)


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
    dropped = np.flatnonzero(partitions == DROPPED)
    if len(dropped):
        texts = contents.take(pa.array(dropped)).cast(pa.binary()).drop_null()
        bad.note(len(dropped), texts[0].as_py().decode() if len(texts) else "")
    dead = np.flatnonzero((partitions < 0) & (partitions != DROPPED))
    sent = 0
    for row in dead:
        stream = contents.slice(row, 1).cast(pa.binary())[0].as_buffer()
        for letters in pa.ipc.open_stream(stream):
            sent += int(letters.num_rows)
            bad.note(letters.num_rows, first_message(letters))
            send(letters, np.full(letters.num_rows, -1 - partitions[row], np.int32))
    return rows.without(np.flatnonzero(partitions < 0).tolist()), batch.num_rows - len(dead) + sent
