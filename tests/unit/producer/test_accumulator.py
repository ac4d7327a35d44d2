"""The queues between the threads that send records and the sender thread."""

from __future__ import annotations

import threading

import pytest

from kafka_sink.common.errors import BufferExhaustedError, KafkaError, KafkaTimeoutError, TransactionStateError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.producer.batching.accumulator import AppendResult, EncodedRows
from kafka_sink.producer.batching.buffer_pool import BatchMemory
from kafka_sink.producer.futures import Delivery
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size, write_record
from tests.fakes.batches import read_wire
from tests.fakes.clock import FakeClock, on_another_thread
from tests.fakes.producing import (
    LARGE,
    TOPIC,
    Straggler,
    append,
    append_record,
    drain,
    finish,
    is_ready,
    make_accumulator,
    make_cluster,
    queue_of,
    queued,
    tp,
    values,
)
from tests.support.cases import with_each
from tests.unit.producer.gated import GivenTransactions, gated_accumulator

# --- append ----------------------------------------------------------------------------------------------------------


def test_records_of_a_partition_share_a_batch_until_it_is_full() -> None:
    accumulator = make_accumulator(FakeClock())
    first = append(accumulator)
    assert (first.new_batch_created, first.batch_is_full, first.abort_for_new_batch) == (True, False, False)
    second = append(accumulator)
    assert (second.new_batch_created, second.batch_is_full) == (False, False)
    assert len(queued(accumulator)) == 1
    third = append(accumulator, value=b"x" * 990)
    assert (third.new_batch_created, third.batch_is_full) == (True, True), "an older batch is complete now"
    assert [batch.record_count for batch in queued(accumulator)] == [2, 1]
    assert not any(batch.room_bytes > 100 for batch in queued(accumulator))


def test_the_record_that_fills_a_batch_says_so() -> None:
    size = record_size(0, 0, None, b"v")
    accumulator = make_accumulator(FakeClock(), batch_size=HEADER_BYTES + 2 * size)
    assert not append(accumulator).batch_is_full
    assert append(accumulator).batch_is_full


def test_an_older_batch_can_be_sent_whichever_the_newest_is() -> None:
    accumulator = make_accumulator(FakeClock())
    assert not append(accumulator, value=LARGE).batch_is_full
    second = append(accumulator, value=LARGE)
    assert (second.new_batch_created, second.batch_is_full) == (True, True)
    third = append(accumulator)
    assert (third.new_batch_created, third.batch_is_full, third.abort_for_new_batch) == (False, True, False)
    assert not queued(accumulator)[-1].is_full


def test_a_record_joins_an_open_batch_that_it_does_not_fill() -> None:
    size = record_size(0, 0, None, b"v")
    accumulator = make_accumulator(FakeClock(), batch_size=HEADER_BYTES + 3 * size)

    def joins() -> bool:
        return accumulator.append_to_open_batch(TOPIC, 0, 5000, None, b"v", (), None) is not None

    assert not joins(), "there is no queue"
    queue_of(accumulator)
    assert not joins(), "there is no batch"
    append(accumulator)
    assert joins()
    assert not joins(), "it would fill the batch"
    assert append(accumulator).batch_is_full
    (batch,) = queued(accumulator)
    assert batch.record_count == 3


def test_rows_do_not_join_a_batch_that_is_being_drained() -> None:
    accumulator, encoded = make_accumulator(FakeClock()), bytearray()
    append(accumulator)
    write_record(encoded, 1, 0, None, b"row")
    rows = EncodedRows(memoryview(encoded), 1, 5000, 5000, None)
    # The batch has left its queue, and is not closed yet.
    drained = queue_of(accumulator).batches.popleft()
    assert not accumulator.continue_batch(drained, 1, rows)
    append(accumulator)
    assert not accumulator.continue_batch(drained, 1, rows)
    assert drained.record_count == 1
    assert accumulator.continue_batch(queued(accumulator)[0], 1, rows)


def test_an_append_wakes_a_sender_that_others_wait_for() -> None:
    accumulator = make_accumulator(FakeClock())
    woken: list[int] = []
    accumulator.pool.wake_sender = lambda: woken.append(1)
    append(accumulator)
    assert woken == []
    with pytest.raises(KafkaTimeoutError):
        accumulator.flush(10, lambda: on_another_thread(lambda: append(accumulator)))
    assert woken == [1]


@with_each(("linger_ms", "told"), [(0, True), (49, True), (50, False)])
def test_a_long_linger_tells_of_no_new_batches(linger_ms: int, told: bool) -> None:
    assert make_accumulator(FakeClock(), linger_ms=linger_ms).tells_of_new_batches is told


