"""Appends whole columns: plans the place of each row of a chunk first, then encodes all rows at once.

Runs on the calling thread, and appends to the same batches as single records, through the accumulator. The encoding of
a row depends on its position in its batch (offset delta, timestamp delta), so the plan reads the open batches. If the
sender drains some of them before the append, the rows of all their partitions are planned and encoded again together.
This module never loops over rows, never touches a queue and never holds a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.clock import Clock
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.accumulator import EncodedRows, OpenBatch, RecordAccumulator
from kafka_sink.producer.futures import DeliveryCallback
from kafka_sink.records.layout import MAX_RECORD_OVERHEAD_BYTES
from kafka_sink.records.vectorized import content_sizes, encode_records, sizes_from_content

Int64s = NDArray[np.int64]

#: How often rows may be planned into open batches. Such a plan may be outdated again and again while the sender drains
#: and other threads append. The plan after these only opens new batches, so it cannot be outdated.
_ROUNDS_WITH_OPEN_BATCHES = 3

#: A lower bound of what length, attributes and two deltas add to the content of a record, in bytes.
_LEAST_OVERHEAD = 3


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows for one topic, grouped by partition: run ``i`` is the rows ``run_starts[i]`` to ``run_starts[i+1] - 1`` of
    ``chunk``, of partition ``run_partitions[i]``. Rows without a timestamp get ``wall_ms``."""

    topic: str
    chunk: ColumnChunk
    run_partitions: Sequence[TopicPartition]
    run_starts: Int64s
    wall_ms: int

    def of_runs(self, runs: list[int]) -> tuple[SortedRows, Int64s]:
        """(the rows of *runs* alone, their positions among these rows)."""
        lengths = np.diff(self.run_starts)[runs]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        rows = np.arange(starts[-1]) + np.repeat(self.run_starts[runs] - starts[:-1], lengths)
        partitions = [self.run_partitions[run] for run in runs]
        return SortedRows(self.topic, self.chunk.take(rows), partitions, starts, self.wall_ms), rows


class _Segment(NamedTuple):
    """Rows ``start … end - 1`` of the chunk, which go into one batch: ``target``, or a new batch if that has none."""

    run: int
    start: int
    end: int
    target: OpenBatch


class AppendedRows:
    """Records which of *rows* rows have been appended, for the caller of an append that fails part way. The caller may
    append them in several pieces, each of which begins with :meth:`begin`."""

    def __init__(self, rows: int) -> None:
        #: bool[rows], in the order of the caller.
        self.is_appended = np.zeros(rows, dtype=np.bool_)
        self._first = 0
        # The positions, from the first row of the piece on, of the rows of the chunk that is being appended.
        self._positions: Int64s | None = None

    def begin(self, first: int, order: Int64s | None) -> None:
        """Begin a piece at row *first*, whose rows are appended in this *order* (None: unchanged)."""
        self._first, self._positions = first, order

    def add(self, start: int, end: int) -> None:
        """Mark rows ``start … end - 1`` of the chunk that is being appended as appended."""
        if self._positions is None:
            self.is_appended[self._first + start : self._first + end] = True
        else:
            self.is_appended[self._first + self._positions[start:end]] = True

    def go_on_with(self, rows: Int64s) -> None:
        """Continue with only *rows* of the chunk that was being appended."""
        self._positions = rows if self._positions is None else self._positions[rows]


class ColumnAppender:
    """Appends :class:`ColumnChunk`\\ s to an accumulator."""

    def __init__(self, accumulator: RecordAccumulator, clock: Clock) -> None:
        self._accumulator = accumulator
        self._clock = clock

    def append(
        self, rows: SortedRows, callback: DeliveryCallback | None, max_block_ms: int, appended: AppendedRows
    ) -> bool:
        """Append *rows*. *callback* is called once per batch that received rows. Returns True when a batch became ready
        to be sent. After an error *appended* holds the rows that were appended nevertheless.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms* (counted for the whole chunk).
        :raises KafkaError: if the producer was closed during the call, or needs a transaction and none is open.
        """
        deadline = self._clock.monotonic_ms() + max_block_ms
        return self._accumulator.appending(self._append, rows, callback, deadline, appended)

    def _append(
        self, rows: SortedRows, callback: DeliveryCallback | None, deadline: int, appended: AppendedRows
    ) -> bool:
        wake = False
        accumulator = self._accumulator
        accumulator.check_may_append()
        new_batch = accumulator.new_batch(rows.topic)
        for _ in range(_ROUNDS_WITH_OPEN_BATCHES):
            accumulator.check_open()
            targets = [accumulator.open_batch(partition, new_batch) for partition in rows.run_partitions]
            missed, ready = self._carry_out(_Plan(rows, targets, new_batch), callback, deadline, appended)
            wake |= ready
            if not missed:
                return wake
            rows, positions = rows.of_runs(missed)
            appended.go_on_with(positions)
        accumulator.check_open()
        targets = [new_batch] * len(rows.run_partitions)
        _, ready = self._carry_out(_Plan(rows, targets, new_batch), callback, deadline, appended)
        return wake | ready

    def _carry_out(
        self, plan: _Plan, callback: DeliveryCallback | None, deadline: int, appended: AppendedRows
    ) -> tuple[list[int], bool]:
        """Append the rows by *plan*: (runs whose open batch has changed since, whether a batch can be sent).

        No row of such a run is appended, so its rows stay in order when they are planned again.
        """
        encoded = encode_records(plan.rows.chunk, plan.offset_deltas, plan.timestamp_deltas)
        bounds = encoded.offsets
        missed: list[int] = []
        ready = False
        for segment in plan.segments:
            if missed and missed[-1] == segment.run:
                continue
            records = encoded.data[int(bounds[segment.start]) : int(bounds[segment.end])]
            rows = EncodedRows(records, segment.end - segment.start, *plan.timestamp_span(segment), callback)
            batch = segment.target.batch
            if batch is None:
                left = max(deadline - self._clock.monotonic_ms(), 0)
                ready |= self._accumulator.append_to_new_batch(plan.rows.run_partitions[segment.run], rows, left)
            elif self._accumulator.continue_batch(batch, segment.target.record_count, rows):
                ready |= batch.is_full
            else:
                missed.append(segment.run)
                continue
            appended.add(segment.start, segment.end)
        return missed, ready


