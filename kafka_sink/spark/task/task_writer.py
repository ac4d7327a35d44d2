"""The write of one Spark task, which has a producer for itself: a new one, or that of the last task.

Runs in a Spark Python worker. It returns only when its iterator is exhausted and every row is acknowledged; otherwise
it raises an error with the remedy.

A task that has written all of its rows leaves its producer for the next task of this process, as in Spark's own sink:
connections with their TLS sessions and their authentication, cluster metadata, producer id and sequences, and the
sender thread. The next task with the same properties reuses it. The producer of a task that failed or was interrupted
is not reused, and a forked process begins without producers. A thread closes producers that were unused for
:data:`MOST_IDLE_MS`. No secret is stored outside the producers themselves.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import BatchRefusedError, KafkaError, RowError, RowPartitionError, SinkWriteError
from kafka_sink.common.locks import leaves
from kafka_sink.common.log_context import Said, once
from kafka_sink.common.model import TopicPartition
from kafka_sink.common.threads import at_fork, start_thread
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.kafka_producer import PartlyStagedError
from kafka_sink.producer.staging.column_staging import piece_bytes
from kafka_sink.producer.staging.limit_checks import LimitChecks
from kafka_sink.producer.staging.topic_metadata import check_partitions
from kafka_sink.producer.task_producer import TaskProducer
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.errors import of_task
from kafka_sink.spark.task.dead_letters import DeadLetters
from kafka_sink.spark.task.placing import take_placed
from kafka_sink.spark.task.task_outcome import TaskOutcome, rounded_ms
from kafka_sink.spark.task.task_rows import BadRows, Payloads, TaskRows, TopicChunk, topic_chunks
from kafka_sink.spark.task.worker_process import abandoned_worker
from kafka_sink.spark.write_spec import DEAD_LETTER, FAIL, WriteSpec, advice_on

#: Spark itself ends a worker after one minute without a task.
MOST_IDLE_MS: Final = 30_000

#: Each has a thread, connections and the memory of its batches.
MOST_PRODUCERS: Final = 10

#: A task requests metadata again if they are older, ms. It does not wait for the response, so its first rows may still
#: be distributed over the partitions that were known before.
MOST_AGE_MS: Final = 30_000


class KeptProducers:
    """At most one idle producer for each key, a set of properties with the state of the files that they name, and at
    most :data:`MOST_PRODUCERS` in all: the latest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        at_fork(self, KeptProducers._forked)
        self._forked()

    def _forked(self) -> None:
        # The producers belong to the parent process: they are neither used nor closed here.
        self._changed = threading.Condition()
        self._idle: dict[bytes, tuple[TaskProducer, int]] = {}
        self._taken: TaskProducer | None = None
        self._closer: threading.Thread | None = None

    @leaves("_changed")
    def take(self, key: bytes) -> TaskProducer | None:
        """The producer of the last task with this key; None if there is no usable one."""
        self.give_up()
        with self._changed:
            if key in self._idle:
                # In this order: after an interrupt at any point, the producer is known here and can be closed.
                self._taken = self._idle[key][0]
                del self._idle[key]
        if self._taken is not None and not self._taken.can_go_on(MOST_AGE_MS):
            self.give_up()
        return self._taken

    @leaves("_changed")
    def keep(self, key: bytes, producer: TaskProducer) -> None:
        """Keep the producer of a task that has written all of its rows, under the key with which the task began."""
        producer.rest()
        with self._changed:
            before, _ = self._idle.pop(key, (None, 0))
            if len(self._idle) == MOST_PRODUCERS:
                before, _ = self._idle.pop(next(iter(self._idle)))
            self._idle[key] = (producer, self._clock.monotonic_ms())
            self._taken = None
            if self._closer is None:
                self._closer = start_thread("kafkalite-idle-producers", self._close_idle)
        if before is not None:
            _close(before)

    def give_up(self) -> None:
        """Close the producer that was taken and not returned: its task has failed or was interrupted."""
        if self._taken is not None:
            _close(self._taken)
            self._taken = None

    def _close_idle(self) -> None:
        """The closing thread; it ends when no producers are kept any more."""
        while True:
            with self._changed:
                now_ms = self._clock.monotonic_ms()
                idle = [key for key, (_, since_ms) in self._idle.items() if now_ms - since_ms >= MOST_IDLE_MS]
                closed = [self._idle.pop(key)[0] for key in idle]
                if not self._idle and not closed:
                    self._closer = None
                    return
                if not closed:
                    oldest_ms = min(since_ms for _, since_ms in self._idle.values())
                    self._clock.wait(self._changed, oldest_ms + MOST_IDLE_MS - now_ms)
            for producer in closed:
                _close(producer)