def test_batches_of_a_topic_only_become_smaller() -> None:
    accumulator = make_accumulator(FakeClock())
    assert [accumulator.limit_batches(TOPIC, size) for size in (1001, 1000, 500, 700, 500, 499)] == [
        *(1000, 1000),
        *(500, 500, 500, 499),
    ]
    assert accumulator.new_batch(TOPIC).room_bytes == 499 - HEADER_BYTES
    assert accumulator.new_batch("payments").room_bytes == 1000 - HEADER_BYTES


def test_appends_count_before_they_have_added_a_batch() -> None:
    accumulator = make_accumulator(FakeClock())
    assert not accumulator.has_incomplete_or_appends
    assert accumulator.appending(lambda: accumulator.has_incomplete_or_appends)
    append(accumulator)
    assert accumulator.has_incomplete_or_appends
    (batch,) = drain(accumulator)
    finish(accumulator, batch)
    assert not accumulator.has_incomplete_or_appends


@pytest.mark.behaviour("RecordAccumulator", "Only the newest batch of a partition takes records")
def test_only_the_newest_batch_takes_records() -> None:
    accumulator = make_accumulator(FakeClock())
    for value in (LARGE, LARGE, b"small"):
        append(accumulator, value=value)
    assert [batch.record_count for batch in queued(accumulator)] == [1, 2]


@pytest.mark.behaviour("KafkaProducer", "A full batch moves records without a key on to another partition")
def test_append_with_abort_on_new_batch_allocates_nothing() -> None:
    accumulator = make_accumulator(FakeClock())
    result = append(accumulator, abort_on_new_batch=True)
    assert result == AppendResult(None, False, False, True)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert not queued(accumulator)
    append(accumulator)
    assert append(accumulator, abort_on_new_batch=True).future is not None
    before = accumulator.pool.available_memory
    assert append(accumulator, value=b"x" * 990, abort_on_new_batch=True).abort_for_new_batch
    assert accumulator.pool.available_memory == before
    assert queued(accumulator)[0].is_full, "it is complete: nothing more will be put into it"


def test_record_larger_than_batch_size_gets_its_own_batch() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=100)
    result = append(accumulator, value=b"x" * 500)
    assert result.batch_is_full
    append(accumulator, value=b"")
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1]
    (batch,) = drain(accumulator)
    finish(accumulator, batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 100


@pytest.mark.behaviour(
    "RecordAccumulator", "A batch that another thread opened meanwhile is used, and the memory given back"
)
def test_batch_opened_meanwhile_is_used_and_memory_given_back() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, memory=2000)
    hold = accumulator.pool.allocate(2000, 0)

    def other_thread() -> None:
        accumulator.pool.deallocate(hold)
        append(accumulator, value=b"theirs")

    clock.actions.append(other_thread)
    result = append(accumulator, value=b"ours")
    assert (result.new_batch_created, result.batch_is_full) == (False, False)
    (batch,) = queued(accumulator)
    assert batch.record_count == 2
    assert accumulator.pool.available_memory == 1000


@pytest.mark.behaviour("RecordAccumulator", "No lock is held while memory is awaited")
def test_no_lock_is_held_while_memory_is_awaited() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, memory=2000)
    append(accumulator, partition=0)
    append(accumulator, partition=1)

    def other_thread() -> None:
        assert queue_of(accumulator, 0).lock.acquire(blocking=False)
        queue_of(accumulator, 0).lock.release()
        assert append(accumulator, partition=1).future is not None

    clock.actions.append(other_thread)
    with pytest.raises(BufferExhaustedError):
        append(accumulator, value=b"x" * 930)
    assert [queued(accumulator, partition)[0].record_count for partition in (0, 1)] == [1, 2]


def test_batch_age_counts_from_memory_not_from_the_wait_for_it() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, memory=1000)
    hold = accumulator.pool.allocate(1000, 0)

    def later() -> None:
        clock.advance(700)
        accumulator.pool.deallocate(hold)

    clock.actions.append(later)
    append(accumulator)
    assert queued(accumulator)[0].created_ms == clock.now_ms


def test_append_without_memory_in_time_raises_and_leaves_nothing() -> None:
    accumulator = make_accumulator(FakeClock(), memory=1000)
    append(accumulator, partition=0)
    with pytest.raises(BufferExhaustedError):
        append(accumulator, partition=1, max_block_ms=50)
    assert not queued(accumulator, 1)
    assert accumulator.appending(lambda: accumulator.has_incomplete_or_appends)


@pytest.mark.behaviour("RecordAccumulator", "A closed accumulator takes nothing")
def test_a_closed_accumulator_takes_nothing() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)
    accumulator.close()
    with pytest.raises(KafkaError, match="producer closed while send in progress"):
        append(accumulator)
    assert queued(accumulator)[0].record_count == 1


