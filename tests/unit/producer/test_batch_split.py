"""A batch that a broker finds too large is split and sent again, and callers do not notice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.common.errors import ErrorCode, RecordTooLargeError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.producer.batching.producer_batch import FinalState, ProducerBatch
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.transactions.idempotence import IdempotenceManager
from kafka_sink.records.layout import HEADER_BYTES
from tests.fakes.batches import append, make_batch, read_wire
from tests.fakes.brokers import SILENCE
from tests.fakes.chunks import Row
from tests.fakes.producing import TOPIC, append_columns, queued
from tests.fakes.sender_world import SenderWorld
from tests.support.amounts import examples
from tests.support.cases import with_each

ROOMY = 1_000_000


def records_of(batch: ProducerBatch) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    batch.close()
    _, records = read_wire(batch.wire)
    assert [record.offset for record in records] == list(range(len(records)))
    return [(record.timestamp, record.key, record.value, list(record.headers)) for record in records]


@pytest.mark.behaviour("Batch split", "The pieces of a split batch hold the same records")
@settings(max_examples=examples(240), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**41),
            st.none() | st.binary(max_size=70),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        ),
        min_size=2,
        max_size=80,
    )
)
def test_the_pieces_hold_the_records_as_they_were(
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    batch = make_batch(room=ROOMY)
    for timestamp, key, value, headers in rows:
        append(batch, value, key=key, timestamp=timestamp, headers=headers)
    head, tail = batch.split()
    assert head.record_count + tail.record_count == len(rows)
    assert min(head.record_count, tail.record_count) >= 1
    assert records_of(head) + records_of(tail) == rows
    for piece in (head, tail):
        view, records = read_wire(piece.wire)
        assert view.header.max_timestamp == max(record.timestamp for record in records)
        assert view.header.base_timestamp == records[0].timestamp
        assert piece.room_bytes == 0


def test_split_halves_the_bytes_and_not_the_record_count() -> None:
    batch = make_batch(room=ROOMY, values=[b"x" * 1000, *[b"y"] * 100])
    head, tail = batch.split()
    assert (head.record_count, tail.record_count) == (1, 100)
    batch = make_batch(room=ROOMY, values=[*[b"y"] * 100, b"x" * 1000])
    head, tail = batch.split()
    assert (head.record_count, tail.record_count) == (100, 1)


def test_one_record_cannot_be_split_nor_a_batch_that_has_ended() -> None:
    with pytest.raises(ValueError, match="cannot be split"):
        make_batch(values=[b"only"]).split()
    ended = make_batch(values=[b"a", b"b"])
    ended.done(0, NO_TIMESTAMP, None)
    with pytest.raises(RuntimeError, match="succeeded was split"):
        ended.split()


@pytest.mark.behaviour(
    "Batch split", "Futures and runs of columns follow their records into the pieces, and the pieces of pieces"
)
def test_futures_follow_their_records_through_repeated_splits() -> None:
    batch = make_batch(room=ROOMY)
    futures = [append(batch, str(n).encode()) for n in range(8)]
    head, tail = batch.split()
    assert batch.final_state is FinalState.SPLIT
    first, second = tail.split()
    first.done(500, NO_TIMESTAMP, None)
    assert [future.done() for future in futures] == [False] * head.record_count + [True] * first.record_count + [
        False
    ] * second.record_count
    assert not batch.result.wait(0)
    assert not batch.result.wait(10)
    head.done(100, NO_TIMESTAMP, None)
    second.done(900, NO_TIMESTAMP, None)
    assert batch.result.wait(0)
    places = [future.result(0).offset for future in futures]
    counts = (head.record_count, first.record_count, second.record_count)
    assert places == [base + n for base, count in zip((100, 500, 900), counts, strict=True) for n in range(count)]


@pytest.mark.behaviour(
    "Batch split", "Futures and runs of columns follow their records into the pieces, and the pieces of pieces"
)
def test_a_run_of_columns_is_told_of_every_piece() -> None:
    told: list[Delivery] = []
    world = SenderWorld(batch_size=20_000)
    world.connect()
    rows = [Row(value=f"row-{n:05}".encode(), partition=0) for n in range(300)]
    append_columns(world.accumulator, rows, callback=told.append, clock=world.clock)
    (batch,) = queued(world.accumulator)
    world.brokers.max_message_bytes = batch.size_bytes // 3
    world.settle()
    assert world.brokers.values() == [row.value for row in rows]
    assert len(told) == 4
    ends = [delivery.base_offset + delivery.count for delivery in told]
    assert [delivery.base_offset for delivery in told] == [0, *ends[:-1]]
    assert ends[-1] == 300
    assert all(delivery.error is None for delivery in told)
    assert world.metrics.snapshot(0)["batch-split-total"] == 3
    world.assert_memory_is_back()


@pytest.mark.behaviour(
    "Batch split", "Pieces of batches that were too large arrive in order, with consecutive sequence numbers"
)
@with_each("codec", ["none", "lz4"])
@with_each("idempotent", [True, False])
def test_too_large_batches_arrive_in_order_and_whole(codec: str, idempotent: bool) -> None:
    rng = random.Random(1)
    values = [rng.randbytes(90) for _ in range(400)]
    world = SenderWorld(
        batch_size=16_000,
        compression_type=codec,
        enable_idempotence=idempotent,
        max_in_flight_requests_per_connection=5 if idempotent else 1,
    )
    world.connect()
    world.brokers.max_message_bytes = 2_000
    futures = world.sent(*values)
    assert world.brokers.values() == values
    assert [future.result(0).offset for future in futures] == list(range(400))
    assert world.acknowledged == 400
    world.assert_memory_is_back()
    if idempotent:
        sequences = [
            (batch.header.base_sequence, batch.header.record_count)
            for batch in world.brokers.batches[0]
            if batch.header.size_in_bytes <= 2_000
        ]
        assert [first for first, _ in sequences] == [sum(n for _, n in sequences[:i]) for i in range(len(sequences))]


@pytest.mark.behaviour("Batch split", "Only the record that is too large by itself fails")
def test_only_the_record_that_is_too_large_by_itself_fails() -> None:
    world = SenderWorld(batch_size=10_000)
    world.connect()
    world.brokers.max_message_bytes = 1_500
    values = [b"a" * 100, b"b" * 100, b"L" * 3_000, b"c" * 100, b"d" * 100]
    futures = world.sent(*values)
    with pytest.raises(RecordTooLargeError, match=r"of 3070 bytes in a batch .*raise max\.message\.bytes of the topic"):
        futures[2].result(0)
    assert world.brokers.values() == [values[n] for n in (0, 1, 3, 4)]
    assert [futures[n].result(0).offset for n in (0, 1, 3, 4)] == [0, 1, 2, 3]
    assert (world.acknowledged, world.failed) == (4, 1)
    world.assert_memory_is_back()


@pytest.mark.behaviour("Batch split", "The error of a batch that cannot be split tells both reasons")
def test_a_batch_that_cannot_be_split_fails_with_both_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SenderWorld(batch_size=10_000)
    world.connect()
    world.brokers.verdicts[0].append(ErrorCode.MESSAGE_TOO_LARGE)
    futures = world.send(b"a", b"b")
    with monkeypatch.context() as patched:
        patched.setattr(ProducerBatch, "split", lambda _: 1 / 0)
        world.settle()
    for future in futures:
        with pytest.raises(RecordTooLargeError, match=r"send a smaller record.*not split: ZeroDivisionError"):
            future.result(0)
    (fine,) = world.sent(b"fine")
    assert fine.result(0).offset == 0
    world.assert_memory_is_back()


def test_pieces_that_cannot_be_split_further_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SenderWorld(batch_size=10_000)
    world.connect()
    world.brokers.verdicts[0].append(ErrorCode.MESSAGE_TOO_LARGE)
    futures = world.send(*[b"x" * 100] * 16)
    # Another batch was refused before: this one is split twice.
    world.accumulator.limit_batches(TOPIC, 500)
    split = ProducerBatch.split
    whole: list[ProducerBatch] = []

    def split_once(batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        if whole:
            raise MemoryError
        whole.append(batch)
        return split(batch)

    monkeypatch.setattr(ProducerBatch, "split", split_once)
    world.settle()
    assert [future.result(0).offset for future in futures] == list(range(16))
    world.assert_memory_is_back()


def test_splitting_a_batch_uses_up_no_retry() -> None:
    world = SenderWorld(batch_size=10_000, retries=1)
    world.connect()
    world.brokers.max_message_bytes = HEADER_BYTES + 150
    futures = world.sent(*[b"x" * 100] * 16)
    assert [future.result(0).offset for future in futures] == list(range(16))


@pytest.mark.behaviour("Batch split", "Pieces keep the age of their batch, and expire with it")
def test_pieces_keep_the_age_of_the_batch_and_expire_with_it() -> None:
    world = SenderWorld(batch_size=10_000, delivery_timeout_ms=35_000)
    world.connect()
    world.brokers.max_message_bytes = 600
    world.brokers.verdicts[0].extend([ErrorCode.MESSAGE_TOO_LARGE, SILENCE, SILENCE, SILENCE])
    began = world.clock.now_ms
    futures = world.send(*[b"x" * 100] * 8)
    world.clock.advance(100)
    world.settle()
    assert all(future.done() for future in futures)
    assert world.failed == 8
    assert {at_ms - began for at_ms in world.told_at} == {35_000}
    world.step(5)
    world.clock.advance(40_000)
    world.step(5)
    world.assert_memory_is_back()


@pytest.mark.behaviour("Batch split", "The size that a topic accepts is learnt, and said once for each topic")
@pytest.mark.parametrize("as_columns", [True, False])
def test_later_batches_are_not_as_large_again(as_columns: bool, caplog: pytest.LogCaptureFixture) -> None:
    world = SenderWorld(batch_size=20_000)
    world.connect()
    world.brokers.max_message_bytes = 2_000
    rows = [Row(value=f"row-{n:05}".encode(), partition=0) for n in range(900)]
    for _ in range(4):
        if as_columns:
            append_columns(world.accumulator, rows, clock=world.clock)
        else:
            world.send(*[row.value or b"" for row in rows])
        world.settle()
    splits = world.metrics.snapshot(0)["batch-split-total"]
    assert splits < 10
    for _ in range(4):
        append_columns(world.accumulator, rows, clock=world.clock)
        world.settle()
    assert world.metrics.snapshot(0)["batch-split-total"] == splits
    assert world.brokers.values() == [row.value for row in rows] * 8
    batches = [batch.header.size_in_bytes for batch in world.brokers.batches[0]]
    assert min(batches[-5:-1]) > 1_000 - 100
    (line,) = [record for record in caplog.records if "is split and sent again" in record.getMessage()]
    assert "batches of topic orders become smaller" in line.getMessage()
    world.assert_memory_is_back()


def test_a_flush_waits_for_the_pieces() -> None:
    world = SenderWorld(batch_size=10_000)
    world.connect()
    world.send(b"a", b"b")
    (batch,) = queued(world.accumulator)
    world.brokers.verdicts[0].append(ErrorCode.MESSAGE_TOO_LARGE)
    while batch.final_state is None:
        world.sender.run_once()
    assert not batch.result.wait(0)
    world.settle()
    assert batch.result.wait(0)


def test_an_abort_ends_the_pieces() -> None:
    world = SenderWorld(batch_size=10_000)
    world.connect()
    futures = world.send(b"a", b"b", b"c")
    world.brokers.verdicts[0].extend([ErrorCode.RECORD_LIST_TOO_LARGE, SILENCE])
    world.step(3)
    world.drain.abort_batches(lambda _: RecordTooLargeError("given up"))
    for future in futures:
        with pytest.raises(RecordTooLargeError, match="given up"):
            future.result(0)
    assert world.failed == 3


@pytest.mark.behaviour("Batch split", "Pieces of a transactional batch are transactional")
def test_the_pieces_of_a_transactional_batch_are_transactional() -> None:
    manager = IdempotenceManager(ContextLogger(__name__, "test"), transactional=True)
    manager.assign_producer_id(9, 3)
    batch = make_batch(room=ROOMY, values=[b"a", b"b", b"c", b"d"])
    manager.assign_sequence(batch)
    pieces = batch.split()
    manager.split(batch, pieces)
    headers = []
    for piece in pieces:
        piece.close()
        view, _ = read_wire(piece.wire)
        headers.append(view.header)
        assert view.is_transactional
    assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [(9, 3, 0), (9, 3, 2)]
    assert not manager.must_wait(pieces[0])
    assert manager.must_wait(pieces[1]), "it follows the first"
