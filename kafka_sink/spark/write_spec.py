"""The values of a write: made once on the driver, and passed to the planner, the tasks and the committer.

Its options are parsed by :mod:`kafka_sink.spark.options`, and :mod:`kafka_sink.spark.driver.before_write` adds what it
finds out. It has nothing of the schema registry, which only the driver asks.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, Final, Self

from kafka_sink.common import config as c
from kafka_sink.common.errors import SinkWriteError, TooManyBadRowsError
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.producer.topic_limits import TopicLimits
from kafka_sink.spark.errors import told
from kafka_sink.spark.producer_spec import ProducerSpec
from kafka_sink.spark.versions import OfOneVersion

#: The treatment of rows that cannot be written (option onBadRow).
FAIL: Final = "fail"
DROP: Final = "drop"
DEAD_LETTER: Final = "dead-letter"

#: The column (int8) with the kind of each row that was placed (:mod:`kafka_sink.spark.task.placing`).
KIND: Final = "kind"

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
            "the rows, or raise maxBadRows",
            option="maxBadRows",
            is_permanent=True,
        )


# --- the address space of a worker ------------------------------------------------------------------------------------

# Each worker may have spark.executor.pyspark.memory divided by spark.executor.cores (RLIMIT_AS). Address space is more
# than memory: libraries are mapped whole, threads reserve their stacks. Without the check an import or numpy fails in
# one of many places.

LIMIT: Final = "spark.executor.pyspark.memory"

#: Beside buffer.memory, MiB: without the first no write succeeds; with the second all do. Between them it depends on
#: what the allocators of pyarrow and of the C library reserve, which is not less the smaller the limit is.
NEEDED_MIB: Final = 320
ADVISED_MIB: Final = 608

_MIB: Final = 1 << 20


def buffer_mib(producer: ProducerSpec) -> int:
    """``buffer.memory``, rounded up to MiB."""
    return ceil(producer.here().buffer_memory_bytes / _MIB)


def _limit_mib() -> int | None:
    """The limit of this process; None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft // _MIB


def require_address_space(producer: ProducerSpec) -> None:
    """:raises SinkWriteError: if this worker cannot have the address space that a write needs."""
    limit = _limit_mib()
    if limit is None:
        return
    buffer = buffer_mib(producer)
    if limit < NEEDED_MIB + buffer:
        text = (
            f"this Python worker may have {limit} MiB of address space, and a write needs {NEEDED_MIB + buffer} MiB at "
            f"least; set {LIMIT}, which is divided by spark.executor.cores, to {ADVISED_MIB + buffer}m for each core, "
            "or not at all"
        )
        raise told(SinkWriteError(text, option=LIMIT, is_permanent=True))


def advice_on(error: BaseException) -> str:
    """The remedy for *error* if it comes from the limit of this process's address space; otherwise empty."""
    limit = _limit_mib()
    if limit is None or not (isinstance(error, MemoryError) or "can't start new thread" in str(error)):
        return ""
    return f" (this Python worker may have {limit} MiB of address space: raise {LIMIT} or lower kafka.buffer.memory)"


# --- the write --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactlyOnce:
    """A delivery that is committed once: the sink's *name*, and the topic under whose name its progress is stored.

    *version* is the number of a batch write; None for a stream, whose batches Spark numbers. With *two_phase* the
    transactions of tasks never time out (transaction.two.phase.commit.enable).
    """

    name: str
    progress_topic: str
    version: int | None
    two_phase: bool


#: Headings of docs/options.md.
TOPIC_AND_ROWS: Final = "Topic and rows"
FORMATS_AND_SCHEMAS: Final = "Formats and schemas"
BAD_ROWS: Final = "Rows that cannot be written"
EXACTLY_ONCE_OPTIONS: Final = "Exactly once"

_A_LIMIT = c.ConfigType("a number of rows (100) or a share of them (1%)", BadRowLimit.parse)


