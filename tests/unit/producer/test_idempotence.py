"""Producer id, epoch and sequences: no lasting gap, no sequence assigned twice, no batch stored twice."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import ErrorCode, OutOfOrderSequenceError, error_for
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, ProducerIdAndEpoch, TopicPartition
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.transactions.idempotence import IdempotenceManager
from tests.fakes.batches import TP, make_batch, read_wire
from tests.fakes.producing import use_up_sequences
from tests.support.cases import with_each

OTHER = TopicPartition("orders", 4)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN_ID = ErrorCode.UNKNOWN_PRODUCER_ID
LOG_START = 10


def make_manager(producer_id: int = 9, epoch: int = 0, *, known: bool = True) -> IdempotenceManager:
    """A manager with a producer id; unless *known* is False, the brokers have already stored batches of it."""
    manager = IdempotenceManager(ContextLogger(__name__, "test"))
    if known:
        manager.assign_producer_id(producer_id, epoch - 1)
        for topic_partition in (TP, OTHER):
            use_up_sequences(manager, topic_partition, 1)
    manager.assign_producer_id(producer_id, epoch)
    return manager


def fresh(records: int = 1, tp: TopicPartition = TP) -> ProducerBatch:
    return make_batch(tp=tp, values=[b"v"] * records)


def drained(manager: IdempotenceManager, records: int = 1, tp: TopicPartition = TP) -> ProducerBatch:
    """A batch that leaves its queue for the first time."""
    batch = fresh(records, tp)
    assert not manager.must_wait(batch)
    resend(manager, batch)
    return batch


def resend(manager: IdempotenceManager, batch: ProducerBatch) -> None:
    batch.close()
    manager.assign_sequence(batch)


def settle(manager: IdempotenceManager) -> None:
    """The sender's steps before it drains."""
    manager.resolve_sequences()
    manager.bump_epoch_if_required()


def gap_before(manager: IdempotenceManager, batch: ProducerBatch) -> None:
    """The broker reports a gap before *batch*."""
    assert manager.can_retry(batch, OUT_OF_ORDER, NO_OFFSET)
    settle(manager)


def forgotten_at(manager: IdempotenceManager, batch: ProducerBatch) -> None:
    """The broker has no state of the producer of *batch*."""
    assert manager.can_retry(batch, UNKNOWN_ID, LOG_START)
    settle(manager)


def place(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


# --- sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "Idempotence", "Sequence numbers are consecutive within a partition, and separate between partitions"
)
def test_sequences_are_contiguous_per_partition() -> None:
    manager = make_manager()
    assert [drained(manager, n).base_sequence for n in (3, 1, 5)] == [0, 3, 4]
    assert drained(manager, 2, OTHER).base_sequence == 0
    assert drained(manager).base_sequence == 9


