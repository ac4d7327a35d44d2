"""The message of a task to the driver: the number of rows received, the number acknowledged by the brokers, and their
offsets.

Created in the task, pickled by Spark, read in ``commit``. Plain values only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_sink.common.model import TopicPartition
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.versions import WriterCommitMessage

if TYPE_CHECKING:
    from kafka_sink.exactly_once.model import OpenTransaction, Skipped
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
    found: Counter[int] = Counter()
    for counts in all_counts:
        found.update(counts)
    return found


def percentile_ms(counts: Mapping[int, int], share: float) -> int | None:
    """The time within which *share* of the rows were acknowledged; None if there were no rows."""
    wanted = share * sum(counts.values())
    seen = 0
    for ms in sorted(counts):
        seen += counts[ms]
        if seen >= wanted:
            return ms
    return None
