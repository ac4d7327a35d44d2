"""What a task tells the driver: how many rows it was given, how many the brokers acknowledged, and where they are.

Made in the task, pickled by Spark, read in ``commit``. Plain values only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.common.model import TopicPartition

if TYPE_CHECKING:
    from kafka_sink.exactly_once.model import OpenTransaction
    from kafka_sink.exactly_once.sink import Plan

#: Of the times of acknowledgements, which are so kept to one part in sixteen.
_SIGNIFICANT_BITS: Final = 5


@dataclass(frozen=True)
class PartitionRange:
    """Rows of one write in one topic-partition; offsets are −1 where the brokers do not say (acks=0)."""

    rows: int
    first_offset: int
    last_offset: int

    def merge(self, other: PartitionRange) -> PartitionRange:
        return PartitionRange(
            self.rows + other.rows,
            min(self.first_offset, other.first_offset),
            max(self.last_offset, other.last_offset),
        )


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """One task's outcome. ``record_bytes`` before compression, ``wire_bytes`` as sent, headers included.

    ``ack_ms`` counts rows by the time that their acknowledgement took, see :func:`rounded_ms`.
    """

    task_partition: int
    attempt: int
    rows_in: int
    rows_acked: int
    record_bytes: int
    wire_bytes: int
    batches: int
    elapsed_ms: int
    ranges: dict[TopicPartition, PartitionRange] = field(default_factory=dict)
    ack_ms: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TransactionalCommit(TaskCommit):
    """The outcome of a task that wrote in a transaction: which, under which plan, and of which version.

    ``plan`` is None where the version had been committed before and nothing was written, and ``doubt`` says then why
    nobody knows whether it had the same rows; ``written`` is None where there were no rows, or the transaction is the
    driver's own.
    """

    writer: str = ""
    version: int = -1
    plan: Plan | None = None
    written: OpenTransaction | None = None
    doubt: str = ""


def merge_ranges(commits: Iterable[TaskCommit]) -> dict[TopicPartition, PartitionRange]:
    """The ranges of all tasks together, in topic and partition order."""
    merged: dict[TopicPartition, PartitionRange] = {}
    for commit in commits:
        for topic_partition, part in commit.ranges.items():
            known = merged.get(topic_partition)
            merged[topic_partition] = part if known is None else known.merge(part)
    return dict(sorted(merged.items()))


def rounded_ms(ms: int) -> int:
    """*ms* with its five leading bits: commit messages stay small however many times there are."""
    shift = max(ms.bit_length() - _SIGNIFICANT_BITS, 0)
    return (ms >> shift) << shift


def total_counts(all_counts: Iterable[Mapping[int, int]]) -> Counter[int]:
    """Time → rows, of all tasks together."""
    found: Counter[int] = Counter()
    for counts in all_counts:
        found.update(counts)
    return found


def percentile_ms(counts: Mapping[int, int], share: float) -> int | None:
    """The time within which *share* of the rows were acknowledged; None where there were no rows."""
    wanted = share * sum(counts.values())
    seen = 0
    for ms in sorted(counts):
        seen += counts[ms]
        if seen >= wanted:
            return ms
    return None