def test_a_retry_keeps_its_sequence() -> None:
    manager = make_manager()
    first, second = drained(manager, 3), drained(manager, 2)
    assert manager.can_retry(first, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
    settle(manager)
    resend(manager, first)
    assert place(first) == (9, 0, 0)
    assert place(second) == (9, 0, 3)
    assert drained(manager).base_sequence == 5


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    manager = make_manager()
    use_up_sequences(manager, TP, 2**31 - 4)
    first = drained(manager)
    spanning, behind = drained(manager, 5), drained(manager, 1)
    assert (spanning.base_sequence, spanning.last_sequence) == (2**31 - 3, 1)
    assert behind.base_sequence == 2
    manager.completed(first)
    # The order of assignment is kept: the batch before the wrap is retried first.
    assert not manager.must_wait(spanning)
    assert manager.must_wait(behind)


def test_acknowledgement_past_the_sequence_wrap_is_the_newest() -> None:
    manager = make_manager()
    manager.completed(drained(manager))
    use_up_sequences(manager, TP, 2**31 - 3)
    unknown, across = drained(manager, 1), drained(manager, 3)
    manager.failed(unknown)
    manager.completed(across)
    settle(manager)
    assert manager.identity.epoch == 0, "what came after it was stored, so it was, too"
    assert drained(manager).base_sequence == 2


def test_no_batch_is_sent_without_a_producer_id() -> None:
    manager = IdempotenceManager(ContextLogger(__name__, "test"))
    assert manager.must_wait(fresh())
    manager.assign_producer_id(9, 0)
    assert not manager.must_wait(fresh())


def test_a_retry_waits_until_it_is_the_oldest_in_flight() -> None:
    manager = make_manager()
    first, second = drained(manager), drained(manager)
    assert not manager.must_wait(first)
    assert manager.must_wait(second)
    manager.completed(first)
    assert not manager.must_wait(second)


@pytest.mark.behaviour("Idempotence", "No more batches are in flight than a broker remembers")
def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    manager = make_manager()
    flight = [drained(manager) for _ in range(5)]
    assert manager.must_wait(fresh())
    # Later batches that are stored make the broker forget the oldest one as well.
    manager.completed(flight[2])
    assert manager.must_wait(fresh())
    manager.completed(flight[0])
    assert not manager.must_wait(fresh())
    drained(manager)
    assert manager.must_wait(fresh())


def test_nothing_follows_the_first_batch_before_it_is_stored() -> None:
    manager = make_manager(known=False)
    first = drained(manager, 3)
    assert manager.must_wait(fresh()), "a broker takes any first sequence: it would be stored in front"
    assert not manager.must_wait(fresh(1, OTHER)), "each partition for itself"
    assert not manager.must_wait(first), "its retry may leave"
    manager.completed(first)
    drained(manager)
    assert not manager.must_wait(fresh())


def test_first_batch_of_a_new_epoch_need_not_travel_alone() -> None:
    manager = make_manager(known=False)
    manager.completed(drained(manager))
    gap_before(manager, drained(manager))
    assert not manager.must_wait(fresh()), "the broker knows the id, and takes a new epoch from sequence 0 only"


def test_a_new_id_is_unknown_to_the_brokers_again() -> None:
    manager = make_manager(epoch=2**15 - 1)
    batch = drained(manager)
    gap_before(manager, batch)
    manager.assign_producer_id(77, 0)
    assert manager.must_wait(fresh())
    manager.completed(batch)
    drained(manager)
    assert not manager.must_wait(fresh())


def test_unsettled_batch_and_its_followers_are_at_most_five() -> None:
    manager = make_manager()
    manager.completed(drained(manager))
    oldest, *behind = [drained(manager, 2) for _ in range(5)]
    for batch in behind:
        manager.completed(batch)
    assert manager.must_wait(fresh()), "a sixth would make its retry look like a gap"
    assert not manager.must_wait(oldest)
    manager.completed(oldest)
    assert drained(manager).base_sequence == 11


def test_new_epoch_restarts_the_limit_of_remembered_batches() -> None:
    manager = make_manager()
    first = drained(manager)
    for _ in range(3):
        manager.completed(drained(manager))
    second = drained(manager)
    gap_before(manager, first)
    assert (place(first), place(second)) == ((9, 1, 0), (9, 1, 1))
    assert [drained(manager).base_sequence for _ in range(3)] == [2, 3, 4]
    assert manager.must_wait(fresh())


# --- gaps ------------------------------------------------------------------------------------------------------------


def test_out_of_order_behind_another_batch_waits_for_that_batch() -> None:
    manager = make_manager()
    first, second = drained(manager), drained(manager)
    gap_before(manager, second)
    assert manager.identity == ProducerIdAndEpoch(9, 0)
    assert place(first) == (9, 0, 0)
    assert place(second) == (9, 0, 1)


@pytest.mark.behaviour("Idempotence", "A gap in the sequence begins a new epoch from 0")
@pytest.mark.behaviour(
    "Faults: errors of records", "Error codes about sequence numbers begin a new epoch, and nothing is there twice"
)
def test_out_of_order_of_oldest_batch_begins_new_epoch_at_zero() -> None:
    manager = make_manager()
    manager.completed(drained(manager, 4))
    first, second = drained(manager, 3), drained(manager, 2)
    gap_before(manager, first)
    assert place(first) == (9, 1, 0)
    assert place(second) == (9, 1, 3)
    for batch in (first, second):
        view, records = read_wire(batch.wire)
        assert (view.header.producer_epoch, view.header.base_sequence) == (1, batch.base_sequence)
        assert len(records) == batch.record_count
        manager.completed(batch)
    assert drained(manager).base_sequence == 5


def test_late_errors_of_old_sequences_do_not_bump_epoch_again() -> None:
    manager = make_manager()
    first, second = drained(manager), drained(manager)
    gap_before(manager, first)
    # Both were in flight together; this response belongs to a batch from before the new epoch.
    manager.completed(first)
    gap_before(manager, second)
    assert manager.identity.epoch == 1


def test_a_gap_after_the_new_epoch_was_sent_begins_yet_another() -> None:
    manager = make_manager()
    batch = drained(manager)
    gap_before(manager, batch)
    resend(manager, batch)
    gap_before(manager, batch)
    assert place(batch) == (9, 2, 0)


@pytest.mark.behaviour(
    "Faults: errors of records", "Error codes about sequence numbers begin a new epoch, and nothing is there twice"
)
def test_a_forgotten_producer_begins_a_new_epoch_once() -> None:
    manager = make_manager()
    manager.completed(drained(manager, 7))
    first, second = drained(manager, 2), drained(manager)
    forgotten_at(manager, first)
    assert (place(first), place(second)) == ((9, 1, 0), (9, 1, 2))
    forgotten_at(manager, second)
    assert manager.identity.epoch == 1


def test_unknown_producer_id_is_handled_by_the_oldest_batch() -> None:
    manager = make_manager()
    first, second = drained(manager, 2), drained(manager)
    forgotten_at(manager, second)
    assert (place(first), place(second)) == ((9, 0, 0), (9, 0, 2))


def test_first_batch_after_unknown_producer_id_travels_alone() -> None:
    manager = make_manager()
    batch = drained(manager)
    forgotten_at(manager, batch)
    assert manager.must_wait(fresh())
    assert not manager.must_wait(fresh(1, OTHER)), "nobody forgot it there"
    manager.completed(batch)
    drained(manager)
    assert not manager.must_wait(fresh())


def test_transaction_restarts_sequences_only_if_all_was_deleted() -> None:
    manager = IdempotenceManager(ContextLogger(__name__, "test"), transactional=True)
    manager.assign_producer_id(9, 0)
    manager.completed(drained(manager, 3), 5)
    first, second = drained(manager, 2), drained(manager)
    assert manager.can_retry(second, UNKNOWN_ID, LOG_START), "as a retry it will be the oldest"
    assert (place(first), place(second)) == ((9, 0, 3), (9, 0, 5))
    assert not manager.can_retry(first, UNKNOWN_ID, 7), "something that was stored is still there"
    assert manager.can_retry(first, UNKNOWN_ID, LOG_START)
    assert (place(first), place(second)) == ((9, 0, 0), (9, 0, 2))


def test_halves_of_a_split_batch_count_as_two_in_flight() -> None:
    manager = make_manager()
    before, whole, behind = drained(manager), drained(manager, 4), drained(manager)
    pieces = [fresh(1), fresh(3)]
    manager.split(whole, pieces)
    assert [place(batch) for batch in (before, *pieces, behind)] == [(9, 0, 0), (9, 0, 1), (9, 0, 2), (9, 0, 5)]
    assert not manager.must_wait(fresh())
    drained(manager)
    assert manager.must_wait(fresh()), "five are out"
    manager.completed(before)
    manager.completed(pieces[0])
    assert manager.must_wait(behind), "in the order of their sequences"
    assert not manager.must_wait(pieces[1])
    assert not manager.must_wait(fresh())
    manager.completed(pieces[1])
    for _ in range(3):
        drained(manager)
    assert manager.must_wait(fresh()), "five are out again, and not fewer: the batch behind the halves has moved on too"


def test_acknowledgements_out_of_order_leave_no_gap() -> None:
    """A batch after the failed one was stored, so that one was, too; later responses about older ones add nothing."""
    manager = make_manager()
    first, given_up, last = drained(manager), drained(manager), drained(manager)
    manager.failed(given_up)
    manager.completed(last)
    manager.completed(first)
    assert manager.resolve_sequences() == []
    settle(manager)
    assert place(drained(manager)) == (9, 0, 3)


@pytest.mark.parametrize("code", [OUT_OF_ORDER, UNKNOWN_ID])
def test_part_of_possibly_stored_batch_keeps_its_sequence(code: ErrorCode) -> None:
    manager = make_manager()
    whole = drained(manager, 2)
    whole.attempts = 1
    pieces = whole.split()
    manager.split(whole, pieces)
    assert not manager.can_retry(pieces[0], code, LOG_START), "the whole may be what the broker has instead"
    assert manager.can_retry(pieces[0], ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
    settle(manager)
    assert [place(piece) for piece in pieces] == [(9, 0, 0), (9, 0, 1)]


def test_unknown_producer_without_log_start_is_only_retried() -> None:
    manager = make_manager()
    batch = drained(manager)
    assert manager.can_retry(batch, UNKNOWN_ID, NO_OFFSET)
    settle(manager)
    assert place(batch) == (9, 0, 0)


@with_each(
    ("code", "retriable"),
    [
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.MESSAGE_TOO_LARGE, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
    ],
)
def test_other_errors_are_retried_if_they_are_retriable(code: ErrorCode, retriable: bool) -> None:
    manager = make_manager()
    assert manager.can_retry(drained(manager), code, NO_OFFSET) is retriable


# --- batches that are given up ---------------------------------------------------------------------------------------


def test_a_refused_batch_leaves_a_gap_that_a_new_epoch_closes() -> None:
    manager = make_manager()
    manager.failed(drained(manager, 3))
    settle(manager)
    assert place(drained(manager)) == (9, 1, 0)


def test_refusal_keeps_sequence_of_a_later_possibly_stored_batch() -> None:
    manager = make_manager()
    refused, behind = drained(manager, 3), drained(manager, 2)
    manager.failed(refused)
    settle(manager)
    assert place(behind) == (9, 0, 3), "under another sequence the broker would store it twice"
    manager.completed(behind)
    settle(manager)
    assert place(drained(manager)) == (9, 0, 5), "it was stored, so there was no gap"


def test_refused_batch_keeps_sequence_of_an_earlier_batch() -> None:
    manager = make_manager()
    before, refused, behind = drained(manager), drained(manager), drained(manager)
    manager.failed(refused)
    settle(manager)
    assert (place(before), place(behind)) == ((9, 0, 0), (9, 0, 2)), "the first may be stored already"
    assert manager.must_wait(fresh())
    manager.completed(before)
    gap_before(manager, behind)
    assert place(behind) == (9, 1, 0)


def test_a_batch_that_never_had_a_sequence_leaves_no_gap() -> None:
    manager = make_manager()
    drained(manager)
    manager.failed(fresh())
    settle(manager)
    assert manager.identity.epoch == 0
    assert drained(manager).base_sequence == 1


@pytest.mark.behaviour("Idempotence", "Nothing new is sent while it is unknown whether a batch was stored")
def test_nothing_new_leaves_while_a_batch_is_unsettled() -> None:
    manager = make_manager()
    unknown, behind = drained(manager), drained(manager)
    manager.failed(unknown)
    settle(manager)
    assert manager.must_wait(fresh())
    assert manager.identity.epoch == 0
    assert place(behind) == (9, 0, 1), "what may follow a stored batch keeps its sequence"
    assert not manager.must_wait(behind)


def test_later_acknowledgement_shows_that_batch_was_stored() -> None:
    manager = make_manager()
    unknown, behind = drained(manager), drained(manager)
    manager.failed(unknown)
    manager.completed(behind)
    settle(manager)
    assert manager.identity.epoch == 0
    assert drained(manager).base_sequence == 2


def test_later_sequence_gap_shows_that_batch_was_not_stored() -> None:
    manager = make_manager()
    unknown, behind = drained(manager, 3), drained(manager, 2)
    manager.failed(unknown)
    gap_before(manager, behind)
    assert place(behind) == (9, 1, 0)
    manager.completed(behind)
    assert drained(manager).base_sequence == 2, "nothing is unresolved any more"


def test_unsettled_batch_alone_in_flight_bumps_the_epoch() -> None:
    manager = make_manager()
    manager.completed(drained(manager))
    unknown = drained(manager)
    manager.failed(unknown)
    settle(manager)
    assert place(drained(manager)) == (9, 1, 0)


def test_an_out_of_order_error_has_its_own_exception() -> None:
    assert isinstance(error_for(OUT_OF_ORDER), OutOfOrderSequenceError)


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_new_epoch_waits_for_partitions_in_flight_under_old_one() -> None:
    manager = make_manager()
    elsewhere = drained(manager, 2, OTHER)
    batch = drained(manager)
    gap_before(manager, batch)
    assert place(elsewhere) == (9, 0, 0), "nothing was wrong there"
    assert not manager.must_wait(elsewhere)
    assert manager.must_wait(fresh(1, OTHER)), "a new epoch must not overtake the old one"
    manager.completed(elsewhere)
    assert place(drained(manager, 1, OTHER)) == (9, 1, 0)


def test_old_epoch_acknowledgement_does_not_count_in_new_epoch() -> None:
    manager = make_manager()
    old = drained(manager, 6, OTHER)
    batch = drained(manager)
    gap_before(manager, batch)
    manager.completed(old)
    new = drained(manager, 2, OTHER)
    assert new.base_sequence == 0
    manager.completed(new)
    unknown = drained(manager, 1, OTHER)
    manager.failed(unknown)
    settle(manager)
    assert manager.identity.epoch == 2, "sequence 2 is missing, whatever the old epoch had"


def test_after_the_last_epoch_a_new_id_is_asked_for() -> None:
    manager = make_manager(epoch=2**15 - 1)
    batch = drained(manager, 2)
    gap_before(manager, batch)
    assert not manager.identity.is_valid
    assert manager.must_wait(batch)
    assert place(batch) == (9, 2**15 - 1, 0), "not rewritten before there is an id to rewrite it to"
    manager.assign_producer_id(77, 0)
    assert place(batch) == (77, 0, 0)
    assert not manager.must_wait(batch)
    manager.completed(batch)
    assert place(drained(manager)) == (77, 0, 2)


def test_epoch_bump_during_id_request_waits_for_that_id() -> None:
    manager = make_manager(epoch=2**15 - 1)
    batch, elsewhere = drained(manager), drained(manager, 3, OTHER)
    gap_before(manager, batch)
    gap_before(manager, elsewhere)
    assert not manager.identity.is_valid
    assert place(elsewhere) == (9, 2**15 - 1, 0)
    manager.assign_producer_id(77, 0)
    settle(manager)
    assert manager.identity == ProducerIdAndEpoch(77, 0)
    assert (place(batch), place(elsewhere)) == ((77, 0, 0), (77, 0, 0))
