"""Appends whole columns: plans the place of each row of a chunk first, then encodes all rows at once.

Runs on the calling thread, with the same queues, pool and batches as single records. The encoding of a row depends on
its place in its batch (offset delta, timestamp delta), so the plan reads the open batches. If open batches were drained
meanwhile, the rows of all their partitions are planned and encoded again together. This module never loops over rows,
and never holds a lock while it encodes or waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafka_sink.common.clock import Clock
from kafka_sink.common.locks import release_left
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.accumulator import PartitionQueue, RecordAccumulator
from kafka_sink.producer.batching.buffer_pool import Memory
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.futures import DeliveryCallback
from kafka_sink.records.columns import ColumnChunk
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.vectorized import content_sizes, encode_records, sizes_from_content

Int64s = NDArray[np.int64]

#: How often rows may be planned into open batches. Such a plan may be outdated again and again while the sender drains
#: and other threads append. The plan after these only opens new batches, so it cannot be outdated.
_ROUNDS_WITH_OPEN_BATCHES = 3

#: A lower bound of what length, attributes and two deltas add to the content of a record, in bytes.
_LEAST_OVERHEAD = 3


@dataclass(frozen=True, slots=True)
class _Segment:
    """Rows ``start … end - 1`` of the chunk, which go into one batch: *continued*, or a new batch if that is None."""

    run: int
    queue: PartitionQueue
    start: int
    end: int
    continued: ProducerBatch | None
    records_before: int


class AppendedRows:
    """Which rows of a chunk have been appended, for the caller of an append that fails part way."""

    def __init__(self, rows: int) -> None:
        #: bool[rows], in the order in which the rows were passed.
        self.is_appended = np.zeros(rows, dtype=np.bool_)
        # The positions, in the chunk that was passed, of the rows of the chunk that is planned again.
        self._places: Int64s | None = None

    def add(self, start: int, end: int) -> None:
        """Mark rows ``start … end - 1`` of the chunk that is being appended as appended."""
        if self._places is None:
            self.is_appended[start:end] = True
        else:
            self.is_appended[self._places[start:end]] = True

    def go_on_with(self, rows: Int64s) -> None:
        """Continue with only *rows* of the chunk that was being appended."""
        self._places = rows if self._places is None else self._places[rows]


class ColumnAppender:
    """Appends :class:`ColumnChunk`\\ s to an accumulator."""

    def __init__(self, accumulator: RecordAccumulator, clock: Clock) -> None:
        self._accumulator = accumulator
        self._clock = clock

    def append(
        self,
        topic: str,
        chunk: ColumnChunk,
        run_partitions: NDArray[np.int32],
        run_starts: Int64s,
        wall_ms: int,
        callback: DeliveryCallback | None,
        max_block_ms: int,
        appended: AppendedRows,
    ) -> bool:
        """Append *chunk*, whose rows are grouped by partition: run ``i`` is the rows ``run_starts[i]`` to
        ``run_starts[i+1] - 1``, of partition ``run_partitions[i]``. Rows without a timestamp get *wall_ms*. *callback*
        is called once per batch that received rows. Returns True when a batch became ready to be sent. After an error
        *appended* holds the rows that were appended nevertheless.

        :raises BufferExhaustedError: if no memory is available within *max_block_ms* (counted for the whole chunk).
        :raises KafkaError: if the producer was closed meanwhile, or needs a transaction and none is open.
        """
        deadline = self._clock.monotonic_ms() + max_block_ms
        return self._accumulator.appending(
            self._append, topic, chunk, run_partitions, run_starts, wall_ms, callback, deadline, appended
        )

    def _append(
        self,
        topic: str,
        chunk: ColumnChunk,
        run_partitions: NDArray[np.int32],
        run_starts: Int64s,
        wall_ms: int,
        callback: DeliveryCallback | None,
        deadline: int,
        appended: AppendedRows,
    ) -> bool:
        wake = False
        self._accumulator.check_may_append()
        for continue_open in (True,) * _ROUNDS_WITH_OPEN_BATCHES + (False,):
            self._accumulator.check_open()
            plan = _Plan(self._accumulator, topic, chunk, run_partitions, run_starts, wall_ms, continue_open)
            missed, ready = self._carry_out(plan, callback, deadline, appended)
            wake |= ready
            if not missed:
                break
            rows, run_starts_left = _rows_of(run_starts, missed)
            appended.go_on_with(rows)
            chunk, run_partitions, run_starts = chunk.take(rows), run_partitions[missed], run_starts_left
        return wake

    def _carry_out(
        self, plan: _Plan, callback: DeliveryCallback | None, deadline: int, appended: AppendedRows
    ) -> tuple[list[int], bool]:
        """Append the rows as *plan* says: (runs whose open batch has changed since, whether a batch can be sent).

        No row of such a run is appended, so its rows stay in order when they are planned again.
        """
        encoded = encode_records(plan.chunk, plan.offset_deltas, plan.timestamp_deltas)
        bounds = encoded.offsets
        missed: list[int] = []
        ready = False
        for segment in plan.segments:
            if missed and missed[-1] == segment.run:
                continue
            records = encoded.data[int(bounds[segment.start]) : int(bounds[segment.end])]
            first, newest = plan.timestamp_span(segment)
            if segment.continued is None:
                left = max(deadline - self._clock.monotonic_ms(), 0)
                self._open_batch(segment, records, first, newest, callback, left)
                ready = True
            elif self._continue_batch(segment, segment.continued, records, first, newest, callback):
                ready |= segment.continued.is_full
            else:
                missed.append(segment.run)
                continue
            appended.add(segment.start, segment.end)
        return missed, ready

    def _continue_batch(
        self,
        segment: _Segment,
        batch: ProducerBatch,
        records: memoryview,
        first: int,
        newest: int,
        callback: DeliveryCallback | None,
    ) -> bool:
        """Append to the batch that was open at the time of the plan; False when it has changed since."""
        queue = segment.queue
        try:
            with queue.lock:
                self._accumulator.check_open()
                if not queue.batches or queue.batches[-1] is not batch or batch.record_count != segment.records_before:
                    return False
                count = segment.end - segment.start
                if batch.append_encoded(records, count, first, newest, callback):
                    return True
                # There is no memory to let the batch grow: the rows wait for memory for a batch that holds only them.
                batch.close_for_appends()
                return False
        except BaseException:
            release_left(queue.lock)
            raise

    def _open_batch(
        self,
        segment: _Segment,
        records: memoryview,
        first: int,
        newest: int,
        callback: DeliveryCallback | None,
        max_block_ms: int,
    ) -> None:
        accumulator, queue = self._accumulator, segment.queue
        memory = Memory()
        opened: list[ProducerBatch] = []
        try:
            accumulator.allocate(memory, HEADER_BYTES + len(records), max_block_ms)
            with queue.lock:
                accumulator.check_open()
                if queue.batches:
                    queue.batches[-1].close_for_appends()
                batch = accumulator.new_batch(queue.topic_partition, memory)
                opened.append(batch)
                batch.append_encoded(records, segment.end - segment.start, first, newest, callback)
                accumulator.add_batch(queue, batch)
        except BaseException:
            accumulator.give_up(queue, memory, opened)
            raise


class _Plan:
    """Assigns every row of a chunk to a batch, with its offset delta and its timestamp delta."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        topic: str,
        chunk: ColumnChunk,
        run_partitions: NDArray[np.int32],
        run_starts: Int64s,
        wall_ms: int,
        continue_open: bool,
    ) -> None:
        self.chunk = chunk
        self._accumulator = accumulator
        self._timestamps = chunk.timestamps
        self._wall_ms = wall_ms
        self._content = content_sizes(chunk)
        self.segments: list[_Segment] = []
        queues = [accumulator.queue(TopicPartition(topic, int(partition))) for partition in run_partitions]
        room = accumulator.batch_room_bytes
        open_batches = [_open_batch_of(queue, room) if continue_open else (None, 0, 0, room) for queue in queues]
        lengths = np.diff(run_starts)
        counts = np.array([before for _, before, _, _ in open_batches], dtype=np.int64)
        self.offset_deltas: Int64s = np.arange(len(self._content), dtype=np.int64)
        self.offset_deltas -= np.repeat(run_starts[:-1] - counts, lengths)
        self.timestamp_deltas = self._first_timestamp_deltas(run_starts, open_batches, lengths)
        sizes = sizes_from_content(self._content, self.offset_deltas, self.timestamp_deltas)
        run_bytes = np.add.reduceat(sizes, run_starts[:-1]).tolist()
        starts: list[int] = run_starts.tolist()
        for run, queue in enumerate(queues):
            batch, before, _, room = open_batches[run]
            if run_bytes[run] <= room:
                self.segments.append(_Segment(run, queue, starts[run], starts[run + 1], batch, before))
            else:
                self._roll_over(run, queue, starts[run], starts[run + 1], batch, before, room, sizes)

    def _first_timestamp_deltas(
        self, run_starts: Int64s, open_batches: list[tuple[ProducerBatch | None, int, int, int]], lengths: Int64s
    ) -> Int64s:
        """The deltas if every run fits into its open batch (or into one new batch)."""
        if self._timestamps is None:
            bases = np.array([self._wall_ms if batch is None else base for batch, _, base, _ in open_batches])
            return np.repeat(self._wall_ms - bases, lengths)
        firsts = self._timestamps[run_starts[:-1]]
        bases = np.array([base for _, _, base, _ in open_batches], dtype=np.int64)
        is_new = np.array([batch is None for batch, _, _, _ in open_batches], dtype=np.bool_)
        return np.asarray(self._timestamps - np.repeat(np.where(is_new, firsts, bases), lengths), dtype=np.int64)

    def _roll_over(
        self,
        run: int,
        queue: PartitionQueue,
        start: int,
        end: int,
        batch: ProducerBatch | None,
        before: int,
        room: int,
        sizes: Int64s,
    ) -> None:
        """Split the run ``start … end - 1`` into the rest of the open batch and new batches behind it."""
        least = np.cumsum(self._content[start:end] + _LEAST_OVERHEAD)
        if batch is not None:
            fitting = int(np.searchsorted(np.cumsum(sizes[start:end]), room, side="right"))
            if fitting:
                self.segments.append(_Segment(run, queue, start, start + fitting, batch, before))
        else:
            fitting = 0
        position = start + fitting
        while position < end:
            done = int(least[position - start - 1]) if position > start else 0
            window_end = start + int(np.searchsorted(least, done + self._accumulator.batch_room_bytes, side="right"))
            window_end = min(max(window_end, position + 1), end)
            taken = self._place_in_new_batch(position, window_end)
            self.segments.append(_Segment(run, queue, position, position + taken, None, 0))
            position += taken

    def _place_in_new_batch(self, start: int, window_end: int) -> int:
        """Set the deltas of the rows of a batch that begins at *start*; returns how many rows fit (always at least
        one).
        """
        offset_deltas = np.arange(window_end - start, dtype=np.int64)
        self.offset_deltas[start:window_end] = offset_deltas
        if self._timestamps is None:
            self.timestamp_deltas[start:window_end] = 0
        else:
            self.timestamp_deltas[start:window_end] = self._timestamps[start:window_end] - self._timestamps[start]
        sizes = sizes_from_content(
            self._content[start:window_end], offset_deltas, self.timestamp_deltas[start:window_end]
        )
        fitting = int(np.searchsorted(np.cumsum(sizes), self._accumulator.batch_room_bytes, side="right"))
        return max(fitting, 1)

    def timestamp_span(self, segment: _Segment) -> tuple[int, int]:
        """The timestamp of the segment's first row, and the newest one."""
        if self._timestamps is None:
            return self._wall_ms, self._wall_ms
        rows = self._timestamps[segment.start : segment.end]
        return int(rows[0]), int(rows.max())


def _open_batch_of(queue: PartitionQueue, new_batch_room: int) -> tuple[ProducerBatch | None, int, int, int]:
    """(open batch or None for a new one, its record count, its base timestamp, bytes of records that fit)."""
    try:
        with queue.lock:
            if queue.batches:
                last = queue.batches[-1]
                if last.room_bytes > 0:
                    return last, last.record_count, last.base_timestamp, last.room_bytes
    except BaseException:
        release_left(queue.lock)
        raise
    return None, 0, 0, new_batch_room


def _rows_of(run_starts: Int64s, runs: list[int]) -> tuple[Int64s, Int64s]:
    """(the rows of *runs* alone, where each run starts among them)."""
    lengths = np.diff(run_starts)[runs]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    return np.arange(starts[-1]) + np.repeat(run_starts[runs] - starts[:-1], lengths), starts
