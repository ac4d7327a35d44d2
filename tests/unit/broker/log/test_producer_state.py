"""Duplicates, gaps and epochs of idempotent producers."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.producer_state import AbortedRange, ProducerStateManager, VerificationGuard
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import TransactionVersion
from kafka_sink.records.batch import BatchHeader
from kafka_sink.records.control import EndTransactionMarker
from tests.fakes.record_batches import with_header
from tests.support.cases import with_each

LAST_SEQUENCE = 2**31 - 1


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    return with_header([b"v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)[1]


def filled(batches: int, *, size: int = 10) -> ProducerStateManager:
    producers = ProducerStateManager(expiration_ms=1000)
    for number in range(batches):
        producers.update(header(number * size, size), number * size, wall_ms=0)
    return producers


def refused(producers: ProducerStateManager, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        producers.check(batch)
    return caught.value.code


def test_the_next_sequence_is_taken() -> None:
    assert filled(3).check(header(30)) is None


@pytest.mark.behaviour("Log", "Each of the last five batches is known by its offsets")
def test_each_of_the_last_five_batches_is_known_by_its_offsets() -> None:
    producers = filled(8)
    for number in range(3, 8):
        duplicate = producers.check(header(number * 10, 10))
        assert duplicate is not None
        assert (duplicate.base_offset, duplicate.last_offset) == (number * 10, number * 10 + 9)


@pytest.mark.behaviour("Log", "An older batch is out of order")
def test_an_older_batch_is_out_of_order() -> None:
    assert refused(filled(6), header(0, 10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@with_each("sequence", [31, 29, 25, 1000])
def test_a_gap_or_an_overlap_is_out_of_order(sequence: int) -> None:
    assert refused(filled(3), header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_same_first_sequence_with_other_length_is_no_duplicate() -> None:
    assert refused(filled(3), header(20, 9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert filled(1).check(header(500, producer=8)) is None


def test_an_older_epoch_is_refused() -> None:
    producers = ProducerStateManager(1000)
    producers.update(header(0, epoch=3), 0, wall_ms=0)
    assert refused(producers, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    producers = filled(2)
    assert refused(producers, header(20, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=1)) is None
    producers.update(header(0, epoch=1), 20, wall_ms=0)
    # Batches of the old epoch are forgotten with it: sequence 0 of this epoch is the new one.
    duplicate = producers.check(header(0, epoch=1))
    assert duplicate is not None and duplicate.base_offset == 20


def test_sequences_wrap_to_zero_between_batches_and_inside_one() -> None:
    producers = ProducerStateManager(1000)
    producers.update(header(LAST_SEQUENCE), 0, wall_ms=0)
    assert producers.check(header(0)) is None
    producers = ProducerStateManager(1000)
    producers.update(header(LAST_SEQUENCE - 1, 5), 0, wall_ms=0)
    assert producers.check(header(3)) is None
    assert producers.check(header(LAST_SEQUENCE - 1, 5)) is not None


def test_checking_a_sequence_changes_no_producer_state() -> None:
    producers = filled(1)
    for _ in range(3):
        assert producers.check(header(10)) is None


def test_batch_without_producer_id_changes_no_producer_state() -> None:
    producers = ProducerStateManager(1000)
    producers.update(with_header([b"v"])[1], 0, wall_ms=0)
    assert producers.to_bytes() == ProducerStateManager(1000).to_bytes()


def test_silent_producers_are_forgotten() -> None:
    producers = ProducerStateManager(expiration_ms=1000)
    producers.update(header(0, producer=1), 0, wall_ms=0)
    producers.update(header(0, producer=2), 1, wall_ms=500)
    producers.expire(wall_ms=1200)
    assert producers.check(header(99, producer=1)) is None
    assert refused(producers, header(99, producer=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_brings_everything_back() -> None:
    snapshot = filled(8).to_bytes()
    producers = ProducerStateManager(1000)
    assert producers.load(snapshot)
    assert producers.to_bytes() == snapshot
    assert producers.check(header(80)) is None
    assert producers.check(header(70, 10)) is not None


@with_each("snapshot", [b"", b"{", b"null", b"3", b"[[1]]", b'[[1,2,3,[["a",2,3,4]]]]', b"[[1,2,3,[]]]"])
def test_a_damaged_snapshot_is_refused_and_changes_nothing(snapshot: bytes) -> None:
    producers = filled(1)
    before = producers.to_bytes()
    assert not producers.load(snapshot)
    assert producers.to_bytes() == before


def test_producers_that_come_once_take_little_and_not_for_long() -> None:
    producers, day_ms = ProducerStateManager(BrokerConfig().producer_id_expiration_ms), 86_400_000
    batches = [header(0, producer=number) for number in range(1000)]
    tracemalloc.start()
    try:
        for batch in batches:
            producers.update(batch, 0, wall_ms=0)
        assert tracemalloc.get_traced_memory()[0] < 600 * len(batches)
    finally:
        tracemalloc.stop()
    producers.expire(day_ms)
    assert len(producers.states) == 1000
    producers.expire(day_ms + 1)
    assert len(producers.states) == 0


def transactional(sequence: int, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    options: dict[str, int] = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return with_header([b"v"], is_transactional=True, **options)[1]


def aborting(producers: ProducerStateManager, producer: int, first: int, last: int) -> AbortedRange:
    """A transaction of *producer* from *first* to its marker at *last*."""
    producers.update(transactional(0, producer=producer), first, wall_ms=0)
    producers.complete(EndTransactionMarker(producer, 0, False, 0), last, wall_ms=0)
    return AbortedRange(producer, first, last)


def test_a_snapshot_has_all_that_is_known() -> None:
    producers = ProducerStateManager(1000)
    for number in range(6):
        producers.update(header(number * 2, 2, epoch=1), number * 2, wall_ms=number)
    aborting(producers, 8, 12, 13)
    producers.update(transactional(0, producer=9), 14, wall_ms=60)
    producers.complete(EndTransactionMarker(10, 4, True, 11), 15, wall_ms=70)
    snapshot = {
        "format": 2,
        "producers": [
            [7, 1, 5, [[first, first + 1, first, first + 1, 1001] for first in range(2, 12, 2)], -1, 1001, -1],
            [8, 0, 0, [[0, 0, 12, 12, 1000]], 0, 0, -1],
            [9, 0, 60, [[0, 0, 14, 14, 1000]], -1, 1000, 14],
            [10, 4, 70, [], 11, 70, -1],
        ],
        "aborted": [[8, 12, 13]],
    }
    assert json.loads(producers.to_bytes()) == snapshot
    again = ProducerStateManager(1000)
    assert again.load(json.dumps(snapshot).encode())
    assert again.states == producers.states
    assert (list(again.aborted), again.first_unstable_offset) == ([AbortedRange(8, 12, 13)], 14)
    assert [again.states[producer].last_sequence for producer in (7, 10)] == [11, -1]


def test_a_snapshot_names_the_oldest_open_transaction() -> None:
    # In an order other than that of the producers or of the offsets.
    producers = ProducerStateManager(1000)
    for producer, offset in ((5, 30), (3, 20), (4, 25)):
        producers.update(transactional(0, producer=producer), offset, wall_ms=0)
    again = ProducerStateManager(1000)
    assert again.load(producers.to_bytes())
    found = []
    while (first := again.first_unstable_offset) is not None:
        found.append(first)
        (producer,) = (key for key, state in again.states.items() if state.transaction_first_offset == first)
        again.complete(EndTransactionMarker(producer, 0, True, 0), 40, wall_ms=0)
    assert found == [20, 25, 30]


@with_each(
    "snapshot",
    [
        b'{"format":1,"producers":[],"aborted":[]}',
        b'{"format":3,"producers":[],"aborted":[]}',
        b'{"producers":[],"aborted":[]}',
        b'{"format":2,"aborted":[]}',
        b'{"format":2,"producers":[]}',
        b'{"format":2,"producers":[[1,2]],"aborted":[]}',
        b'{"format":2,"producers":[],"aborted":[[1,2]]}',
        b'{"format":2,"producers":[],"aborted":[["a",2,3]]}',
    ],
)
def test_a_snapshot_of_another_format_changes_nothing(snapshot: bytes) -> None:
    producers = filled(1)
    before = producers.to_bytes()
    assert not producers.load(snapshot)
    assert producers.to_bytes() == before
    assert producers.load(b'{"format":2,"producers":[],"aborted":[]}')
    assert not producers.states


def test_aborted_transactions_are_those_with_records_there() -> None:
    producers = ProducerStateManager(1000)
    # In the order of their markers: one that contains another one, one of a single record, and two that overlap.
    known = [aborting(producers, *of) for of in ((1, 2, 3), (2, 1, 5), (3, 7, 9), (4, 6, 11), (5, 12, 13))]
    assert list(producers.aborted) == known
    for start in range(15):
        for end in range(start, 16):
            expected = [each for each in known if each.last_offset >= start and each.first_offset < end]
            assert producers.aborted_between(start, end) == sorted(expected, key=lambda each: each.first_offset)


@with_each(("start", "left"), [(0, 2), (3, 2), (4, 1), (8, 1), (9, 1), (10, 0)])
def test_aborted_transactions_go_with_their_markers(start: int, left: int) -> None:
    producers = ProducerStateManager(1000)
    producers.forget_aborted_before(start)
    known = [aborting(producers, *of) for of in ((1, 2, 3), (2, 5, 9))]
    producers.forget_aborted_before(start)
    assert list(producers.aborted) == known[2 - left :]


def test_aborted_transactions_without_records_are_forgotten() -> None:
    producers = ProducerStateManager(1000)
    first, second, third = (aborting(producers, *of) for of in ((1, 2, 3), (2, 5, 9), (1, 10, 11)))
    producers.forget_aborted(())
    assert list(producers.aborted) == [first, second, third]
    producers.forget_aborted({first, third})
    assert list(producers.aborted) == [second]


def test_only_its_own_epoch_has_an_open_transaction() -> None:
    producers = ProducerStateManager(1000)
    producers.update(transactional(0, epoch=3), 0, wall_ms=0)
    producers.update(header(0, producer=8), 1, wall_ms=0)
    asked = ((7, 3), (7, 2), (7, 4), (8, 0), (9, 0))
    assert [producers.has_open_transaction(*of) for of in asked] == [True, False, False, False, False]


def test_only_a_marker_of_version_2_ends_the_previous() -> None:
    marker = EndTransactionMarker(7, 4, True, 0)
    guards = [VerificationGuard(7, epoch, version) for version in TransactionVersion for epoch in (3, 4, 5)]
    ending = [(guard.transaction_version, guard.epoch) for guard in guards if guard.ends_the_previous(marker)]
    assert ending == [(TransactionVersion.V2, 4)]


def test_the_lowest_sequence_of_an_epoch_is_waited_for() -> None:
    producers = ProducerStateManager(1000)
    for epoch, sequence in ((3, 5), (3, 4), (3, 6), (2, 0)):
        producers.begin_verification(7, epoch, sequence, wall_ms=0)
    # The sequence of an older epoch does not apply to this one.
    assert producers.check(transactional(4, epoch=3)) is None
    assert refused(producers, transactional(5, epoch=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Other epochs, batches outside of transactions and other producers are not restricted.
    assert producers.check(transactional(9, epoch=2)) is None
    assert producers.check(header(9, epoch=3)) is None
    assert producers.check(transactional(9, epoch=3, producer=8)) is None
    # A newer epoch starts without the earlier state.
    producers.begin_verification(7, 4, 8, wall_ms=0)
    assert producers.check(transactional(8, epoch=4)) is None
    assert refused(producers, transactional(9, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_verification_is_remembered_for_longer() -> None:
    producers = ProducerStateManager(expiration_ms=1000)
    producers.begin_verification(7, 3, 5, wall_ms=0)
    producers.begin_verification(7, 3, 5, wall_ms=600)
    producers.expire(1600)
    assert refused(producers, transactional(6, epoch=3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.expire(1601)
    assert producers.check(transactional(6, epoch=3)) is None


def test_a_verification_leaves_nothing_behind() -> None:
    producers = ProducerStateManager(expiration_ms=1000)
    tracemalloc.start()
    try:
        for number in range(1000):
            producers.end_verification(producers.begin_verification(number, 0, 0, wall_ms=0))
        producers.expire(1001)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