def test_closing_while_memory_is_awaited_ends_the_append() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, memory=1000)
    append(accumulator)
    clock.actions.append(accumulator.close)
    with pytest.raises(KafkaError, match="closed"):
        append(accumulator, partition=1)
    assert not queued(accumulator, 1)


def test_closing_between_memory_and_append_gives_the_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, memory=1000)
    hold = accumulator.pool.allocate(1000, 0)
    # The pool is closed slightly later.
    monkeypatch.setattr(accumulator.pool, "close", lambda: None)

    def close_but_let_the_waiter_have_it() -> None:
        accumulator.pool.deallocate(hold)
        accumulator.close()

    clock.actions.append(close_but_let_the_waiter_have_it)
    with pytest.raises(KafkaError, match="closed"):
        append(accumulator)
    assert accumulator.pool.available_memory == 1000


@with_each(
    ("batch_size", "size", "capacity"),
    [
        (16384, 100, 16384),
        (1000, 100, 1000),
        (1000, 1001, 1001),
        (500_000, 100, 16384),
        (500_000, 16_000, 32_000),
        (500_000, 250_001, 500_000),
        (500_000, 500_001, 500_001),
    ],
)
def test_large_batches_begin_small(batch_size: int, size: int, capacity: int) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=batch_size)
    assert BatchMemory(accumulator.pool, batch_size).capacity_for(size) == capacity


def test_a_batch_that_grows_gives_its_old_memory_back() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=100_000)
    future = append_record(accumulator, value=b"x" * 10_000)
    used = []
    for _ in range(5):
        used.append(accumulator.pool.total_memory - accumulator.pool.available_memory)
        append(accumulator, value=b"x" * 10_000)
    # Twice the required size each time there is not enough, then all of batch.size.
    record = record_size(0, 0, None, b"x" * 10_000)
    doubled = [2 * (HEADER_BYTES + count * record) for count in (1, 3)]
    assert used == [doubled[0], doubled[0], doubled[1], doubled[1], doubled[1]]
    assert accumulator.pool.total_memory - accumulator.pool.available_memory == doubled[1]
    append(accumulator, value=b"x" * 10_000)
    assert accumulator.pool.total_memory - accumulator.pool.available_memory == 100_000
    (batch,) = drain(accumulator)
    assert batch.record_count == 7
    finish(accumulator, batch)
    assert future.done()
    assert accumulator.pool.available_memory == accumulator.pool.total_memory


def test_a_batch_that_cannot_grow_is_complete() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=40_000, memory=70_000)
    append(accumulator, value=b"x" * 10_000)
    accumulator.pool.allocate(25_000, 0)
    result = append(accumulator, value=b"y" * 10_500)
    assert result.new_batch_created
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1]


def test_many_threads_lose_no_record() -> None:
    accumulator = make_accumulator(FakeClock(shared=True), batch_size=200, memory=10**7)
    start = threading.Barrier(4)

    def send(number: int) -> None:
        start.wait()
        for index in range(300):
            append(accumulator, index % 2, b"%d-%d" % (number, index))

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found: list[bytes] = []
    while batches := drain(accumulator, make_cluster([0, 0])):
        for batch in batches:
            assert batch.size_bytes <= 200
            found += [value for value in values(batch) if value is not None]
    assert sorted(found) == sorted(b"%d-%d" % (number, index) for number in range(4) for index in range(300))
    for number in range(4):
        for parity in (0, 1):
            mine = [int(v.split(b"-")[1]) for v in found if v.startswith(b"%d-" % number)]
            assert [i for i in mine if i % 2 == parity] == list(range(parity, 300, 2))


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_open_batch", [True, False])
def test_a_record_needs_an_open_transaction(to_open_batch: bool) -> None:
    transactions = GivenTransactions()
    accumulator = gated_accumulator(FakeClock(), transactions)

    def send() -> None:
        if to_open_batch:
            assert accumulator.append_to_open_batch(TOPIC, 0, 5000, None, b"v", (), None) is not None
        else:
            append(accumulator)

    append(accumulator)
    send()
    transactions.is_open = False
    with pytest.raises(TransactionStateError):
        send()
    assert [batch.record_count for batch in queued(accumulator)] == [2]
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000


def test_a_transaction_gets_the_partition_of_each_new_batch() -> None:
    transactions = GivenTransactions()
    accumulator = gated_accumulator(FakeClock(), transactions)
    for partition, value in ((1, LARGE), (0, b"v"), (0, b"v"), (1, LARGE)):
        append(accumulator, partition, value)
    assert transactions.added == [tp(1), tp(0), tp(1)]


