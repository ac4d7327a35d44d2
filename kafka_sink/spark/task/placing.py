"""Chooses the Kafka partition of every row before the rows are grouped by partition.

Runs in a Spark Python worker. Rows with a key get the same partition as with Kafka's Java client; rows without a key
are distributed round-robin. Bad rows are sorted out here, and travel on with the others
(:mod:`kafka_sink.spark.task.placed_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from kafka_sink.columns.record_columns import BinaryColumn
from kafka_sink.common.errors import ErrorCode, KafkaError, RowError, error_for
from kafka_sink.producer.kafka_producer import ANY_PARTITION
from kafka_sink.producer.plugins.partitioner import key_partitions
from kafka_sink.producer.staging.column_staging import checked_sizes
from kafka_sink.producer.staging.topic_metadata import check_partitions
from kafka_sink.producer.topic_limits import LimitChecks
from kafka_sink.spark.errors import of_task
from kafka_sink.spark.task.arrow_columns import TopicChunk, topic_chunks
from kafka_sink.spark.task.bad_rows import BadRows, TaskRows
from kafka_sink.spark.task.dead_letters import DeadLetters
from kafka_sink.spark.task.payloads import Payloads
from kafka_sink.spark.task.placed_rows import PlacedRows
from kafka_sink.spark.task.shared_client import shared_client
from kafka_sink.spark.write_spec import DEAD_LETTER, FAIL, WriteSpec


def with_partitions(batches: Iterator[pa.RecordBatch], spec: WriteSpec) -> Iterator[pa.RecordBatch]:
    """*batches* as payloads, with the partition of every row in the last column.

    :raises SinkWriteError: if a topic does not exist, or a row cannot be written and the write fails then.
    :raises TooManyBadRowsError: if more rows of this task cannot be written than maxBadRows allows.
    """
    placing = _Placing(spec)
    try:
        for batch in batches:
            yield from placing.of(batch)
    except KafkaError as error:
        raise of_task(error, str(error), spec.topic) from error


class _Placing:
    """The rows of one task."""

    def __init__(self, spec: WriteSpec) -> None:
        context = TaskContext.get()
        self._spec = spec
        self._dealt = 0 if context is None else context.partitionId()
        self._counts: dict[str, int] = {}
        self._rows_before = 0
        self._payloads = Payloads(spec.formats)
        self._config = spec.producer.here()
        self._limits = LimitChecks(spec.limits, self._config)
        self._bad = BadRows(spec, self._take_refused)
        #: Dead letters with their partitions, or rows to drop, until they are passed on.
        self._refused: list[PlacedRows] = []

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows, payloads = self._bad.accepted(TaskRows(batch, self._rows_before), self._payloads.of)
        self._rows_before += batch.num_rows
        rows, parts = self._bad.accepted(replace(rows, batch=payloads), self._checked_parts)
        placed = np.empty(rows.batch.num_rows, dtype=np.int32)
        for part in parts:
            placed[slice(None) if part.rows is None else part.rows] = self._places(
                part.topic, part.chunk.num_rows, part.chunk.key, part.partitions
            )
        like = rows.batch.schema
        refused, self._refused = self._refused, []
        for each in (PlacedRows.good(rows.batch, placed), *refused):
            yield each.for_spark(like)

    def _checked_parts(self, batch: pa.RecordBatch) -> list[TopicChunk]:
        """:raises RowError: if rows cannot be written."""
        parts = topic_chunks(batch, self._spec.topic, self._spec.dead_letter_topic)
        if self._spec.on_bad_row == FAIL:
            # The tasks that write say so.
            return parts
        for part in parts:
            try:
                if part.chunk.num_rows:
                    checked_sizes(self._config, part.topic, part.chunk)
                check_partitions(part.topic, part.partitions, self._count(part.topic))
                self._limits.check(part.topic, part.chunk)
            except RowError as error:
                raise part.in_batch(error) from error
        return parts

    def _take_refused(self, rows: TaskRows, error: RowError) -> None:
        count = len(error.rows)
        if self._spec.on_bad_row == DEAD_LETTER:
            letters = DeadLetters(self._spec).of(rows, error)
            key = BinaryColumn.from_arrow(letters.column("key")) if "key" in letters.schema.names else None
            topic = self._spec.dead_letter_topic or ""
            self._refused.append(PlacedRows.letters(topic, letters, self._places(topic, count, key, None)))
        else:
            self._refused.append(PlacedRows.dropped(count, self._bad.first))

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            client = shared_client(self._spec.producer)
            count = client.run(client.partition_count(topic))
            if count is None:
                raise error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist; create it first"
                )
            self._counts[topic] = count
        return self._counts[topic]

    def _places(
        self, topic: str, rows: int, key: BinaryColumn | None, partitions: NDArray[np.int32] | None
    ) -> NDArray[np.int32]:
        count = self._count(topic)
        places = ((np.arange(rows) + self._dealt) % count).astype(np.int32)
        self._dealt += rows
        if key is not None:
            hashed = key_partitions(key, count)
            nulls = key.null_mask
            places = hashed if nulls is None else np.where(nulls, places, hashed)
        if partitions is not None:
            places = np.where(partitions == ANY_PARTITION, places, partitions)
        return places