def _close(producer: TaskProducer) -> None:
    try:
        producer.close(timeout=0)
    except Exception:
        _log.exception("could not close an unused producer")


#: From this number of partitions on, one of Spark's Arrow batches has only a few rows per partition.
_MANY_PARTITIONS: Final = 64


_log = logging.getLogger(__name__)

#: Returns the producer of a task: that of the previous task (None: there is none), or a new one.
OpenProducer = Callable[[TaskProducer | None], TaskProducer]

#: Warnings that producers of this worker process have logged about their options; the next producer omits them.
_said: Final = Said()

#: The producers of this worker process.
kept_producers = KeptProducers(SYSTEM_CLOCK)


def write_task(
    batches: Iterator[pa.RecordBatch], spec: WriteSpec, open_producer: OpenProducer | None = None
) -> TaskOutcome:
    """Send every row of *batches* and wait for every acknowledgement.

    :param open_producer: called at the first row; by default the producer is not transactional.
    :raises SinkWriteError: if a row was not acknowledged; Spark retries or fails the task.
    """
    attempt = _TaskAttempt(spec, open_producer)
    try:
        with abandoned_worker.ended_during_task():
            attempt.write(batches)
        outcome = attempt.outcome()
        attempt.keep_producer()
        return outcome
    except BaseException:
        # Also after an interrupt at any point.
        attempt.abandon()
        raise


