"""The message of a task to the driver: the number of rows received, the number acknowledged by the brokers, and their
offsets.

Created in the task, read on the driver: pickled by Spark for ``commit``, as JSON for :func:`kafka_sink.write`. With
Spark Connect the latter comes from another machine, and unpickling runs whatever code the sender wants. Plain values
only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.bounded import json_number, parsed_json
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import (
    AttemptError,
    ExactlyOnceError,
    FencedError,
    OpenTransaction,
    Skipped,
    Transaction,
    UnwritableRowsError,
)
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.versions import WriterCommitMessage

if TYPE_CHECKING:
    from kafka_sink.exactly_once.plan import Plan

#: The number of leading bits kept of acknowledgement times, which are accurate to one sixteenth.
_SIGNIFICANT_BITS: Final = 5


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The outcome of one task. ``record_bytes`` is the size before compression, ``wire_bytes`` the size as sent,
    headers included. Of ``rows_in`` rows ``rows_acked`` were acknowledged, and ``bad_rows`` became dead letters or were
    dropped; ``first_bad_row`` is the text of the first problem.

    ``ack_ms`` maps the time until the acknowledgement to the number of rows, see :func:`rounded_ms`.
    """

    task_partition: int
    attempt: int
    rows_in: int = 0
    rows_acked: int = 0
    record_bytes: int = 0
    wire_bytes: int = 0
    batches: int = 0
    elapsed_ms: int = 0
    ranges: dict[TopicPartition, PartitionRange] = field(default_factory=dict)
    ack_ms: dict[int, int] = field(default_factory=dict)
    bad_rows: int = 0
    first_bad_row: str = ""


@dataclass(frozen=True)
class TransactionalCommit(TaskCommit):
    """The outcome of a task that wrote in a transaction: the transaction, the plan and the version.

    ``plan`` is None if nothing was written because the version was ``skipped``. ``written`` is None if there were no
    rows, or if the transaction is the driver's.
    """

    writer: str = ""
    version: int = -1
    plan: Plan | None = None
    written: OpenTransaction | None = None
    skipped: Skipped | None = None


def merge_ranges(commits: Iterable[TaskCommit]) -> dict[TopicPartition, PartitionRange]:
    """The merged ranges of all tasks, sorted by topic and partition."""
    merged: dict[TopicPartition, PartitionRange] = {}
    for commit in commits:
        for topic_partition, part in commit.ranges.items():
            known = merged.get(topic_partition)
            merged[topic_partition] = part if known is None else known.merge(part)
    return dict(sorted(merged.items()))


def rounded_ms(ms: int) -> int:
    """*ms* rounded down to its five leading bits, so that commit messages stay small for any number of times."""
    shift = max(ms.bit_length() - _SIGNIFICANT_BITS, 0)
    return (ms >> shift) << shift


def total_counts(all_counts: Iterable[Mapping[int, int]]) -> Counter[int]:
    """Time → number of rows, summed over all tasks."""
    totals: Counter[int] = Counter()
    for counts in all_counts:
        totals.update(counts)
    return totals


def percentile_ms(counts: Mapping[int, int], share: float) -> int | None:
    """The time within which *share* of the rows were acknowledged; None if there were no rows."""
    wanted = share * sum(counts.values())
    seen = 0
    for ms in sorted(counts):
        seen += counts[ms]
        if seen >= wanted:
            return ms
    return None


#: The fields of :class:`TaskCommit` that are single numbers.
_COUNTS: Final = tuple(item.name for item in fields(TaskCommit) if item.type == "int")

#: What a task returns instead of raising it, which Spark would answer with more attempts at the task.
_ERRORS: Final = {kind.__name__: kind for kind in (ExactlyOnceError, UnwritableRowsError, FencedError, AttemptError)}


def encode_outcome(outcome: TaskCommit | ExactlyOnceError) -> str:
    """The outcome of a task as JSON, without the plan, which the driver has."""
    if isinstance(outcome, ExactlyOnceError):
        return json.dumps({"error": type(outcome).__name__, "text": str(outcome)})
    written = outcome.written if isinstance(outcome, TransactionalCommit) else None
    ranges = outcome.ranges.items()
    return json.dumps(
        {
            "first_bad_row": outcome.first_bad_row,
            "counts": [getattr(outcome, name) for name in _COUNTS],
            "ranges": [[*key, part.rows, part.first_offset, part.last_offset] for key, part in ranges],
            "ack_ms": list(outcome.ack_ms.items()),
            "transaction": None
            if written is None
            else {
                "id": written.transaction.transactional_id,
                "producer_id": written.transaction.producer_id,
                "epoch": written.transaction.epoch,
                "partitions": sorted(written.partitions),
            },
        }
    )


def decode_outcome(text: str) -> TaskCommit | ExactlyOnceError:
    """The outcome that :func:`encode_outcome` wrote.

    :raises KafkaError: if *text* is something else.
    """
    try:
        return _decode(parsed_json(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KafkaError(
            f"the message of a task cannot be read ({error!r}), so it is not known whether its rows were written; "
            "check that driver and executors have the same release of kafkalite"
        ) from error


def _decode(message: Any) -> TaskCommit | ExactlyOnceError:
    if "error" in message:
        return _ERRORS[message["error"]](str(message["text"]))
    counts = dict(zip(_COUNTS, map(json_number, message["counts"]), strict=True))
    ranges = {
        TopicPartition(str(topic), json_number(partition)): PartitionRange(*map(json_number, offsets))
        for topic, partition, *offsets in message["ranges"]
    }
    ack_ms = {json_number(ms): json_number(rows) for ms, rows in message["ack_ms"]}
    commit = TaskCommit(**counts, first_bad_row=str(message["first_bad_row"]), ranges=ranges, ack_ms=ack_ms)
    transaction = message["transaction"]
    if transaction is None:
        return commit
    written = OpenTransaction(
        Transaction(str(transaction["id"]), json_number(transaction["producer_id"]), json_number(transaction["epoch"])),
        frozenset(TopicPartition(str(topic), json_number(partition)) for topic, partition in transaction["partitions"]),
    )
    return TransactionalCommit(**vars(commit), written=written)
