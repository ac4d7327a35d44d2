"""Duplicates, gaps and epochs of idempotent producers."""

from __future__ import annotations

import tracemalloc

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.producer_state import ProducerStateManager
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.records.batch import BatchHeader
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
