"""The outcome of a task, and the sum of the outcomes of all tasks of a write.

Created in the task, read on the driver: pickled by Spark for ``commit``, as JSON for :func:`kafka_sink.write`. With
Spark Connect the latter comes from another machine, and unpickling could run any code of the sender. Plain values
only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.bounded import json_number, parsed_json
from kafka_sink.common.errors import KafkaError, SinkWriteError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import Skipped
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.errors import attributes_of, error_of
from kafka_sink.spark.versions import WriterCommitMessage

if TYPE_CHECKING:
    from kafka_sink.exactly_once.model import Plan

#: The number of leading bits kept of acknowledgement times, which are accurate to one sixteenth.
_SIGNIFICANT_BITS: Final = 5


@dataclass(frozen=True)
class TaskTransaction:
    """The part of an outcome for writes in transactions: the *writer* of the sink, the *version*, and the *plan*; None
    if nothing was written because the version was *skipped*. *open* is the transaction of the task; None if there were
    no rows, or if the transaction is the driver's."""

    writer: str = ""
    version: int = -1
    plan: Plan | None = None
    open: OpenTransaction | None = None
    skipped: Skipped | None = None


@dataclass(frozen=True)
class TaskOutcome(WriterCommitMessage):
    """The outcome of one task, or of several. ``record_bytes`` is the size before compression, ``wire_bytes`` the size
    as sent, headers included. Of ``rows_in`` rows ``rows_acked`` were acknowledged, and ``bad_rows`` became dead
    letters or were dropped; ``first_bad_row`` is the text of the first problem.

    ``ack_ms`` maps the time until the acknowledgement to the number of rows, see :func:`rounded_ms`. With a ``failure``
    the other fields are empty: a task that raised it would be tried again by Spark.
    """

    task_partition: int = 0
    rows_in: int = 0
    rows_acked: int = 0
    record_bytes: int = 0
    wire_bytes: int = 0
    batches: int = 0
    elapsed_ms: int = 0
    ranges: Mapping[TopicPartition, PartitionRange] = field(default_factory=dict)
    ack_ms: Mapping[int, int] = field(default_factory=dict)
    bad_rows: int = 0
    first_bad_row: str = ""
    transaction: TaskTransaction | None = None
    failure: SinkWriteError | None = None

    def ack_percentile_ms(self, share: float) -> int | None:
        """The time within which *share* of the rows were acknowledged; None if there were no rows."""
        rank, rows = share * sum(self.ack_ms.values()), 0
        for ms in sorted(self.ack_ms):
            rows += self.ack_ms[ms]
            if rows >= rank:
                return ms
        return None

    def to_json(self) -> str:
        """The JSON, without the writer and the plan, which the driver has."""
        opened, failure = None if self.transaction is None else self.transaction.open, self.failure
        return json.dumps(
            {
                "failure": failure and [type(failure).__name__, str(failure), attributes_of(failure)],
                "first_bad_row": self.first_bad_row,
                "counts": [getattr(self, name) for name in _COUNTS],
                "ranges": [[*key, part.rows, part.first_offset, part.last_offset] for key, part in self.ranges.items()],
                "ack_ms": list(self.ack_ms.items()),
                "open": opened and [*vars(opened.transaction).values(), sorted(opened.partitions)],
            }
        )


#: The fields of :class:`TaskOutcome` that are single numbers.
_COUNTS: Final = tuple(item.name for item in fields(TaskOutcome) if item.type == "int")


def outcome_of(text: str) -> TaskOutcome:
    """The outcome that :meth:`TaskOutcome.to_json` wrote.

    :raises KafkaError: if *text* is something else.
    """
    try:
        return _decode(parsed_json(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KafkaError(
            f"the message of a task cannot be read ({error!r}), so it is not known whether its rows were written; "
            "check that driver and executors have the same release of kafkalite"
        ) from error


def _decode(message: Any) -> TaskOutcome:
    counts = dict(zip(_COUNTS, map(json_number, message["counts"]), strict=True))
    opened, failure = message["open"], message["failure"] and error_of(*message["failure"])
    if not isinstance(failure, SinkWriteError | None):
        raise TypeError("the failure of a task is another error")
    return TaskOutcome(
        **counts,
        ranges={
            TopicPartition(str(topic), json_number(partition)): PartitionRange(*map(json_number, offsets))
            for topic, partition, *offsets in message["ranges"]
        },
        ack_ms={json_number(ms): json_number(rows) for ms, rows in message["ack_ms"]},
        first_bad_row=str(message["first_bad_row"]),
        transaction=None if opened is None else _transaction(*opened),
        failure=failure,
    )


def _transaction(name: Any, producer_id: Any, epoch: Any, partitions: Any) -> TaskTransaction:
    transaction = Transaction(str(name), json_number(producer_id), json_number(epoch))
    written = frozenset(TopicPartition(str(topic), json_number(partition)) for topic, partition in partitions)
    return TaskTransaction(open=OpenTransaction(transaction, written))


def total_of(outcomes: Sequence[TaskOutcome]) -> TaskOutcome:
    """The outcome of all tasks, with the ranges sorted by topic and partition, and the time of the longest task."""
    ranges: dict[TopicPartition, PartitionRange] = {}
    ack_ms: Counter[int] = Counter()
    for outcome in outcomes:
        ack_ms.update(outcome.ack_ms)
        for partition, rows in outcome.ranges.items():
            ranges[partition] = ranges[partition].merge(rows) if partition in ranges else rows
    totals = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in _COUNTS}
    return TaskOutcome(
        **{**totals, "elapsed_ms": max((outcome.elapsed_ms for outcome in outcomes), default=0)},
        ranges=dict(sorted(ranges.items())),
        ack_ms=ack_ms,
        first_bad_row=next((outcome.first_bad_row for outcome in outcomes if outcome.bad_rows), ""),
    )


def rounded_ms(ms: int) -> int:
    """*ms* rounded down to its five leading bits, so that outcomes stay small for any number of times."""
    shift = max(ms.bit_length() - _SIGNIFICANT_BITS, 0)
    return (ms >> shift) << shift
