"""A repeated version number, with the same rows, with other rows, or with rows that cannot be compared."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import NO_OFFSETS, BatchNumbering, Plan, PlannedOffsets, Progress, ProgressError
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.transactions import Transaction
from tests.fakes.immediate import returned
from tests.support.cases import with_each
from tests.unit.exactly_once.test_progress import DRIVER, Offsets

QUERY = "query 1"
PLANNED = PlannedOffsets(4, "a" * 16)


def plan(offsets: PlannedOffsets, committed: str) -> Plan:
    """The plan of a sink whose last batch was 4."""
    progress = Progress(5, QUERY, TransactionVersion.V2, 0, offsets=committed)
    return Plan("s/t", DRIVER, TransactionVersion.V2, 20_000, Moment.now(SYSTEM_CLOCK), progress, 1, offsets=offsets)


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "Other rows under a committed batch number are refused"
)
@pytest.mark.parametrize("numbers", [BatchNumbering.OF_A_QUERY, BatchNumbering.OF_A_QUERY_UNDER_WAY])
def test_other_rows_under_a_committed_number_are_refused(numbers: BatchNumbering) -> None:
    restored = plan(PLANNED, "b" * 16)
    with pytest.raises(ProgressError, match=r"batch 4 of query 1 is committed, but with other rows .*newer checkpoint"):
        restored.must_write(4, QUERY, numbers)
    assert replace(restored, offsets=PlannedOffsets(5, "a" * 16)).must_write(5, QUERY, numbers)


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "The same rows under a committed batch number are skipped"
)
def test_committed_batch_with_same_rows_is_skipped_without_doubt() -> None:
    same = plan(PLANNED, PLANNED.digest)
    assert not same.must_write(4, QUERY, BatchNumbering.OF_A_QUERY)
    assert same.skipped(4).doubt == ""


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "A batch whose rows cannot be compared is skipped with a warning",
)
@with_each(
    ("offsets", "committed", "doubt"),
    [
        (PLANNED, "", "by an earlier release"),
        (PlannedOffsets(unknown="it is far away"), "b" * 16, "it is far away"),
        (PlannedOffsets(5, "c" * 16), "b" * 16, "the checkpoint has batch 5 instead"),
        (NO_OFFSETS, "", "are not compared"),
    ],
)
def test_batch_with_uncomparable_rows_is_skipped_with_a_doubt(
    offsets: PlannedOffsets, committed: str, doubt: str
) -> None:
    unknown = plan(offsets, committed)
    assert not unknown.must_write(4, QUERY, BatchNumbering.OF_A_QUERY)
    assert doubt in unknown.skipped(4).doubt


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "Progress keeps what was planned, and progress of earlier releases is read",
)
def test_progress_keeps_planned_offsets_and_reads_older_format() -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    transactions = (Transaction("s/t.000000000000.9", 1, 1),)
    ends = ((TopicPartition("t", 0), 7), (TopicPartition("t", 9), 2**40), (TopicPartition("u", 1), 0))
    written = Progress(5, QUERY, TransactionVersion.V2, 17, transactions, "a" * 16, DRIVER.producer, ends)
    returned(store.write(DRIVER, TransactionVersion.V2, written, 10, None))
    assert returned(store.read()) == written
    # The texts of release 1.0.0 and of the release before it.
    text = base64.b64encode(bytes(6) + bytes([2, 18, 2, 2])).decode()
    older = replace(written, decider=None, ends=())
    offsets.found[0] = OffsetAndMetadata(5, f"kafkalite2|2|1|{QUERY}|17|{'a' * 16}|{text}")
    assert returned(store.read()) == older
    offsets.found[0] = OffsetAndMetadata(5, f"kafkalite1|2|1|{QUERY}|17|{text}")
    assert returned(store.read()) == replace(older, offsets="")


def test_translated_offsets_are_not_taken_for_progress() -> None:
    """A tool that copies groups between clusters translates the offset and keeps the metadata."""
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    written = Progress(5, QUERY, TransactionVersion.V2, 17, (), "", DRIVER.producer)
    returned(store.write(DRIVER, TransactionVersion.V2, written, 10, None))
    offsets.found[0] = replace(offsets.found[0], offset=4)
    with pytest.raises(ProgressError, match="copied or translated the offsets of another cluster"):
        returned(store.read())
