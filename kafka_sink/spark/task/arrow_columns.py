"""Converts Spark's Arrow batches to the producer's columns.

Runs in the task, once per batch of up to 10,000 rows. It uses views of the buffers and never loops over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError, RowError, RowSerializationError
from kafka_sink.producer.staging.arrow_rows import rows_of


@dataclass(frozen=True)
class TopicChunk:
    """Rows for one topic. ``partitions`` is int32[rows], with ANY_PARTITION for a row without a partition; None if no
    row has one.

    ``rows`` are their indices in the Arrow batch; None if they are the complete batch.
    """

    topic: str
    chunk: ColumnChunk
    partitions: NDArray[np.int32] | None
    rows: NDArray[np.intp] | None = None

    def without(self, rows: Sequence[int]) -> TopicChunk:
        """All rows of the chunk but *rows*."""
        kept = np.delete(np.arange(self.chunk.num_rows), rows)
        partitions = None if self.partitions is None else self.partitions[kept]
        return TopicChunk(self.topic, self.chunk.take(kept), partitions, kept if self.rows is None else self.rows[kept])

    def in_batch(self, error: RowError) -> RowError:
        """Convert *error* from a row index in ``chunk`` to a row index in the Arrow batch."""
        return error if self.rows is None else error.at(self.rows[list(error.rows)].tolist())


def topic_chunks(batch: pa.RecordBatch, topic: str | None, dead_letter_topic: str | None = None) -> list[TopicChunk]:
    """The rows of *batch* grouped by topic, in their order; *topic* is preferred to the column of topics.

    :raises RowError: if a row has a null topic, a negative partition, or a header without a key.
    :raises ConfigError: if a row has the topic of the dead letters.
    """
    parts = rows_of(batch, SYSTEM_CLOCK.wall_ms())
    chunk, partitions = parts.chunk, parts.partitions
    if topic is not None:
        return [TopicChunk(topic, chunk, partitions)]
    names = batch.column("topic")
    if names.null_count:
        nulls = np.flatnonzero(names.is_null().to_numpy(zero_copy_only=False)).tolist()
        problem = "has a null topic; fill it, or set option('topic', …) for all rows"
        raise RowSerializationError.about(nulls, lambda _: problem, "topic")
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    topics = encoded.dictionary.to_pylist()
    if dead_letter_topic in topics:
        raise ConfigError(
            f"rows of this task have the topic {dead_letter_topic!r}, which is the dead letter topic (option "
            "deadLetterTopic); name another one"
        )
    if len(topics) == 1:
        return [TopicChunk(topics[0], chunk, partitions)]
    of_topics = [(name, np.flatnonzero(codes == code)) for code, name in enumerate(topics)]
    return [
        TopicChunk(name, chunk.take(rows), None if partitions is None else partitions[rows], rows)
        for name, rows in of_topics
    ]