class _TaskAttempt:
    """One attempt at a task: its producer, once there are rows, and the state of the rows sent so far."""

    def __init__(self, spec: WriteSpec, open_producer: OpenProducer | None) -> None:
        context = TaskContext.get()
        self._task_partition = context.partitionId() if context is not None else 0
        self._number = context.attemptNumber() if context is not None else 0
        self._spec = spec
        self._open_producer = open_producer
        kind = b"plain" if open_producer is None else b"transactional"
        self._producer_key = kind + spec.producer.digest_with_files()
        self._started_ms = SYSTEM_CLOCK.monotonic_ms()
        self._tracker = DeliveryTracker(SYSTEM_CLOCK)
        self._payloads = Payloads(spec.formats)
        self._bad = BadRows(spec, self._take_refused)
        #: The dead letters that were sent, and their acknowledgements.
        self._dead_letter_count = 0
        self._dead_letter_tracker = DeliveryTracker(SYSTEM_CLOCK)
        #: Topics without the partition that a row named.
        self._too_few_partitions: set[str] = set()
        self._rows_in = 0
        self._producer: TaskProducer | None = None
        #: Batches and bytes that the producer had sent before this task.
        self._sent_before = (0, 0)

    @cached_property
    def _limits(self) -> LimitChecks:
        return LimitChecks(self._spec.limits, self._spec.producer.here())

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """:raises SinkWriteError: if a row was not acknowledged."""
        try:
            gathered: Iterable[pa.RecordBatch] = _gathered(batches, self._bytes_to_gather)
            limit = self._spec.max_records_per_second
            for batch in gathered if limit is None else RateLimit(limit, SYSTEM_CLOCK).pieces(gathered):
                self._rows_in += self._send(TaskRows(batch, self._rows_in))
                # Otherwise the rows stay in memory until the next ones are read.
                del batch
            if self._producer is not None:
                self._producer.flush()
            _raise_first_error(self._tracker)
            _raise_first_error(self._dead_letter_tracker)
            if self._dead_letter_tracker.rows_acked != self._dead_letter_count:
                raise SinkWriteError(
                    f"{self._dead_letter_count} dead letters were sent but {self._dead_letter_tracker.rows_acked} "
                    "acknowledged; this is a bug"
                )
            if self._tracker.rows_acked + self._bad.count != self._rows_in:
                raise SinkWriteError(
                    f"{self._rows_in - self._bad.count} rows were sent but {self._tracker.rows_acked} acknowledged; "
                    "this is a bug"
                )
        except Exception as error:
            raise self._explained(error) from error

    def _bytes_to_gather(self) -> int:
        """The number of bytes that the producer accepts in one piece if the topic has many partitions; 0 otherwise."""
        topic = self._spec.topic
        if topic is None or self._producer is None:
            return 0
        partitions = len(self._producer.partitions_for(topic))
        return piece_bytes(partitions) if partitions >= _MANY_PARTITIONS else 0

    def _send(self, rows: TaskRows) -> int:
        """Send *rows*, and return their number, with the bad ones."""
        count = int(rows.batch.num_rows)
        if self._spec.is_placed and self._spec.on_bad_row != FAIL:
            rows, count = take_placed(rows, self._bad, self._send_dead_letters)
        rows, payloads = self._bad.accepted(rows, self._payloads.of)
        rows = replace(rows, batch=payloads)
        spec = self._spec
        chunks = partial(topic_chunks, topic=spec.topic, dead_letter_topic=spec.dead_letter_topic)
        rows, parts = self._bad.accepted(rows, chunks)
        for part in parts:
            self._send_part(rows, part)
        return count

    def _send_part(self, rows: TaskRows, part: TopicChunk) -> None:
        producer = self._open()
        while True:
            try:
                if part.topic in self._too_few_partitions:
                    # The producer would wait for the partition again.
                    check_partitions(part.topic, part.partitions, len(producer.partitions_for(part.topic)))
                self._limits.check(part.topic, part.chunk, SYSTEM_CLOCK.wall_ms())
                _stage(producer, part.topic, part.chunk, part.partitions, self._tracker)
                return
            except RowError as error:
                if isinstance(error, RowPartitionError):
                    self._too_few_partitions.add(part.topic)
                self._bad.refuse(rows, part.in_batch(error))
                part = part.without(error.rows)

    def _take_refused(self, rows: TaskRows, error: RowError) -> None:
        if self._spec.on_bad_row == DEAD_LETTER:
            self._send_dead_letters(DeadLetters(self._spec).of(rows, error), None)

    def _send_dead_letters(self, letters: pa.RecordBatch, partitions: NDArray[np.int32] | None) -> None:
        topic = self._spec.dead_letter_topic or ""
        self._dead_letter_count += letters.num_rows
        try:
            _stage(self._open(), topic, letters, partitions, self._dead_letter_tracker)
        except RowError as error:
            raise SinkWriteError(f"a dead letter cannot be written to {topic}: it {error.problem}") from error

    def _open(self) -> TaskProducer:
        if self._producer is not None:
            return self._producer
        with once(_said):
            idle = kept_producers.take(self._producer_key)
            if self._open_producer is not None:
                self._producer = self._open_producer(idle)
            else:
                self._producer = idle or TaskProducer(task_config(self._spec), self._spec.producer.plugin_options)
        self._sent_before = self._producer.batch_totals()
        is_compressed = self._spec.producer.here().compression_type != "none"
        for topic, limits in self._spec.limits.items():
            # The producer learns from the brokers' responses how large a compressed batch may be before compression.
            if limits.max_message_bytes is not None and not is_compressed:
                self._producer.limit_batches(topic, limits.max_message_bytes)
        return self._producer

    def _explained(self, error: Exception) -> SinkWriteError:
        """*error* with the task and the rows that stay, in one text: Spark shows only the outermost exception."""
        what_stays = (
            f"{self._tracker.rows_acked} rows were acknowledged before this error and stay in the topic"
            if self._open_producer is None
            else "none of its rows becomes visible"
        )
        task = f"task of partition {self._task_partition}, attempt {self._number}"
        reason = f"{str(error) or 'out of memory'}{advice_on(error)}"
        trackers = (self._tracker, self._dead_letter_tracker)
        partition = next((tracker.first_error_in for tracker in trackers if tracker.first_error is error), None)
        return of_task(
            error,
            f"{reason} [{task}: {what_stays}; {type(error).__name__}]",
            self._spec.topic if partition is None else partition.topic,
            None if partition is None else partition.partition,
        )

    def outcome(self) -> TaskOutcome:
        """The outcome for the driver."""
        batches, wire_bytes = (0, 0) if self._producer is None else self._producer.batch_totals()
        batches_before, bytes_before = self._sent_before
        return TaskOutcome(
            task_partition=self._task_partition,
            rows_in=self._rows_in,
            rows_acked=self._tracker.rows_acked,
            record_bytes=self._tracker.record_bytes,
            wire_bytes=wire_bytes - bytes_before,
            batches=batches - batches_before,
            elapsed_ms=SYSTEM_CLOCK.monotonic_ms() - self._started_ms,
            bad_rows=self._bad.count,
            first_bad_row=self._bad.first,
            ranges={**self._tracker.ranges, **self._dead_letter_tracker.ranges},
            ack_ms=dict(self._tracker.ack_ms),
        )

    def keep_producer(self) -> None:
        """Keep the producer for the next task. All rows are acknowledged, so an error here must not fail the task."""
        if self._producer is None:
            return
        try:
            kept_producers.keep(self._producer_key, self._producer)
        except Exception:
            _log.exception("could not keep the producer of a task for the next one")
            self.abandon()

    def abandon(self) -> None:
        """Close the producer without waiting, because the attempt has failed."""
        kept_producers.give_up()
        if self._producer is not None:
            self._producer.abandon()


