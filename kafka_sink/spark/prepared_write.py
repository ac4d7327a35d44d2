"""What a write consists of once its options are checked: each value has only what its readers need.

Made on the driver (:mod:`kafka_sink.spark.driver.before_write`). The values are plain, because Spark pickles them to
the tasks, and have nothing of the schema registry, which only the driver asks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from kafka_sink.common.config import read_one
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.topic_limits import TopicLimits
from kafka_sink.spark.address_space import require_address_space
from kafka_sink.spark.errors import TooManyBadRowsError
from kafka_sink.spark.one_version import OfOneVersion

#: Precedes the names of Kafka's options.
KAFKA_PREFIX: Final = "kafka."

#: What becomes of rows that cannot be written (option onBadRow).
FAIL: Final = "fail"
DROP: Final = "drop"
DEAD_LETTER: Final = "dead-letter"

_LIMIT: Final = re.compile(r"(?P<rows>[0-9]+)|(?P<percent>[0-9]+(?:\.[0-9]+)?) ?%")


@dataclass(frozen=True, slots=True)
class BadRowLimit:
    """The option maxBadRows: a number of rows, or a share of all rows; *text* is what the user wrote. It is checked in
    each task as far as its own rows tell, and on the driver for all tasks together."""

    text: str
    rows: int | None
    share: Fraction

    @classmethod
    def parse(cls, value: object) -> BadRowLimit:
        """:raises ValueError: if *value* is neither a number of rows nor a share in percent."""
        text = str(value).strip()
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise ValueError(text)
        if match["rows"] is not None:
            return cls(text, int(match["rows"]), Fraction(0))
        share = Fraction(match["percent"]) / 100
        if share > 1:
            raise ValueError(text)
        return cls(text, None, share)

    def check_task(self, bad_rows: int, first: str) -> None:
        """Check what one task has found so far, *bad_rows* bad rows, the *first* of which has this problem.

        :raises TooManyBadRowsError: if these are too many already, whatever follows.
        """
        if self.rows is not None and bad_rows > self.rows:
            raise self._error(f"{bad_rows} rows of one task", first)

    def check(self, bad_rows: int, rows: int, first: str) -> None:
        """Check a whole write of *rows* rows.

        :raises TooManyBadRowsError: if too many of them are bad.
        """
        most = self.share * rows if self.rows is None else self.rows
        if bad_rows > most:
            raise self._error(f"{bad_rows} of {rows} rows ({bad_rows / rows:.2%})", first)

    def _error(self, rows: str, first: str) -> TooManyBadRowsError:
        return TooManyBadRowsError(
            f"{rows} cannot be written, more than option maxBadRows={self.text} allows; the first: {first}; correct "
            "the rows, or raise maxBadRows"
        )


@dataclass(frozen=True)
class RowRules:
    """The *topic* of all rows (None: a column names it), the *formats* of their columns, and what becomes of those that
    cannot be written. *limits* are those of the topics whose settings are known.

    *is_placed*: the rows have passed the tasks that place them. They are payloads with their partitions, and the bad
    ones are sorted out.
    """

    topic: str | None
    formats: tuple[ColumnFormat, ...]
    on_bad_row: str
    dead_letter_topic: str | None
    max_bad_rows: BadRowLimit | None
    limits: Mapping[str, TopicLimits] = field(default_factory=dict)
    is_placed: bool = False

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that rows go to; None if rows name their topics."""
        if self.topic is None:
            return None
        return frozenset({self.topic} if self.dead_letter_topic is None else {self.topic, self.dead_letter_topic})

    def placed(self) -> RowRules:
        """For the tasks that get the rows after they were placed."""
        limits = self.limits
        if self.on_bad_row != FAIL:
            # The rows were checked: a timestamp at the limit must not fail the write because time has passed.
            limits = {topic: replace(each, before=None, after=None) for topic, each in limits.items()}
        return replace(self, formats=(), on_bad_row=FAIL, limits=limits, is_placed=True)


@dataclass(frozen=True)
class ExactlyOnce:
    """A delivery that is committed once: the sink's *name*, and the topic under whose name its progress is stored.

    *version* is the number of a batch write; None for a stream, whose batches Spark numbers. With *two_phase* the
    transactions of tasks never time out (transaction.two.phase.commit.enable). *timeout* is transaction.timeout.ms as
    the user has set it; None for the longest that the brokers allow.
    """

    name: str
    progress_topic: str
    version: int | None
    two_phase: bool
    timeout: str | None

    @property
    def timeout_ms(self) -> int | None:
        """The time-out of a transaction, read where it is used, because it may be a reference."""
        if self.timeout is None:
            return None
        read: int = read_one(ProducerConfig, "transaction.timeout.ms", {"transaction.timeout.ms": self.timeout})
        return read


@dataclass(frozen=True)
class TaskOptions(OfOneVersion):
    """What a task needs: *rows*, and the options with the names of the other fields (:class:`SinkOptions`).
    *producer_properties* have Kafka's names without the ``kafka.`` prefix."""

    rows: RowRules
    exactly_once: ExactlyOnce | None
    max_records_per_second: int | None
    tune_python_workers: bool
    producer_properties: Mapping[str, str] = field(repr=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """:raises SinkWriteError: in a task whose address space is too small; later an import would fail."""
        require_address_space(state["producer_properties"])
        super().__setstate__(state)


@dataclass(frozen=True)
class Reporting:
    """Where the driver reports the write: in the file *path*, and as lineage of the *job*, to the Kafka that has the
    first of *bootstrap_servers*, with the names and types of the *columns*."""

    path: str | None
    job: str
    bootstrap_servers: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PreparedWrite:
    """A write whose tasks can begin.

    *numbers_of_a_query* and *checkpoint_location* (None if it is only in Spark's configuration) are for streams.
    """

    task: TaskOptions
    reporting: Reporting
    numbers_of_a_query: BatchNumbering
    checkpoint_location: str | None

    @property
    def exactly_once(self) -> ExactlyOnce | None:
        """None: at least once."""
        return self.task.exactly_once