@dataclass(frozen=True)
class WriteSpec(OfOneVersion, c.Options):
    """A write: the options that tasks or the committer read, and what the driver makes of the others.

    *formats* are those of the columns that have one, *limits* those of the topics whose settings are known.
    *exactly_once*: None for at least once. *checkpoint_location* is the stream's, if it is set as an option and not in
    Spark's configuration. *columns* are the names and types of the columns, if lineage needs them. *is_placed*: the
    rows have passed the tasks that choose their partitions; they are payloads, and the bad ones are sorted out.
    """

    is_shared = True

    topic: str | None = c.STRING(
        None,
        "topic of all rows; takes precedence over a topic column",
        c.Validator("a name", bool),
        group=TOPIC_AND_ROWS,
    )
    max_records_per_second: int | None = c.INT(
        None,
        "limit for each task: N tasks that run at the same time write up to N times this number; for "
        "exactly once, a batch must still end within kafka.transaction.timeout.ms",
        c.between(1, 2**31 - 1),
        name="maxRecordsPerSecond",
        group=TOPIC_AND_ROWS,
    )
    report_path: str | None = c.STRING(
        None,
        "file on the driver to which each write appends one JSON line when it is committed or has failed",
        name="reportPath",
        group=TOPIC_AND_ROWS,
    )
    tune_python_workers: bool = c.BOOLEAN(
        True,
        "Spark's Python processes answer the JVM at once and do not run the garbage collector over imported modules "
        "after every task; false leaves them as Spark has set them up",
        name="tunePythonWorkers",
        group=TOPIC_AND_ROWS,
    )
    on_bad_row: str = c.STRING(
        None,
        "handling of a row that cannot be written: fail = the write fails; drop = the sink discards the row; "
        "dead-letter = the sink writes it to deadLetterTopic; default: fail, or dead-letter if deadLetterTopic is set",
        c.one_of(FAIL, DROP, DEAD_LETTER),
        name="onBadRow",
        group=BAD_ROWS,
    )
    dead_letter_topic: str | None = c.STRING(
        None,
        "topic of the rows that cannot be written, with the reason in headers; with exactly once they are in the same "
        "transaction as the other rows of the batch",
        c.Validator("a name", bool),
        name="deadLetterTopic",
        group=BAD_ROWS,
    )
    max_bad_rows: BadRowLimit | None = _A_LIMIT(  # noqa: RUF009
        None,
        "with onBadRow=drop or dead-letter: a write, or a micro-batch, with more bad rows than this number or share "
        "of its rows (100, 1%) fails; default: no limit",
        name="maxBadRows",
        group=BAD_ROWS,
    )
    allow_missing_progress: bool = c.BOOLEAN(
        False,
        "for exactly-once micro-batches: continue if a batch other than the first finds no progress, for example "
        "when an existing query becomes exactly-once",
        name="allowMissingProgress",
        group=EXACTLY_ONCE_OPTIONS,
    )
    producer: ProducerSpec = field(kw_only=True)
    exactly_once: ExactlyOnce | None = field(default=None, kw_only=True)
    checkpoint_location: str | None = field(default=None, kw_only=True)
    formats: tuple[ColumnFormat, ...] = field(default=(), kw_only=True)
    limits: Mapping[str, TopicLimits] = field(default_factory=dict, kw_only=True)
    columns: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    is_placed: bool = field(default=False, kw_only=True)

    def settle(self, explicit: Collection[str]) -> Self:
        """A topic for dead letters means that they are wanted."""
        default = FAIL if self.dead_letter_topic is None else DEAD_LETTER
        return replace(self, on_bad_row=self.on_bad_row or default)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """:raises SinkWriteError: in a task whose address space is too small; later an import would fail."""
        require_address_space(state["producer"])
        super().__setstate__(state)

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that rows go to; None if rows name their topics."""
        if self.topic is None:
            return None
        return frozenset({self.topic} if self.dead_letter_topic is None else {self.topic, self.dead_letter_topic})

    @property
    def numbers_of_a_query(self) -> BatchNumbering:
        """How the batches of a query are numbered."""
        under_way = self.allow_missing_progress
        return BatchNumbering.OF_A_QUERY_UNDER_WAY if under_way else BatchNumbering.OF_A_QUERY

    @property
    def job(self) -> str:
        """The name of the write in lineage."""
        return f"kafkalite.{self.topic or 'topics'}" if self.exactly_once is None else self.exactly_once.name

    @property
    def fails_at_bad_row(self) -> bool:
        """Whether tasks that get rows fail at one that cannot be written."""
        return self.on_bad_row == FAIL or self.is_placed

    def placed(self) -> WriteSpec:
        """For the tasks that get the rows after they were placed."""
        limits = self.limits
        if self.on_bad_row != FAIL:
            # The rows were checked: a timestamp at the limit must not fail the write because time has passed.
            limits = {topic: replace(each, before=None, after=None) for topic, each in limits.items()}
        return replace(self, formats=(), limits=limits, is_placed=True)