def _gathered(batches: Iterator[pa.RecordBatch], least_bytes: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """The first of *batches*, and the others joined up to *least_bytes*, which is called after the first. The rows of
    each partition in a batch are appended together, which is more efficient with many rows per partition."""
    yield from itertools.islice(batches, 1)
    least: int | None = None
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        least = least_bytes() if least is None else least
        waiting.append(batch)
        size += batch.nbytes
        if size >= least:
            # Release the single batches before the joined one is yielded, so that the rows are not in memory twice.
            joined, waiting, size = _joined(waiting), [], 0
            yield from joined
            del joined
    yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _stage(
    producer: TaskProducer,
    topic: str,
    rows: pa.RecordBatch | ColumnChunk,
    partitions: NDArray[np.int32] | None,
    tracker: DeliveryTracker,
) -> None:
    """:raises RowError: if some of *rows* cannot be written; none of them is staged."""
    try:
        producer.send_columns(topic, rows, partitions, on_delivery=tracker.handing_over())
    except PartlyStagedError as error:
        # A task attempt writes all of its rows or fails, so a part cannot be handled separately.
        raise (error.__cause__ or error) from None
    except KafkaError as error:
        error.topic = topic
        raise
    _raise_first_error(tracker)


def task_config(spec: WriteSpec) -> ProducerConfig:
    """The configuration of a task's producer. The client id is that of the process, because the next task reuses the
    connections."""
    config = spec.producer.here()
    return config if config.client_id else replace(config, client_id=f"kafkalite-{os.getpid()}")


def _raise_first_error(tracker: DeliveryTracker) -> None:
    if tracker.first_error is not None:
        raise tracker.first_error


class DeliveryTracker:
    """The rows and offsets acknowledged so far, the acknowledgement times, and the first error.

    The sender thread updates it once per batch, and the task's thread reads it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.rows_acked = 0
        self.record_bytes = 0
        self.first_error: Exception | None = None
        self.first_error_in: TopicPartition | None = None
        self.ranges: dict[TopicPartition, PartitionRange] = {}
        self.ack_ms: Counter[int] = Counter()

    def handing_over(self) -> Callable[[Delivery], None]:
        """The delivery callback for the rows that are passed to the producer now."""
        return partial(self._delivered, self._clock.monotonic_ms())

    def _delivered(self, since_ms: int, delivery: Delivery) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if delivery.error is not None:
                if self.first_error is None:
                    # The refused record may be in other rows of the batch.
                    error = delivery.error
                    self.first_error = error.reason if isinstance(error, BatchRefusedError) else error
                    self.first_error_in = delivery.topic_partition
                return
            self.rows_acked += delivery.count
            self.ack_ms[rounded_ms(now_ms - since_ms)] += delivery.count
            self.record_bytes += delivery.size_bytes
            last = delivery.base_offset if delivery.base_offset < 0 else delivery.base_offset + delivery.count - 1
            part = PartitionRange(delivery.count, delivery.base_offset, last)
            before = self.ranges.get(delivery.topic_partition)
            self.ranges[delivery.topic_partition] = part if before is None else before.merge(part)


_PIECES_PER_S: Final = 10


class RateLimit:
    """Limits the rate to *records_per_s* records per second; one piece more may be sent at once."""

    def __init__(self, records_per_s: int, clock: Clock) -> None:
        self._records_per_s = records_per_s
        self._clock = clock
        self._piece_rows = max(records_per_s // _PIECES_PER_S, 1)
        #: It is never notified: a wait ends by time, or by an interrupt.
        self._condition = threading.Condition()
        self._due_ms = float(clock.monotonic_ms())

    def pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of *batches* in their order, each piece when it is due; the pieces are views."""
        for batch in batches:
            for start in range(0, batch.num_rows, self._piece_rows):
                piece = batch.slice(start, self._piece_rows)
                with self._condition:
                    while (now_ms := self._clock.monotonic_ms()) < self._due_ms:
                        # Rounded up, because a wait of 0 ms would not end the loop.
                        self._clock.wait(self._condition, math.ceil(self._due_ms - now_ms))
                self._due_ms = max(self._due_ms, float(now_ms))
                self._due_ms += piece.num_rows * 1000 / self._records_per_s
                yield piece
