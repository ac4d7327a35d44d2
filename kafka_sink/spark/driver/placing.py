"""Chooses the Kafka partition of every row before the rows are grouped by partition.

Runs in a Spark Python worker. Rows with a key get the same partition as with Kafka's Java client; rows without a key
are distributed round-robin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from kafka_sink.common.errors import ErrorCode, RowError, error_for
from kafka_sink.producer.kafka_producer import ANY_PARTITION
from kafka_sink.producer.plugins.partitioner import key_partitions
from kafka_sink.spark.options import SinkOptions
from kafka_sink.spark.task.arrow_columns import TopicChunk, in_task, topic_chunks
from kafka_sink.spark.task.payloads import with_payloads
from kafka_sink.spark.task.shared_client import shared_client


def with_partitions(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> Iterator[pa.RecordBatch]:
    """*batches* as payloads, with the partition of every row in the last column.

    :raises ApiError: if a topic does not exist.
    :raises RowError: if a row cannot be written.
    """
    context = TaskContext.get()
    dealt = 0 if context is None else context.partitionId()
    counts: dict[str, int] = {}
    rows_before = 0
    for batch in with_payloads(batches, options.formats):
        placed = np.empty(batch.num_rows, dtype=np.int32)
        for part in _chunks(batch, options.topic, rows_before):
            count = counts.get(part.topic) or counts.setdefault(part.topic, _count(part.topic, options))
            places = _places(part, count, dealt)
            dealt += part.chunk.num_rows
            placed[slice(None) if part.rows is None else part.rows] = places
        rows_before += batch.num_rows
        others = [name for name in batch.schema.names if name != "partition"]
        columns = [_for_spark(batch.column(name)) for name in others]
        yield pa.record_batch([*columns, pa.array(placed)], names=[*others, "partition"])


def _for_spark(column: pa.Array) -> pa.Array:
    """Spark reads bytes with offsets of 32 bits, as it hands them out itself."""
    return column.cast(pa.binary()) if pa.types.is_large_binary(column.type) else column


def _chunks(batch: pa.RecordBatch, topic: str | None, rows_before: int) -> Iterator[TopicChunk]:
    try:
        yield from topic_chunks(batch, topic)
    except RowError as error:
        raise in_task(error, rows_before) from error


def _count(topic: str, options: SinkOptions) -> int:
    client = shared_client(options.producer_properties)
    count = client.run(client.partition_count(topic))
    if count is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist; create it first")
    return count


def _places(part: TopicChunk, count: int, dealt: int) -> NDArray[np.int32]:
    rows = part.chunk.num_rows
    places = ((np.arange(rows) + dealt) % count).astype(np.int32)
    key = part.chunk.key
    if key is not None:
        hashed = key_partitions(key, count)
        nulls = key.null_mask
        places = hashed if nulls is None else np.where(nulls, places, hashed)
    if part.partitions is not None:
        places = np.where(part.partitions == ANY_PARTITION, places, part.partitions)
    return places
