"""Chooses the Kafka partition of every row before the rows are grouped by partition (atomic writes), and unpacks the
rows in the tasks that write them.

Runs in Spark Python workers. Rows with a key get the same partition as with Kafka's Java client, and rows without a key
get one by the hash of their value: Spark may run a stage again with its rows in another order, and rows whose partition
depended on the order would be lost or repeated. Bad rows are detected here and shuffled with the good ones, because
only one task may write to a partition of the dead letter topic, and because only the tasks that write report. With any
other onBadRow than fail, the column :data:`~kafka_sink.spark.write_spec.KIND` marks them. The dead letters for a
partition are one row, whose value is an Arrow stream: a column of headers would pass through the JVM for every row. A
dropped row has the text of its problem as its value, or null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.columns.record_columns import BinaryColumn
from kafka_sink.common.errors import ErrorCode, KafkaError, RowError, error_for
from kafka_sink.producer.kafka_producer import ANY_PARTITION
from kafka_sink.producer.plugins.partitioner import key_partitions
from kafka_sink.producer.staging.column_staging import checked_sizes
from kafka_sink.producer.staging.limit_checks import LimitChecks
from kafka_sink.producer.staging.topic_metadata import check_partitions
from kafka_sink.spark.errors import of_task
from kafka_sink.spark.task.dead_letters import PREFIX, DeadLetters
from kafka_sink.spark.task.task_rows import BadRows, Payloads, TaskRows, TopicChunk, topic_chunks
from kafka_sink.spark.write_spec import DEAD_LETTER, FAIL, KIND, WriteSpec


def with_partitions(batches: Iterator[pa.RecordBatch], spec: WriteSpec, now_ms: int) -> Iterator[pa.RecordBatch]:
    """*batches* as payloads, with the partition of every row, and its kind unless the write fails at a bad row.
    Timestamps are compared with *now_ms* (since 1970), the driver's time when the write began.

    :raises SinkWriteError: if a topic does not exist, or a row cannot be written and the write fails then.
    :raises TooManyBadRowsError: if more rows of this task cannot be written than maxBadRows allows.
    """
    placing = _Placing(spec, now_ms)
    try:
        for batch in batches:
            yield from placing.of(batch)
    except KafkaError as error:
        raise of_task(error, str(error), spec.topic) from error


class _Placing:
    """The rows of one task."""

    def __init__(self, spec: WriteSpec, now_ms: int) -> None:
        self._spec = spec
        self._now_ms = now_ms
        self._counts: dict[str, int] = {}
        self._rows_before = 0
        self._payloads = Payloads(spec.formats)
        self._config = spec.producer.here()
        self._limits = LimitChecks(spec.limits, self._config)
        self._bad = BadRows(spec, self._take_refused)
        #: Dead letters with their partitions, or rows to drop, until they are yielded.
        self._refused: list[PlacedRows] = []

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows, payloads = self._bad.accepted(TaskRows(batch, self._rows_before), self._payloads.of)
        self._rows_before += batch.num_rows
        rows, parts = self._bad.accepted(replace(rows, batch=payloads), self._checked_parts)
        placed = np.empty(rows.batch.num_rows, dtype=np.int32)
        for chunk in parts:
            chosen = chunk.partitions
            if chosen is None or (chosen == ANY_PARTITION).any():
                hashed = self._choose(chunk.topic, chunk.chunk.key, chunk.chunk.value)
                chosen = hashed if chosen is None else np.where(chosen == ANY_PARTITION, hashed, chosen)
            placed[slice(None) if chunk.rows is None else chunk.rows] = chosen
        like = rows.batch.schema
        refused, self._refused = self._refused, []
        for part in (PlacedRows(rows.batch, placed), *refused):
            yield part.for_spark(like, with_kind=self._spec.on_bad_row != FAIL)

    def _checked_parts(self, batch: pa.RecordBatch) -> list[TopicChunk]:
        """:raises RowError: if rows cannot be written."""
        parts = topic_chunks(batch, self._spec.topic, self._spec.dead_letter_topic)
        if self._spec.on_bad_row == FAIL:
            # The tasks that write raise the error.
            return parts
        for part in parts:
            try:
                if part.chunk.num_rows:
                    checked_sizes(self._config, part.topic, part.chunk)
                check_partitions(part.topic, part.partitions, self._count(part.topic))
                self._limits.check(part.topic, part.chunk, self._now_ms)
            except RowError as error:
                raise part.in_batch(error) from error
        return parts

    def _take_refused(self, rows: TaskRows, error: RowError) -> None:
        count = len(error.rows)
        if self._spec.on_bad_row == DEAD_LETTER:
            letters = DeadLetters(self._spec).of(rows, error)
            key = BinaryColumn.from_arrow(letters.column("key")) if "key" in letters.schema.names else None
            topic = self._spec.dead_letter_topic or ""
            value = BinaryColumn.from_arrow(letters.column("value"))
            self._refused.append(PlacedRows.letters(topic, letters, self._choose(topic, key, value)))
        else:
            self._refused.append(PlacedRows.dropped(count, self._bad.first))

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            # Imported here, because tasks that take placed rows start faster without it.
            from kafka_sink.spark.task.shared_client import shared_client

            client = shared_client(self._spec.producer)
            count = len(client.run(client.partitions(topic)))
            if not count:
                raise error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist; create it first"
                )
            self._counts[topic] = count
        return self._counts[topic]

    def _choose(self, topic: str, key: BinaryColumn | None, value: BinaryColumn) -> NDArray[np.int32]:
        count = self._count(topic)
        if key is None or self._config.partitioner_ignore_keys:
            return key_partitions(value, count)
        chosen, nulls = key_partitions(key, count), key.null_mask
        if nulls is not None:
            chosen[nulls] = key_partitions(value.take(np.flatnonzero(nulls)), count)
        return chosen


class Kind(IntEnum):
    """The kind of a row."""

    GOOD = 0
    DEAD_LETTERS = 1
    DROPPED = 2


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """*rows* of one *kind*, and the *partitions* (int32[rows]) by which Spark groups them."""

    rows: pa.RecordBatch
    partitions: NDArray[np.int32]
    kind: Kind = Kind.GOOD

    @classmethod
    def letters(cls, topic: str, letters: pa.RecordBatch, partitions: NDArray[np.int32]) -> PlacedRows:
        """Dead *letters* for *partitions* (int32[rows]) of *topic*: one row for each partition."""
        distinct = np.unique(partitions)
        streams = []
        for partition in distinct:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, letters.schema) as stream:
                stream.write_batch(letters.take(pa.array(np.flatnonzero(partitions == partition))))
            streams.append(sink.getvalue().to_pybytes())
        columns = [pa.array(streams, pa.binary()), pa.array([topic] * len(distinct), pa.string())]
        return cls(pa.record_batch(columns, names=["value", "topic"]), distinct, Kind.DEAD_LETTERS)

    @classmethod
    def dropped(cls, count: int, first: str) -> PlacedRows:
        """*count* rows that are dropped, the *first* with the text of its problem."""
        texts = pa.array([first, *[None] * (count - 1)], pa.binary())
        return cls(pa.record_batch([texts], names=["value"]), np.zeros(count, np.int32), Kind.DROPPED)

    def for_spark(self, like: pa.Schema, *, with_kind: bool) -> pa.RecordBatch:
        """The rows with the columns of *like*, as Spark reads them, their partitions and, *with_kind*, their kind."""
        columns = {field.name: _column(self.rows, field) for field in like if field.name != "partition"}
        columns["partition"] = pa.array(self.partitions)
        if with_kind:
            columns[KIND] = pa.array(np.full(self.rows.num_rows, self.kind, np.int8))
        return pa.record_batch(list(columns.values()), names=list(columns))


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """The column of *rows* that *field* names; nulls if there is none. Spark reads and passes bytes with offsets of 32
    bits."""
    wide = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}
    kind = wide.get(field.type, field.type)
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, kind)
    column = rows.column(field.name)
    if column.type == kind:
        return column
    # A shortened text may end within a character.
    return column.cast(pa.binary()).view(kind) if pa.types.is_string(kind) else column.cast(kind)


def take_placed(
    rows: TaskRows, bad: BadRows, send: Callable[[pa.RecordBatch, NDArray[np.int32] | None], None]
) -> tuple[TaskRows, int]:
    """The good rows of *rows*, and the number of rows before bad ones were packed.

    Bad rows are counted in *bad*, and dead letters are passed to *send* with their partitions.
    """
    batch = rows.batch
    kinds = batch.column(KIND).to_numpy()
    rows = replace(rows, batch=batch.drop_columns([KIND]))
    if not kinds.any():
        return rows, batch.num_rows
    contents, partitions = batch.column("value"), batch.column("partition").to_numpy()
    dropped = np.flatnonzero(kinds == Kind.DROPPED)
    if len(dropped):
        texts = contents.take(pa.array(dropped)).cast(pa.binary()).drop_null()
        bad.note(len(dropped), texts[0].as_py().decode() if len(texts) else "")
    dead = np.flatnonzero(kinds == Kind.DEAD_LETTERS)
    sent = 0
    for row in dead:
        stream = contents.slice(row, 1).cast(pa.binary())[0].as_buffer()
        for letters in pa.ipc.open_stream(stream):
            sent += int(letters.num_rows)
            headers = {header["key"]: header["value"] for header in letters.column("headers")[0].as_py()}
            bad.note(letters.num_rows, headers[f"{PREFIX}message"].decode())
            send(letters, np.full(letters.num_rows, partitions[row], np.int32))
    return rows.without(np.flatnonzero(kinds).tolist()), batch.num_rows - len(dead) + sent
