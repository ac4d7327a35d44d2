"""Rows between the tasks that choose their partitions and the tasks that write them (atomic writes).

Both run in Spark Python workers. Bad rows travel with the good ones, because only one task may write to a partition of
the dead letter topic, and because only the tasks that write report. A dead letter has the partition ``-1 - p`` for *p*,
and a row that is dropped has :data:`DROPPED`.
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


def take_placed(
    rows: TaskRows, bad: BadRows, send: Callable[[pa.RecordBatch, NDArray[np.int32] | None], None]
) -> TaskRows:
    """The good rows of *rows*; the others are counted in *bad*, and dead letters go to *send* with their partitions."""
    batch = rows.batch
    partitions = batch.column("partition").to_numpy()
    if int(partitions.min(initial=0)) >= 0:
        return rows
    dropped = np.flatnonzero(partitions == DROPPED)
    if len(dropped):
        texts = batch.column("value").take(pa.array(dropped)).cast(pa.binary()).drop_null()
        bad.note(len(dropped), texts[0].as_py().decode() if len(texts) else "")
    dead = np.flatnonzero((partitions < 0) & (partitions != DROPPED))
    if len(dead):
        letters = batch.take(pa.array(dead)).select(
            [name for name in ("key", "value", "headers") if name in batch.schema.names]
        )
        bad.note(len(dead), first_message(letters))
        send(letters, -1 - partitions[dead])
    return rows.without(np.flatnonzero(partitions < 0).tolist())
