"""One Spark task's write: its own producer, opened inside the task and closed whatever happens.

Runs in a Spark Python worker. It returns only when every row it was given is acknowledged, never before its iterator is
exhausted, and raises an error that a person can act on otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK
from kafka_sink.common.errors import KafkaError, RowError
from kafka_sink.producer.column_staging import piece_bytes
from kafka_sink.producer.kafka_producer import KafkaProducer, KnownCluster
from kafka_sink.spark.arrow_columns import in_task, topic_chunks
from kafka_sink.spark.commit_message import TaskCommit
from kafka_sink.spark.delivery_tracker import DeliveryTracker
from kafka_sink.spark.known_clusters import KnownClusters
from kafka_sink.spark.options import KAFKA_PREFIX, SinkOptions
from kafka_sink.spark.row_schema import RowSchema

#: With so many partitions an Arrow batch of Spark's has but a few rows for each.
_MANY_PARTITIONS: Final = 64


class SinkWriteError(KafkaError):
    """A task could not write all of its rows; the text says why, and how many had been acknowledged."""


#: Makes the producer of a task, given its partition and attempt number, and what this process knows of the cluster.
OpenProducer = Callable[[int, int, KnownCluster | None], KafkaProducer]

#: Of this worker process.
known_clusters = KnownClusters(SYSTEM_CLOCK)


def write_task(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    schema: RowSchema,
    open_producer: OpenProducer | None = None,
) -> TaskCommit:
    """Send every row of *batches* and wait for every acknowledgement.

    :param open_producer: called at the first row; by default the producer belongs to no transaction.
    :raises SinkWriteError: something was not acknowledged; Spark retries or fails the task.
    """
    context = TaskContext.get()
    task_partition = context.partitionId() if context is not None else 0
    attempt = context.attemptNumber() if context is not None else 0
    started_ms = SYSTEM_CLOCK.monotonic_ms()
    tracker = DeliveryTracker(SYSTEM_CLOCK)
    rows_in = 0
    producer: KafkaProducer | None = None
    figures: dict[str, float] = {}
    # Until all is acknowledged there is nothing worth waiting for when the producer closes.
    close_timeout_ms = 0
    gathered = _Gathered(batches)
    try:
        for batch in gathered:
            if producer is None:
                known = known_clusters.find(options.producer_properties)
                if open_producer is None:
                    producer = KafkaProducer(
                        task_properties(options, task_partition, attempt),
                        option_prefix=KAFKA_PREFIX,
                        known_cluster=known,
                    )
                else:
                    producer = open_producer(task_partition, attempt, known)
            try:
                _send(producer, batch, options, schema, tracker)
            except RowError as error:
                raise in_task(error, rows_in) from error
            if not rows_in:
                gathered.least_bytes = _bytes_to_gather(producer, options.topic)
            rows_in += batch.num_rows
        if producer is not None:
            producer.flush()
            figures = producer.metrics()
            known_clusters.keep(options.producer_properties, producer.known_cluster())
        _raise_first_error(tracker)
        if tracker.rows_acked != rows_in:
            raise SinkWriteError(f"{rows_in} rows were sent but {tracker.rows_acked} acknowledged; this is a defect")
        close_timeout_ms = FOREVER_MS
    except Exception as error:
        known_clusters.keep(options.producer_properties, None)
        # Spark shows only the outermost exception, so everything a person needs is in this one line.
        what_stays = (
            f"{tracker.rows_acked} of the rows it had sent were acknowledged before this error and stay in the topic"
            if open_producer is None
            else "none of the rows it had sent will ever be visible"
        )
        raise SinkWriteError(
            f"{error} [task of partition {task_partition}, attempt {attempt}: {what_stays}; {type(error).__name__}]"
        ) from error
    finally:
        if producer is not None:
            producer.close(close_timeout_ms)
    return TaskCommit(
        task_partition=task_partition,
        attempt=attempt,
        rows_in=rows_in,
        rows_acked=tracker.rows_acked,
        record_bytes=tracker.record_bytes,
        wire_bytes=int(figures.get("batch-byte-total", 0)),
        batches=int(figures.get("batch-total", 0)),
        elapsed_ms=SYSTEM_CLOCK.monotonic_ms() - started_ms,
        ranges=tracker.ranges,
        ack_ms=dict(tracker.ack_ms),
    )


class _Gathered:
    """*batches* one by one, and joined to *least_bytes* from when that is set on: the rows of each partition in a batch
    are appended by themselves, which pays where they are many."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.least_bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in self._batches:
            waiting.append(batch)
            size += batch.nbytes
            if size >= self.least_bytes:
                # What was joined goes before it is handed over: it would be held twice.
                joined, waiting, size = _joined(waiting), [], 0
                yield from joined
        yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _bytes_to_gather(producer: KafkaProducer, topic: str | None) -> int:
    """As much as the producer takes in one piece where the partitions of *topic* are many."""
    partitions = len(producer.partitions_for(topic)) if topic is not None else 0
    return piece_bytes(partitions) if partitions >= _MANY_PARTITIONS else 0


def _send(
    producer: KafkaProducer, batch: pa.RecordBatch, options: SinkOptions, schema: RowSchema, tracker: DeliveryTracker
) -> None:
    """:raises RowError: a row of *batch* cannot be written."""
    for part in topic_chunks(batch, schema, options.topic):
        try:
            producer.send_columns(part.topic, part.chunk, part.partitions, tracker.handing_over())
        except RowError as error:
            raise part.in_batch(error) from error
        _raise_first_error(tracker)


def task_properties(options: SinkOptions, task_partition: int, attempt: int) -> dict[str, str]:
    """The properties of a task's producer."""
    return {"client.id": f"kafkalite-{task_partition}-{attempt}", **options.producer_properties}


def _raise_first_error(tracker: DeliveryTracker) -> None:
    if tracker.first_error is not None:
        raise tracker.first_error
