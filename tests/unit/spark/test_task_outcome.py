"""What executors return to ``kafka_sink.write`` arrives whole, and is never run."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import OpenTransaction, Transaction, UnwritableRowsError
from kafka_sink.reports.writes import PartitionRange
from kafka_sink.spark.task.commit_message import TaskCommit, TransactionalCommit, decode_outcome, encode_outcome
from tests.support.cases import with_each

PARTITION = TopicPartition("t-1", 2)
WRITTEN = OpenTransaction(Transaction("app/0-ü", 2**40, 7), frozenset({PARTITION, TopicPartition("u", 0)}))
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8)
RANGES = {PARTITION: PartitionRange(3, 10, 12)}
ACK_MS = {4: 2, 96: 1}


@pytest.mark.parametrize(
    "outcome",
    [
        TaskCommit(*COUNTS),
        TaskCommit(*COUNTS, RANGES, ACK_MS),
        TransactionalCommit(*COUNTS, RANGES, ACK_MS, written=WRITTEN),
    ],
)
def test_an_outcome_arrives_whole(outcome: TaskCommit) -> None:
    assert decode_outcome(encode_outcome(outcome)) == outcome


def test_rows_that_cannot_be_written_are_told() -> None:
    found = decode_outcome(encode_outcome(UnwritableRowsError("row 7 is too large: ü")))
    assert isinstance(found, UnwritableRowsError)
    assert str(found) == "row 7 is too large: ü"


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_what_executors_return_is_never_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    for protocol in (0, pickle.HIGHEST_PROTOCOL):
        with pytest.raises(KafkaError, match="the message of a task cannot be read"):
            decode_outcome(pickle.dumps(Hostile(touched), protocol).decode("latin-1"))
    assert not touched.exists()


@with_each("text", ["", "[]", "{}", "null", '{"counts": [1], "ranges": [], "ack_ms": [], "transaction": 1}'])
def test_another_message_is_refused_with_what_to_check(text: str) -> None:
    with pytest.raises(KafkaError, match="same release of kafkalite"):
        decode_outcome(text)
