"""What becomes of the rows of a task that cannot be written: an error, nothing, or a dead letter (option onBadRow).

Used in a Spark Python worker, on the task's thread. Rows that can be written are not looked at: the steps that encode
and stage them refuse a batch as a whole, and only then are its rows sorted out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.common.errors import RowError
from kafka_sink.spark.write_spec import WriteSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows of a task: those of *batch*. *numbers* are int64[rows], their numbers in the task; None if they are those
    from *first* on."""

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


#: Takes rows that are refused, with the error about them.
TakeRefused = Callable[[TaskRows, RowError], None]


class BadRows:
    """Counts the bad rows of one task, of any number of batches.

    :param take: called with rows that are refused, unless the write fails then.
    """

    def __init__(self, spec: WriteSpec, take: TakeRefused) -> None:
        self._fails = spec.fails_at_bad_row
        self._limit = spec.max_bad_rows
        self._take = take
        self.count = 0
        #: The text of the first problem.
        self.first = ""

    def accepted(self, rows: TaskRows, step: Callable[[pa.RecordBatch], T]) -> tuple[TaskRows, T]:
        """Those of *rows* that *step* does not refuse, and what it returns for them.

        :raises RowError: as for :meth:`refuse`.
        """
        while True:
            try:
                return rows, step(rows.batch)
            except RowError as error:
                self.refuse(rows, error)
                rows = rows.without(error.rows)

    def refuse(self, rows: TaskRows, error: RowError) -> None:
        """Take out the rows that *error* is about, whose indices are those in *rows*.

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