def test_the_end_of_a_transaction_makes_everything_ready() -> None:
    transactions = GivenTransactions()
    accumulator = gated_accumulator(FakeClock(), transactions)
    append(accumulator)
    assert not is_ready(accumulator)
    transactions.is_completing = True
    assert is_ready(accumulator)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory_comes_back_when_a_batch_is_done() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)
    (batch,) = drain(accumulator)
    assert accumulator.has_incomplete
    finish(accumulator, batch)
    accumulator.incomplete.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert not accumulator.has_incomplete


def test_memory_stays_while_a_request_points_into_it() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator, value=b"on its way")
    (batch,) = drain(accumulator)
    batch.unanswered_sends += 1
    wire = batch.wire
    batch.done(-1, NO_TIMESTAMP, KafkaTimeoutError("expired"))
    accumulator.incomplete.deallocate(batch)
    assert not accumulator.has_incomplete
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000
    for _ in range(3):
        append(accumulator, value=b"another one")
    _, records = read_wire(wire)
    assert records[0].value == b"on its way"
    batch.unanswered_sends -= 1
    accumulator.incomplete.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000


# --- flush and close -------------------------------------------------------------------------------------------------


def test_flush_waits_only_for_batches_incomplete_at_its_start() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    for partition in range(2):
        append(accumulator, partition)
    batches = drain(accumulator, make_cluster([0, 0]))

    def first_ends() -> None:
        append(accumulator, partition=2)
        finish(accumulator, batches[0])

    clock.actions.extend([first_ends, lambda: finish(accumulator, batches[1])])
    woken: list[int] = []
    accumulator.flush(1000, lambda: woken.append(1))
    assert woken == [1]
    assert all(batch.is_done for batch in batches)
    assert accumulator.has_incomplete
    assert not is_ready(accumulator), "the flush is over"


def test_timed_out_flush_ends_and_stops_hurrying_batches() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, linger_ms=5000)
    for partition in range(2):
        append(accumulator, partition)
    with pytest.raises(KafkaTimeoutError, match="flush did not complete within 700 ms"):
        accumulator.flush(700, lambda: None)
    assert clock.waits == [700]
    assert not is_ready(accumulator)


def test_a_flush_without_time_does_not_wait() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    with pytest.raises(KafkaTimeoutError, match="flush did not complete within 0 ms"):
        accumulator.flush(0, lambda: None)
    assert clock.waits == []


def test_the_time_of_a_flush_is_that_of_all_batches_together() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    for partition in range(2):
        append(accumulator, partition)
    batches = drain(accumulator, make_cluster([0, 0]))

    def one_ends() -> None:
        clock.advance(600)
        finish(accumulator, next(batch for batch in batches if not batch.is_done))

    clock.actions.extend([one_ends, one_ends])
    accumulator.flush(1200, lambda: None)
    for partition in range(2):
        append(accumulator, partition)
    batches = drain(accumulator, make_cluster([0, 0]))
    clock.actions.append(one_ends)
    with pytest.raises(KafkaTimeoutError):
        accumulator.flush(1000, lambda: None)
    assert clock.now_ms == 1_000_000 + 3 * 600 + 400


def test_a_flush_that_cannot_wake_the_sender_does_not_stay_open() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)

    def fail() -> None:
        raise OSError("closed")

    with pytest.raises(OSError, match="closed"):
        accumulator.flush(10, fail)
    assert not is_ready(accumulator)


def test_forced_end_fails_all_queued_and_in_flight_batches() -> None:
    accumulator = make_accumulator(FakeClock())
    seen: list[Delivery] = []
    for partition in range(3):
        append(accumulator, partition, callback=seen.append)
    sent = drain(accumulator, make_cluster([0, None, None]))
    sent[0].unanswered_sends += 1
    accumulator.close()
    accumulator.await_appends()
    accumulator.sender_side.abort_batches(lambda _: KafkaError("closed by force"))
    assert [str(delivery.topic_partition) for delivery in seen] == ["orders-0", "orders-1", "orders-2"]
    assert all(str(delivery.error) == "closed by force" for delivery in seen)
    assert not accumulator.has_incomplete
    assert not queued(accumulator, 1)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000, "one is still on the wire"


def test_forced_end_waits_for_appends_in_progress() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    straggler = Straggler(accumulator, clock, b"late")
    accumulator.close()
    clock.actions.append(straggler.end)
    accumulator.await_appends()
    accumulator.sender_side.abort_batches(lambda _: KafkaError("closed by force"))
    assert not accumulator.has_incomplete
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert len(clock.waits) == 1
