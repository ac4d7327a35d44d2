"""The rows of a task, from Spark's Arrow batches to columns for one topic: their formats, their topics, and those that
cannot be written.

Used in a Spark Python worker, on the task's thread, once per batch of up to 10,000 rows. It uses views of the buffers
and never loops over rows. Good rows are not inspected individually: the steps that encode and stage them refuse a batch
as a whole, and only then are its bad rows separated, for an error, dropping, or dead letters (option onBadRow).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from kafka_sink.columns.binary_column import is_utf8
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError, RowError, RowSerializationError
from kafka_sink.formats.column_format import ColumnEncoder, ColumnFormat, SessionSettings, format_of
from kafka_sink.producer.staging.arrow_rows import rows_of
from kafka_sink.spark.internals import setting_of_session
from kafka_sink.spark.versions import SPARK
from kafka_sink.spark.write_spec import FAIL, WriteSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows of a task: those of *batch*. *numbers* are int64[rows], their numbers in the task; None for consecutive
    numbers from *first* on."""

    batch: pa.RecordBatch
    first: int
    numbers: NDArray[np.int64] | None = None

    def number(self, row: int) -> int:
        """The number in the task of *row* of the batch."""
        return self.first + row if self.numbers is None else int(self.numbers[row])

    def without(self, rows: Sequence[int]) -> TaskRows:
        """All rows but *rows*."""
        kept = np.delete(np.arange(self.batch.num_rows), rows)
        return TaskRows(
            self.batch.take(pa.array(kept)),
            self.first,
            self.first + kept if self.numbers is None else self.numbers[kept],
        )


#: A function that takes refused rows, with the error about them.
TakeRefused = Callable[[TaskRows, RowError], None]


class BadRows:
    """Counts the bad rows of one task, of any number of batches.

    :param take: called with refused rows, unless they fail the write.
    """

    def __init__(self, spec: WriteSpec, take: TakeRefused) -> None:
        # Bad rows among placed rows were separated before.
        self._fails = spec.on_bad_row == FAIL or spec.is_placed
        self._limit = spec.max_bad_rows
        self._take = take
        self.count = 0
        #: The text of the first problem.
        self.first = ""

    def accepted(self, rows: TaskRows, step: Callable[[pa.RecordBatch], T]) -> tuple[TaskRows, T]:
        """Those of *rows* that *step* does not refuse, and its result for them; :meth:`refuse` gets the others."""
        while True:
            try:
                return rows, step(rows.batch)
            except RowError as error:
                self.refuse(rows, error)
                rows = rows.without(error.rows)

    def refuse(self, rows: TaskRows, error: RowError) -> None:
        """Handle the bad rows of *error*, whose indices refer to *rows*.

        :raises RowError: with the row's number in the task, if the write fails at a bad row.
        :raises TooManyBadRowsError: if more rows are bad than maxBadRows allows.
        """
        problem = type(error)(rows.number(error.row), f"of this task {error.problem}", error.column)
        if self._fails:
            raise problem from error
        self.note(len(error.rows), str(problem))
        if self._limit is not None:
            self._limit.check_task(self.count, self.first)
        self._take(rows, error)

    def note(self, count: int, first: str) -> None:
        """Count *count* bad rows, the *first* of which has this problem."""
        self.count += count
        self.first = self.first or first


def session_settings(context: TaskContext | None) -> SessionSettings:
    """The settings of the session of the task with this *context*, or Spark's defaults if unset."""
    rebase = "EXCEPTION" if SPARK < (4, 0) else "CORRECTED"
    return SessionSettings(
        setting_of_session(context, "spark.sql.jsonGenerator.ignoreNullFields", "TRUE") != "FALSE",
        setting_of_session(context, "spark.sql.jsonGenerator.writeNullIfWithDefaultValue", "TRUE") != "FALSE",
        setting_of_session(context, "spark.sql.legacy.timeParserPolicy", "CORRECTED"),
        setting_of_session(context, "spark.sql.avro.datetimeRebaseModeInWrite", rebase),
    )


class Payloads:
    """Encodes the columns of *formats*; reuses the encoders for all batches of a task."""

    def __init__(self, formats: Sequence[ColumnFormat]) -> None:
        self._formats = formats
        self._encoders: dict[str, ColumnEncoder] = {}

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """*batch* with bytes in the columns that have a format.

        :raises RowSerializationError: if values do not fit the schema; the text names row, column and value.
        """
        for form in self._formats:
            column = form.column
            index = batch.schema.get_field_index(column)
            rows = batch.column(index)
            if column not in self._encoders:
                with_settings = replace(form, settings=session_settings(TaskContext.get()))
                self._encoders[column] = format_of(form.name).encoder(with_settings, rows.type)
            batch = batch.set_column(index, column, self._encoders[column].encode(rows, form.prefix))
        return batch


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
    unreadable = np.flatnonzero(~is_utf8(names)).tolist()
    if unreadable:
        problem = "has a topic that is not valid UTF-8; correct it"
        raise RowSerializationError.about(unreadable, lambda _: problem, "topic")
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    topics = encoded.dictionary.to_pylist()
    if dead_letter_topic in topics:
        raise ConfigError(
            f"rows of this task have the topic {dead_letter_topic!r}, which is the dead letter topic (option "
            "deadLetterTopic); name another one",
            option="deadLetterTopic",
        )
    if len(topics) == 1:
        return [TopicChunk(topics[0], chunk, partitions)]
    of_topics = [(name, np.flatnonzero(codes == code)) for code, name in enumerate(topics)]
    return [
        TopicChunk(name, chunk.take(rows), None if partitions is None else partitions[rows], rows)
        for name, rows in of_topics
    ]
