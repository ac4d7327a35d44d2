"""Every state with every request: the resulting state or error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_sink.broker.coordinator import transaction_state as rules
from kafka_sink.broker.coordinator.transaction_state import (
    TRANSITIONS,
    TransactionMetadata,
    TransactionState,
)
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition
from tests.support.cases import with_each

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, STATE = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
PARTITION, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = ProducerIdAndEpoch(7, 3)
NEW_ID, NOW = 8, 5000

Outcome = tuple[TransactionState, int, int] | ErrorCode


def in_state(state: TransactionState, *, epoch: int = 3, last_epoch: int = 2) -> TransactionMetadata:
    partitions = frozenset({PARTITION}) if state is ONGOING or state.is_deciding else frozenset[TopicPartition]()
    return TransactionMetadata("id", 7, 60_000, 100, epoch, last_epoch, state=state, start_ms=90, partitions=partitions)


def outcome(do: Callable[[], TransactionMetadata]) -> Outcome:
    try:
        after = do()
    except ApiError as error:
        return error.code
    return after.state, after.producer_id, after.producer_epoch


def init(metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None = None) -> TransactionMetadata:
    return rules.init_producer_id(metadata, 1234, expected, 2, lambda: NEW_ID, NOW)


def add(
    metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *partitions: TopicPartition
) -> TransactionMetadata:
    return rules.add_partitions(metadata, producer, frozenset(partitions), frozenset(), 1, NOW)


def end(
    metadata: TransactionMetadata, producer: ProducerIdAndEpoch, version: int, committed: bool
) -> TransactionMetadata:
    return rules.end_transaction(metadata, producer, version, lambda: NEW_ID, NOW, committed=committed)


def by_state(*outcomes: Outcome) -> list[tuple[TransactionState, Outcome]]:
    return list(zip(STATES, outcomes, strict=True))


FRESH = (EMPTY, 7, 4)
OPEN = (ONGOING, 7, 3)
FENCING = (PREPARE_ABORT, 7, 4)
ABORTING = (PREPARE_ABORT, 7, 3)
ABORTING_BUMPED = (PREPARE_ABORT, 7, 4)


@with_each(("state", "expected"), by_state(FRESH, FENCING, CONCURRENT, CONCURRENT, FRESH, FRESH))
def test_init_producer_id_in_every_state(state: TransactionState, expected: Outcome) -> None:
    assert outcome(lambda: init(in_state(state))) == expected
    assert outcome(lambda: init(in_state(state), PRODUCER)) == expected


@with_each(
    ("state", "expected"), by_state((EMPTY, 7, 3), FENCING, CONCURRENT, CONCURRENT, (EMPTY, 7, 3), (EMPTY, 7, 3))
)
def test_init_again_with_the_epoch_before(state: TransactionState, expected: Outcome) -> None:
    assert outcome(lambda: init(in_state(state), ProducerIdAndEpoch(7, 2))) == expected


@with_each(("state", "expected"), by_state(FENCED, FENCING, CONCURRENT, CONCURRENT, FENCED, FENCED))
def test_init_with_older_epoch_is_fenced_but_ends_transaction(state: TransactionState, expected: Outcome) -> None:
    assert outcome(lambda: init(in_state(state), ProducerIdAndEpoch(7, 1))) == expected


@with_each(("state", "expected"), by_state(FENCED, FENCED, CONCURRENT, CONCURRENT, FENCED, FENCED))
def test_init_with_another_producer_id_is_fenced(state: TransactionState, expected: Outcome) -> None:
    assert outcome(lambda: init(in_state(state), ProducerIdAndEpoch(99, 3))) == expected


@with_each(("state", "expected"), by_state(OPEN, OPEN, CONCURRENT, CONCURRENT, OPEN, OPEN))
def test_add_partitions_in_every_state(state: TransactionState, expected: Outcome) -> None:
    assert outcome(lambda: add(in_state(state), PRODUCER, OTHER)) == expected


@with_each("state", STATES)
def test_adding_partitions_with_other_id_or_epoch_is_refused(state: TransactionState) -> None:
    fenced, mapping = (CONCURRENT, CONCURRENT) if state.is_deciding else (FENCED, MAPPING)
    assert outcome(lambda: add(in_state(state), ProducerIdAndEpoch(7, 2), OTHER)) is fenced
    assert outcome(lambda: add(in_state(state), ProducerIdAndEpoch(7, 4), OTHER)) is fenced
    assert outcome(lambda: add(in_state(state), ProducerIdAndEpoch(9, 3), OTHER)) is mapping


def test_only_the_first_partition_starts_the_transaction_time() -> None:
    first = add(in_state(COMPLETE_COMMIT), PRODUCER, PARTITION)
    assert (first.start_ms, first.partitions) == (NOW, {PARTITION})
    opened = in_state(ONGOING)
    second = add(opened, PRODUCER, OTHER)
    assert (second.start_ms, second.partitions) == (90, {PARTITION, OTHER})
    assert add(opened, PRODUCER, PARTITION) is opened


@with_each("state", STATES)
def test_missing_partitions(state: TransactionState) -> None:
    asked = frozenset({PARTITION, OTHER})
    if state.is_deciding:
        with pytest.raises(ApiError) as caught:
            rules.missing_partitions(in_state(state), PRODUCER, asked)
        assert caught.value.code is CONCURRENT
        return
    assert rules.missing_partitions(in_state(state), PRODUCER, asked) == (
        asked - {PARTITION} if state is ONGOING else asked
    )


@with_each(
    ("state", "commit", "abort"),
    [
        (EMPTY, STATE, STATE),
        (ONGOING, (PREPARE_COMMIT, 7, 3), ABORTING),
        (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (COMPLETE_COMMIT, (COMPLETE_COMMIT, 7, 3), STATE),
        (COMPLETE_ABORT, STATE, (COMPLETE_ABORT, 7, 3)),
    ],
)
def test_end_in_version_1(state: TransactionState, commit: Outcome, abort: Outcome) -> None:
    assert outcome(lambda: end(in_state(state), PRODUCER, 1, True)) == commit
    assert outcome(lambda: end(in_state(state), PRODUCER, 1, False)) == abort
    assert outcome(lambda: end(in_state(state), ProducerIdAndEpoch(7, 2), 1, True)) is FENCED
    assert outcome(lambda: end(in_state(state), ProducerIdAndEpoch(9, 3), 1, True)) is MAPPING


@pytest.mark.behaviour("Transaction coordinator", "EndTxn is answered in every state as Kafka answers it")
@with_each(
    ("state", "commit", "abort"),
    [
        (EMPTY, STATE, ABORTING_BUMPED),
        (ONGOING, (PREPARE_COMMIT, 7, 4), ABORTING_BUMPED),
        (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (COMPLETE_COMMIT, STATE, ABORTING_BUMPED),
        (COMPLETE_ABORT, STATE, ABORTING_BUMPED),
    ],
)
def test_end_in_version_2(state: TransactionState, commit: Outcome, abort: Outcome) -> None:
    assert outcome(lambda: end(in_state(state), PRODUCER, 2, True)) == commit
    assert outcome(lambda: end(in_state(state), PRODUCER, 2, False)) == abort
    mapping, fenced = (CONCURRENT, CONCURRENT) if state.is_deciding else (MAPPING, FENCED)
    assert outcome(lambda: end(in_state(state), ProducerIdAndEpoch(9, 3), 2, True)) is mapping
    assert outcome(lambda: end(in_state(state), ProducerIdAndEpoch(7, 1), 2, False)) is fenced
    assert outcome(lambda: end(in_state(state), ProducerIdAndEpoch(7, 4), 2, False)) is fenced


@pytest.mark.behaviour("Transaction coordinator", "EndTxn is answered in every state as Kafka answers it")
@with_each(
    ("state", "commit", "abort"),
    [
        (EMPTY, FENCED, FENCED),
        (ONGOING, FENCED, FENCED),
        (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
        (PREPARE_ABORT, CONCURRENT, CONCURRENT),
        (COMPLETE_COMMIT, (COMPLETE_COMMIT, 7, 4), STATE),
        (COMPLETE_ABORT, STATE, (COMPLETE_ABORT, 7, 4)),
    ],
)
def test_end_again_in_version_2(state: TransactionState, commit: Outcome, abort: Outcome) -> None:
    """The producer still uses the epoch before the one that its first request returned."""
    assert outcome(lambda: end(in_state(state, epoch=4, last_epoch=3), PRODUCER, 2, True)) == commit
    assert outcome(lambda: end(in_state(state, epoch=4, last_epoch=3), PRODUCER, 2, False)) == abort


def test_last_epoch_gets_another_producer_id_in_version_1() -> None:
    last = in_state(COMPLETE_COMMIT, epoch=LAST_PRODUCER_EPOCH)
    assert outcome(lambda: init(last)) == (EMPTY, NEW_ID, 0)
    rotated = init(last, ProducerIdAndEpoch(7, LAST_PRODUCER_EPOCH))
    assert outcome(lambda: rotated) == (EMPTY, NEW_ID, 0)
    # A producer that did not receive the response repeats the request with its old id and epoch.
    assert outcome(lambda: init(rotated, ProducerIdAndEpoch(7, LAST_PRODUCER_EPOCH))) == (EMPTY, NEW_ID, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_last_epoch_gets_another_producer_id_in_version_2(committed: bool) -> None:
    last = ProducerIdAndEpoch(7, LAST_PRODUCER_EPOCH)
    prepared = end(in_state(ONGOING, epoch=LAST_PRODUCER_EPOCH), last, 2, committed)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, LAST_PRODUCER_EPOCH + 1)
    assert outcome(lambda: end(prepared, last, 2, committed)) is CONCURRENT
    done = prepared.completed(NOW)
    assert (done.producer_id, done.producer_epoch) == (NEW_ID, 0)
    assert end(done, last, 2, committed) is done
    assert outcome(lambda: end(done, last, 2, not committed)) is STATE
    assert outcome(lambda: end(done, ProducerIdAndEpoch(NEW_ID, 0), 2, True)) is STATE


def test_producer_that_has_the_next_id_waits_for_markers() -> None:
    last = ProducerIdAndEpoch(7, LAST_PRODUCER_EPOCH)
    prepared = end(in_state(ONGOING, epoch=LAST_PRODUCER_EPOCH), last, 2, True)
    after = ProducerIdAndEpoch(NEW_ID, 0)
    assert outcome(lambda: add(prepared, after, OTHER)) is CONCURRENT
    assert outcome(lambda: end(prepared, after, 2, False)) is CONCURRENT
    assert outcome(lambda: init(prepared, after)) is CONCURRENT
    assert outcome(lambda: add(prepared.completed(NOW), after, OTHER)) == (ONGOING, NEW_ID, 0)


def test_fencing_at_the_last_epoch_uses_the_epoch_after_it() -> None:
    last = in_state(ONGOING, epoch=LAST_PRODUCER_EPOCH)
    fenced = rules.fenced(last, 1, lambda: NEW_ID, NOW)
    assert outcome(lambda: fenced) == (PREPARE_ABORT, 7, LAST_PRODUCER_EPOCH + 1)
    assert outcome(lambda: init(fenced.completed(NOW))) == (EMPTY, NEW_ID, 0)


def test_fencing_epoch_after_the_last_one_is_given_to_nobody() -> None:
    last = ProducerIdAndEpoch(7, LAST_PRODUCER_EPOCH)
    fenced = rules.fenced(in_state(ONGOING, epoch=LAST_PRODUCER_EPOCH), 2, lambda: NEW_ID, NOW)
    assert outcome(lambda: fenced) == (PREPARE_ABORT, 7, LAST_PRODUCER_EPOCH + 1)
    done = fenced.completed(NOW)
    assert outcome(lambda: done) == (COMPLETE_ABORT, NEW_ID, 0)
    # The producer aborts the transaction that the coordinator has aborted, or requests a new epoch.
    assert end(done, last, 2, False) is done
    assert outcome(lambda: init(done, last)) == (EMPTY, NEW_ID, 0)
    assert outcome(lambda: init(done)) == (EMPTY, NEW_ID, 1)


@pytest.mark.behaviour("Transaction coordinator", "A transaction makes no other transitions than Kafka's")
@with_each("after", list(TransactionState))
@with_each("before", list(TransactionState))
def test_no_other_transition_than_kafkas(before: TransactionState, after: TransactionState) -> None:
    metadata = in_state(before)
    if before in TRANSITIONS[after]:
        assert metadata.moved_to(after, NOW).state is after
    else:
        with pytest.raises(RuntimeError, match="no transition"):
            metadata.moved_to(after, NOW)