class _Plan:
    """Assigns every row to a batch, with its offset delta and its timestamp delta.

    :param targets: the batch of each run that receives its first rows.
    :param new_batch: the batch that receives rows that do not fit there.
    """

    def __init__(self, rows: SortedRows, targets: list[OpenBatch], new_batch: OpenBatch) -> None:
        self.rows = rows
        self._targets = targets
        self._new_batch = new_batch
        self._timestamps = rows.chunk.timestamps
        self._content = content_sizes(rows.chunk)
        self.segments: list[_Segment] = []
        run_starts = rows.run_starts
        lengths = np.diff(run_starts)
        counts = np.array([target.record_count for target in targets], dtype=np.int64)
        self.offset_deltas: Int64s = np.arange(len(self._content), dtype=np.int64)
        self.offset_deltas -= np.repeat(run_starts[:-1] - counts, lengths)
        self.timestamp_deltas = self._first_timestamp_deltas(lengths)
        starts: list[int] = run_starts.tolist()
        most_bytes = int(self._content.sum()) + MAX_RECORD_OVERHEAD_BYTES * len(self._content)
        if most_bytes <= min(target.room_bytes for target in targets):
            # The upper bound of all sizes fits into every target, so the exact sizes are not needed.
            self.segments = [_Segment(run, starts[run], starts[run + 1], target) for run, target in enumerate(targets)]
            return
        sizes = sizes_from_content(self._content, self.offset_deltas, self.timestamp_deltas)
        run_bytes = np.add.reduceat(sizes, run_starts[:-1]).tolist()
        for run, target in enumerate(targets):
            start, end = starts[run], starts[run + 1]
            if run_bytes[run] <= target.room_bytes:
                self.segments.append(_Segment(run, start, end, target))
            else:
                self._roll_over(run, start, end, sizes)

    def _first_timestamp_deltas(self, lengths: Int64s) -> Int64s:
        """The deltas if every run fits into its open batch (or into one new batch)."""
        targets, wall_ms = self._targets, self.rows.wall_ms
        if self._timestamps is None:
            bases = np.array([wall_ms if target.batch is None else target.base_timestamp for target in targets])
            return np.repeat(wall_ms - bases, lengths)
        firsts = self._timestamps[self.rows.run_starts[:-1]]
        bases = np.array([target.base_timestamp for target in targets], dtype=np.int64)
        is_new = np.array([target.batch is None for target in targets], dtype=np.bool_)
        return np.asarray(self._timestamps - np.repeat(np.where(is_new, firsts, bases), lengths), dtype=np.int64)

    def _roll_over(self, run: int, start: int, end: int, sizes: Int64s) -> None:
        """Split the run ``start … end - 1`` into the rest of the open batch and new batches after it."""
        target = self._targets[run]
        least = np.cumsum(self._content[start:end] + _LEAST_OVERHEAD)
        fitting = 0
        if target.batch is not None:
            fitting = int(np.searchsorted(np.cumsum(sizes[start:end]), target.room_bytes, side="right"))
            if fitting:
                self.segments.append(_Segment(run, start, start + fitting, target))
        position = start + fitting
        while position < end:
            done = int(least[position - start - 1]) if position > start else 0
            window_end = start + int(np.searchsorted(least, done + self._new_batch.room_bytes, side="right"))
            window_end = min(max(window_end, position + 1), end)
            taken = self._place_in_new_batch(position, window_end)
            self.segments.append(_Segment(run, position, position + taken, self._new_batch))
            position += taken

    def _place_in_new_batch(self, start: int, window_end: int) -> int:
        """Set the deltas of the rows of a batch that begins at *start*; returns how many rows fit (always at least
        one)."""
        offset_deltas = np.arange(window_end - start, dtype=np.int64)
        self.offset_deltas[start:window_end] = offset_deltas
        if self._timestamps is None:
            self.timestamp_deltas[start:window_end] = 0
        else:
            self.timestamp_deltas[start:window_end] = self._timestamps[start:window_end] - self._timestamps[start]
        sizes = sizes_from_content(
            self._content[start:window_end], offset_deltas, self.timestamp_deltas[start:window_end]
        )
        fitting = int(np.searchsorted(np.cumsum(sizes), self._new_batch.room_bytes, side="right"))
        return max(fitting, 1)

    def timestamp_span(self, segment: _Segment) -> tuple[int, int]:
        """The timestamp of the segment's first row, and the newest one."""
        if self._timestamps is None:
            return self.rows.wall_ms, self.rows.wall_ms
        rows = self._timestamps[segment.start : segment.end]
        return int(rows[0]), int(rows.max())
