"""The outcome of a task as JSON, as :func:`kafka_sink.write` receives it from the executors.

Encoded in the task, decoded in the user's own process. It is not pickled: with Spark Connect it comes from another
machine, and unpickling runs whatever code the sender wants.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Final

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import (
    AttemptError,
    ExactlyOnceError,
    FencedError,
    OpenTransaction,
    Transaction,
    UnwritableRowsError,
)
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.task.commit_message import TaskCommit, TransactionalCommit

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
        return _decode(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise KafkaError(
            f"the message of a task cannot be read ({error!r}), so it is not known whether its rows were written; "
            "check that driver and executors have the same release of kafkalite"
        ) from error


def _decode(found: Any) -> TaskCommit | ExactlyOnceError:
    if "error" in found:
        return _ERRORS[found["error"]](str(found["text"]))
    counts = dict(zip(_COUNTS, map(int, found["counts"]), strict=True))
    ranges = {
        TopicPartition(str(topic), int(partition)): PartitionRange(int(rows), int(first), int(last))
        for topic, partition, rows, first, last in found["ranges"]
    }
    ack_ms = {int(ms): int(rows) for ms, rows in found["ack_ms"]}
    commit = TaskCommit(**counts, first_bad_row=str(found["first_bad_row"]), ranges=ranges, ack_ms=ack_ms)
    transaction = found["transaction"]
    if transaction is None:
        return commit
    written = OpenTransaction(
        Transaction(str(transaction["id"]), int(transaction["producer_id"]), int(transaction["epoch"])),
        frozenset(TopicPartition(str(topic), int(partition)) for topic, partition in transaction["partitions"]),
    )
    return TransactionalCommit(**vars(commit), written=written)
