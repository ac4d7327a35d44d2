"""Stages rows: checks them against the limits, chooses their partitions, and appends them piece by piece.

Runs on the calling thread. All rows are checked before any row is staged, and nothing loops over rows. A failure after
the check (memory, a partitioner, a producer that is closed) may leave some of the rows staged; the error names the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.errors import RowSerializationError, RowTooLargeError
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.column_append import AppendedRows, ColumnAppender, SortedRows
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import DeliveryCallback, PartlyStagedError
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.plugins.loading import Plugins
from kafka_sink.producer.plugins.partitioner import check_choice, check_choices, partition_count, row_by_row
from kafka_sink.producer.staging.arrow_rows import ArrowRows
from kafka_sink.producer.staging.topic_metadata import ANY_PARTITION, TopicMetadata
from kafka_sink.records.layout import HEADER_BYTES, MAX_RECORD_OVERHEAD_BYTES
from kafka_sink.records.vectorized import content_sizes, partition_order

#: Columns are staged in pieces, so that the encoder needs little memory besides buffer.memory. The least bytes of a
#: piece.
_LEAST_PIECE_BYTES: Final = 2 * 1024 * 1024
#: The most bytes of a piece, for topics with many partitions.
_MOST_PIECE_BYTES: Final = 8 * 1024 * 1024
#: The bytes of a piece for each partition, because every append to a batch has a fixed cost.
_PIECE_BYTES_OF_A_PARTITION: Final = 64 * 1024

#: An estimate of the overhead of a record besides its key, value and headers, in bytes.
RECORD_OVERHEAD_BYTES: Final = 10


class ColumnStaging:
    """Stages rows for one topic at a time.

    :param wake: called when a batch has become ready to be sent.
    """

    def __init__(
        self,
        context: ProducerContext,
        topics: TopicMetadata,
        appender: ColumnAppender,
        plugins: Plugins,
        wake: Callable[[], None],
    ) -> None:
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._topics = topics
        self._appender = appender
        # One of the two is None.
        self._built_in = plugins.built_in
        self._partitioner = plugins.partitioner
        self._wake = wake

    def stage(self, topic: str, parts: Sequence[ArrowRows], wall_ms: int, on_delivery: DeliveryCallback) -> None:
        """Check all of *parts*, then stage all of them. Rows without a timestamp get *wall_ms*.

        :raises RowError: if a row cannot be a record, or names a partition that does not exist; nothing is staged.
        :raises ApiError: if there is no metadata or no memory within max.block.ms; nothing is staged.
        :raises PartlyStagedError: if an error occurs after some of the rows were staged.
        """
        parts = [part for part in parts if part.chunk.num_rows]
        sizes = [checked_sizes(self._config, topic, part.chunk) for part in parts]
        deadline = self._clock.monotonic_ms() + self._config.max_block_ms
        clusters = [self._topics.wait_for_rows(topic, part.partitions) for part in parts]
        rows = sum(part.chunk.num_rows for part in parts)
        staged, before = AppendedRows(rows), 0
        try:
            for part, part_sizes, cluster in zip(parts, sizes, clusters, strict=True):
                self._metrics.staged_rows(int(part_sizes.max()) + RECORD_OVERHEAD_BYTES, self._clock.monotonic_ms())
                deadline = self._stage_part(
                    topic, part, part_sizes, cluster, wall_ms, on_delivery, deadline, staged, before
                )
                before += part.chunk.num_rows
        except Exception as error:
            if not staged.is_appended.any():
                raise
            self._wake()
            raise PartlyStagedError(topic, rows, np.flatnonzero(~staged.is_appended), error) from error

    def _stage_part(
        self,
        topic: str,
        part: ArrowRows,
        sizes: NDArray[np.int64],
        cluster: Cluster,
        wall_ms: int,
        on_delivery: DeliveryCallback,
        deadline: int,
        staged: AppendedRows,
        rows_before: int,
    ) -> int:
        """Stage one part, in pieces; returns the deadline for the next part."""
        chunk, partitions = part.chunk, part.partitions
        ends = np.cumsum(sizes)
        most = piece_bytes(partition_count(topic, cluster))
        start = 0
        while start < chunk.num_rows:
            before = int(ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
            whole = start == 0 and end == chunk.num_rows
            piece = chunk if whole else chunk.slice(start, end - start)
            piece_partitions = None if partitions is None else partitions[start:end]
            rows = self._partition_rows(topic, piece, sizes[start:end], piece_partitions, cluster)
            order, numbers, run_starts = partition_order(rows)
            run_partitions = [TopicPartition(topic, number) for number in numbers.tolist()]
            sorted_piece = piece if order is None else piece.take(order)
            sorted_rows = SortedRows(topic, sorted_piece, run_partitions, run_starts, wall_ms)
            left = max(deadline - self._clock.monotonic_ms(), 0)
            staged.begin(rows_before + start, order)
            if self._appender.append(sorted_rows, on_delivery, left, staged):
                self._wake()
            start = end
            # A chunk may be larger than buffer.memory: as long as rows are appended, waiting for memory counts as
            # progress.
            deadline = self._clock.monotonic_ms() + self._config.max_block_ms
        return deadline

    def _partition_rows(
        self,
        topic: str,
        chunk: ColumnChunk,
        sizes: NDArray[np.int64],
        partitions: NDArray[np.int32] | None,
        cluster: Cluster,
    ) -> NDArray[np.int32]:
        if partitions is None:
            return self._choose_partitions(topic, chunk, sizes, cluster)
        free, chosen = np.flatnonzero(partitions == ANY_PARTITION), partitions.astype(np.int32)
        if len(free):
            chosen[free] = self._choose_partitions(topic, chunk.take(free), sizes[free], cluster)
        return chosen

    def _choose_partitions(
        self, topic: str, chunk: ColumnChunk, sizes: NDArray[np.int64], cluster: Cluster
    ) -> NDArray[np.int32]:
        if self._built_in is not None:
            return self._built_in.partition_rows(topic, chunk, sizes, cluster)
        if not hasattr(self._partitioner, "partition_rows"):
            return row_by_row(self._partitioner, topic, chunk, cluster)
        chosen: NDArray[np.int32] = self._partitioner.partition_rows(topic, chunk, sizes, cluster)
        check_choices(self._partitioner, topic, chosen, chunk.num_rows)
        for extreme in (int(chosen.min()), int(chosen.max())):
            check_choice(self._partitioner, topic, extreme, cluster)
        return chosen


def piece_bytes(partitions: int) -> int:
    """Bytes of rows that are staged at a time for a topic with this many partitions."""
    return min(max(partitions * _PIECE_BYTES_OF_A_PARTITION, _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES)


def checked_sizes(config: ProducerConfig, topic: str, chunk: ColumnChunk) -> NDArray[np.int64]:
    """Bytes of each row's content. :raises RowError: if a row cannot be a record."""
    timestamps = chunk.timestamps
    if timestamps is not None and int(timestamps.min()) < 0:
        raise RowSerializationError.about(
            np.flatnonzero(timestamps < 0).tolist(),
            lambda row: f"has the timestamp {timestamps[row]} (ms); timestamps before 1970 are not valid in Kafka",
            "timestamp",
        )
    sizes = content_sizes(chunk)
    overhead = HEADER_BYTES + MAX_RECORD_OVERHEAD_BYTES
    if size_problem(config, topic, int(sizes.max()) + overhead) is not None:
        needed = sizes + overhead
        limit = min(config.max_request_size_bytes, config.buffer_memory_bytes)
        raise RowTooLargeError.about(
            np.flatnonzero(needed > limit).tolist(),
            lambda row: size_problem(config, topic, int(needed[row])) or "is too large",
        )
    return sizes


def size_problem(config: ProducerConfig, topic: str, size: int) -> str | None:
    """The error text for a record of *size* bytes; None if it is within the limits."""
    for option, limit in (
        ("max.request.size", config.max_request_size_bytes),
        ("buffer.memory", config.buffer_memory_bytes),
    ):
        if size > limit:
            name = config.option(option)
            return (
                f"for topic {topic} needs up to {size} bytes, more than {name} ({limit} bytes); send a smaller "
                f"record, or raise {name} (and the broker's message.max.bytes)"
            )
    return None
