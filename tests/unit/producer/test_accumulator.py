"""The queues between the threads that send records and the one that talks to the brokers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import pytest

from kafka_sink.client.cluster import Cluster
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import BufferExhaustedError, KafkaError, KafkaTimeoutError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.producer.accumulator import AppendInProgress
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.producer_batch import ProducerBatch
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size
from tests.fakes.batches import read_wire
from tests.fakes.clock import FakeClock
from tests.fakes.manual_clock import ManualClock
from tests.fakes.producing import (
    NODES,
    DrainedAccumulator,
    append,
    append_record,
    make_accumulator,
    make_cluster,
    make_idempotence,
    queued,
    tp,
)

ONE = make_cluster([0])
#: A value of which one fits into a batch of 1000 bytes, and two do not.
LARGE = b"x" * 600


def drain(
    accumulator: DrainedAccumulator, cluster: Cluster = ONE, *, max_bytes: int = 10**6, node: int = 0
) -> list[ProducerBatch]:
    now_ms = accumulator._clock.monotonic_ms()
    return accumulator.drain_side.drain(cluster, [NODES[node]], max_bytes, now_ms)[node]


def values(batch: ProducerBatch) -> list[bytes | None]:
    _, records = read_wire(batch.wire)
    return [record.value for record in records]


# --- append ----------------------------------------------------------------------------------------------------------


def test_records_of_a_partition_share_a_batch_until_it_is_full() -> None:
    accumulator = make_accumulator(ManualClock())
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
    accumulator = make_accumulator(ManualClock(), batch_size=HEADER_BYTES + 2 * size)
    assert not append(accumulator).batch_is_full
    assert append(accumulator).batch_is_full


def test_only_the_newest_batch_takes_records() -> None:
    accumulator = make_accumulator(ManualClock())
    for value in (LARGE, LARGE, b"small"):
        append(accumulator, value=value)
    assert [batch.record_count for batch in queued(accumulator)] == [1, 2]


def test_asking_not_to_open_a_batch_allocates_nothing() -> None:
    accumulator = make_accumulator(ManualClock())
    result = append(accumulator, abort_on_new_batch=True)
    assert result.abort_for_new_batch
    assert result.future is None
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert not queued(accumulator)
    append(accumulator)
    assert append(accumulator, abort_on_new_batch=True).future is not None
    before = accumulator.pool.available_memory
    assert append(accumulator, value=b"x" * 990, abort_on_new_batch=True).abort_for_new_batch
    assert accumulator.pool.available_memory == before
    assert queued(accumulator)[0].is_full, "it is complete: nothing more will be put into it"


def test_a_record_larger_than_a_batch_has_one_of_its_own_and_nothing_follows_it() -> None:
    accumulator = make_accumulator(ManualClock(), batch_size=100)
    result = append(accumulator, value=b"x" * 500)
    assert result.batch_is_full
    append(accumulator, value=b"")
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1]
    (batch,) = drain(accumulator)
    batch.done(0, NO_TIMESTAMP, None)
    accumulator.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 100


def test_a_batch_that_another_thread_opened_meanwhile_is_used_and_the_memory_given_back() -> None:
    clock = ManualClock()
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


def test_no_lock_is_held_while_memory_is_awaited() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, memory=2000)
    append(accumulator, partition=0)
    append(accumulator, partition=1)

    def other_thread() -> None:
        assert accumulator.queue(tp(0)).lock.acquire(blocking=False)
        accumulator.queue(tp(0)).lock.release()
        assert append(accumulator, partition=1).future is not None

    clock.actions.append(other_thread)
    with pytest.raises(BufferExhaustedError):
        append(accumulator, value=b"x" * 930)
    assert [queued(accumulator, partition)[0].record_count for partition in (0, 1)] == [1, 2]


def test_a_new_batch_is_as_old_as_its_memory_not_as_the_wait_for_it() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, memory=1000)
    hold = accumulator.pool.allocate(1000, 0)

    def later() -> None:
        clock.advance(700)
        accumulator.pool.deallocate(hold)

    clock.actions.append(later)
    append(accumulator)
    assert queued(accumulator)[0].created_ms == clock.now_ms


def test_no_memory_in_time_is_an_error_and_leaves_nothing_behind() -> None:
    accumulator = make_accumulator(ManualClock(), memory=1000)
    append(accumulator, partition=0)
    with pytest.raises(BufferExhaustedError):
        append(accumulator, partition=1, max_block_ms=50)
    assert not queued(accumulator, 1)
    with AppendInProgress(accumulator):
        assert accumulator.has_incomplete_or_appends


def test_a_closed_accumulator_takes_nothing() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator)
    accumulator.close()
    with pytest.raises(KafkaError, match="producer closed while send in progress"):
        append(accumulator)
    assert queued(accumulator)[0].record_count == 1


def test_closing_while_memory_is_awaited_ends_the_append() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, memory=1000)
    append(accumulator)
    clock.actions.append(accumulator.close)
    with pytest.raises(KafkaError, match="closed"):
        append(accumulator, partition=1)
    assert not queued(accumulator, 1)


def test_closing_between_memory_and_append_gives_the_memory_back() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, memory=1000)
    hold = accumulator.pool.allocate(1000, 0)

    def close_but_let_the_waiter_have_it() -> None:
        accumulator.pool.deallocate(hold)
        accumulator._closed = True

    clock.actions.append(close_but_let_the_waiter_have_it)
    with pytest.raises(KafkaError, match="closed"):
        append(accumulator)
    assert accumulator.pool.available_memory == 1000


@pytest.mark.parametrize(
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
    accumulator = make_accumulator(ManualClock(), batch_size=batch_size)
    assert accumulator.memory.capacity_for(size) == capacity


def test_a_batch_that_grows_gives_its_old_memory_back() -> None:
    accumulator = make_accumulator(ManualClock(), batch_size=100_000)
    future = append_record(accumulator, value=b"x" * 10_000)
    used = []
    for _ in range(5):
        used.append(accumulator.pool.total_memory - accumulator.pool.available_memory)
        append(accumulator, value=b"x" * 10_000)
    # Twice of what is needed each time there is not enough, then all of batch.size.
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
    accumulator = make_accumulator(ManualClock(), batch_size=40_000, memory=70_000)
    append(accumulator, value=b"x" * 10_000)
    accumulator.pool.allocate(25_000, 0)
    result = append(accumulator, value=b"y" * 10_500)
    assert result.new_batch_created
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1]


def test_many_threads_lose_no_record() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=200, memory=10**7)
    start = threading.Barrier(4)

    def send(number: int) -> None:
        start.wait()
        for index in range(300):
            append(accumulator, index % 2, b"%d-%d" % (number, index))

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
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


# --- ready -----------------------------------------------------------------------------------------------------------


def is_ready(accumulator: DrainedAccumulator, cluster: Cluster = ONE) -> bool:
    return NODES[0] in accumulator.drain_side.ready(cluster, accumulator._clock.monotonic_ms()).ready_nodes


def test_nothing_is_ready_without_data() -> None:
    accumulator = make_accumulator(ManualClock())
    accumulator.queue(tp(0))
    result = accumulator.drain_side.ready(ONE, 0)
    assert not result.ready_nodes
    assert not result.unknown_leader_topics
    assert result.next_ready_check_delay_ms == FOREVER_MS


def test_a_young_batch_with_room_waits_for_its_linger() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, linger_ms=10)
    append(accumulator)
    clock.advance(4)
    result = accumulator.drain_side.ready(ONE, clock.now_ms)
    assert not result.ready_nodes
    assert result.next_ready_check_delay_ms == 6


def test_the_linger_makes_ready() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, linger_ms=10)
    append(accumulator)
    clock.advance(10)
    assert is_ready(accumulator)


def test_a_full_batch_makes_ready() -> None:
    accumulator = make_accumulator(ManualClock(), batch_size=HEADER_BYTES + record_size(0, 0, None, b"v"))
    append(accumulator)
    assert len(queued(accumulator)) == 1
    assert is_ready(accumulator)


def test_a_second_batch_makes_ready() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator, value=LARGE)
    assert not is_ready(accumulator)
    append(accumulator, value=LARGE)
    assert is_ready(accumulator)


def test_a_batch_that_a_record_did_not_fit_into_is_ready() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator, value=LARGE)
    append(accumulator, value=LARGE, abort_on_new_batch=True)
    assert is_ready(accumulator)


def test_a_thread_waiting_for_memory_makes_everything_ready() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, memory=1000)
    append(accumulator)
    seen: list[bool] = []
    clock.actions.append(lambda: seen.append(is_ready(accumulator)))
    with pytest.raises(BufferExhaustedError):
        append(accumulator, partition=1)
    assert seen == [True]


def test_a_flush_makes_everything_ready() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator)
    seen: list[bool] = []
    with pytest.raises(KafkaTimeoutError):
        accumulator.flush(5, lambda: seen.append(is_ready(accumulator)))
    assert seen == [True]


def test_closing_makes_everything_ready() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator)
    accumulator.close()
    assert is_ready(accumulator)


@pytest.mark.parametrize("reason", ["linger", "second batch", "memory", "flush", "closed"])
def test_backing_off_beats_every_reason(reason: str) -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, linger_ms=10, retry_backoff_ms=100, memory=2000)
    append(accumulator, value=LARGE)
    clock.advance(10)
    (batch,) = drain(accumulator)
    accumulator.drain_side.reenqueue(batch, clock.now_ms)
    clock.advance(40)
    seen: list[bool] = []

    def look() -> None:
        seen.append(is_ready(accumulator))

    if reason == "second batch":
        append(accumulator, value=LARGE)
    elif reason == "memory":
        append(accumulator, partition=1)
        clock.actions.append(look)
        with pytest.raises(BufferExhaustedError):
            append(accumulator, partition=2, max_block_ms=5)
    elif reason == "flush":
        with pytest.raises(KafkaTimeoutError):
            accumulator.flush(0, look)
    elif reason == "closed":
        accumulator.close()
    assert seen in ([], [False])
    result = accumulator.drain_side.ready(ONE, clock.now_ms)
    assert not result.ready_nodes
    assert result.next_ready_check_delay_ms == 60 - (clock.now_ms - 1_000_050)
    assert not drain(accumulator)
    clock.now_ms = 1_000_110
    assert is_ready(accumulator), "the backoff is over: a retry does not linger again"
    assert drain(accumulator) == [batch]


def test_muted_partitions_are_neither_ready_nor_a_reason_to_look_again() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    accumulator.drain_side.mute(tp(0))
    assert accumulator.drain_side.ready(ONE, clock.now_ms).next_ready_check_delay_ms == FOREVER_MS
    clock.advance(10)
    assert not is_ready(accumulator)
    assert not drain(accumulator)
    accumulator.drain_side.unmute(tp(0))
    assert is_ready(accumulator)
    assert len(drain(accumulator)) == 1


def test_topics_with_data_but_no_leader_are_reported() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator, partition=0)
    append(accumulator, partition=1)
    result = accumulator.drain_side.ready(make_cluster([None, 1]), 0)
    assert result.unknown_leader_topics == {"orders"}
    assert accumulator.drain_side.ready(make_cluster([0, 1]), 0).unknown_leader_topics == set()
    assert accumulator.drain_side.ready(Cluster(), 0).unknown_leader_topics == {"orders"}


def test_when_to_look_again_is_the_least_that_is_left_of_all_partitions() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, linger_ms=50)
    append(accumulator, partition=0)
    clock.advance(20)
    append(accumulator, partition=1)
    assert accumulator.drain_side.ready(make_cluster([0, 1]), clock.now_ms).next_ready_check_delay_ms == 30


def test_a_partition_that_may_not_leave_does_not_hide_when_another_of_its_node_may() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, linger_ms=50)
    append(accumulator, partition=0)
    clock.advance(50)
    append(accumulator, partition=1)
    result = accumulator.drain_side.ready(make_cluster([0, 0]), clock.now_ms)
    assert result.ready_nodes == {NODES[0]}
    assert result.next_ready_check_delay_ms == 50


def test_looking_changes_nothing() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    clock.advance(10)
    for _ in range(2):
        assert is_ready(accumulator)
    assert queued(accumulator)[0].room_bytes > 0


# --- drain -----------------------------------------------------------------------------------------------------------


def test_no_nodes_no_batches() -> None:
    assert make_accumulator(ManualClock()).drain_side.drain(ONE, [], 1000, 0) == {}
    assert make_accumulator(ManualClock()).drain_side.drain(make_cluster([0]), [NODES[1]], 1000, 0) == {1: []}


def test_a_node_gets_the_batches_of_the_partitions_it_leads() -> None:
    accumulator = make_accumulator(ManualClock())
    for partition in range(4):
        append(accumulator, partition)
    drained = accumulator.drain_side.drain(make_cluster([0, 1, 0, None]), NODES, 10**6, 0)
    assert {node: [batch.topic_partition.partition for batch in batches] for node, batches in drained.items()} == {
        0: [0, 2],
        1: [1],
    }


def test_one_batch_of_a_partition_at_most_and_the_oldest_first() -> None:
    accumulator = make_accumulator(ManualClock())
    for index in range(3):
        append(accumulator, value=b"%d" % index + LARGE)
    for index in range(3):
        (batch,) = drain(accumulator)
        assert values(batch) == [b"%d" % index + LARGE]
    assert drain(accumulator) == []


def test_a_drained_batch_takes_no_more_records() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    clock.advance(3)
    (batch,) = drain(accumulator)
    assert batch.drained_ms == clock.now_ms
    assert append(accumulator).new_batch_created
    assert batch.record_count == 1


def test_a_request_is_not_larger_than_allowed_unless_by_its_first_batch() -> None:
    accumulator = make_accumulator(ManualClock())
    for partition in range(3):
        append(accumulator, partition, LARGE)
    cluster = make_cluster([0, 0, 0])
    size = queued(accumulator, 0)[0].size_bytes
    assert len(drain(accumulator, cluster, max_bytes=2 * size)) == 2
    assert len(drain(accumulator, cluster, max_bytes=10)) == 1


def test_the_partition_that_did_not_fit_comes_first_next_time() -> None:
    accumulator = make_accumulator(ManualClock(), batch_size=2000)
    cluster = make_cluster([0, 0])
    large = b"x" * 1500
    taken: list[int] = []
    for _ in range(3):
        # A small batch before it each time must not starve the large one.
        append(accumulator, 0, b"small")
        append(accumulator, 1, large)
        taken += [batch.topic_partition.partition for batch in drain(accumulator, cluster, max_bytes=1000)]
    assert taken == [0, 1, 0]


def test_every_partition_gets_its_turn() -> None:
    accumulator = make_accumulator(ManualClock())
    cluster = make_cluster([0] * 5)
    counts = [0] * 5
    for _ in range(10):
        for partition in range(5):
            append(accumulator, partition, LARGE)
        for batch in drain(accumulator, cluster, max_bytes=1400):
            counts[batch.topic_partition.partition] += 1
    assert counts == [4] * 5


def test_a_node_whose_partitions_shrank_is_drained_from_a_place_that_exists() -> None:
    accumulator = make_accumulator(ManualClock())
    for partition in range(4):
        append(accumulator, partition, LARGE)
    drain(accumulator, make_cluster([0] * 4), max_bytes=2000)
    append(accumulator, 0)
    assert drain(accumulator, make_cluster([0]))


def test_a_batch_that_cannot_be_compressed_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    idempotence = make_idempotence()
    accumulator = make_accumulator(ManualClock(), idempotence=idempotence)
    futures = [append_record(accumulator, partition) for partition in range(3)]
    broken = queued(accumulator, 1)[0]

    def fail() -> None:
        raise MemoryError("no memory for the codec")

    monkeypatch.setattr(broken, "close", fail)
    drained = drain(accumulator, make_cluster([0, 0, 0]))
    assert [batch.topic_partition.partition for batch in drained] == [0, 2]
    with pytest.raises(KafkaError, match=r"1 record\(s\) for orders-1 could not be made a batch: MemoryError"):
        futures[1].get(0)
    assert not futures[0].done()
    # Its memory is back and its sequence was never given out.
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 2000
    append(accumulator, 1)
    (batch,) = drain(accumulator, make_cluster([0, 0, 0]))
    assert batch.base_sequence == 0


def test_sequences_are_given_when_a_batch_leaves_its_queue() -> None:
    accumulator = make_accumulator(ManualClock(), idempotence=make_idempotence())
    for _ in range(2):
        append(accumulator, value=LARGE)
    for expected in (0, 1):
        (batch,) = drain(accumulator)
        view, _ = read_wire(batch.wire)
        assert (view.header.producer_id, view.header.base_sequence) == (9, expected)


def test_a_partition_whose_sequences_are_not_settled_is_left_out_without_ending_the_drain() -> None:
    idempotence = make_idempotence()
    accumulator = make_accumulator(ManualClock(), idempotence=idempotence)
    append(accumulator, 0)
    (unknown,) = drain(accumulator, make_cluster([0, 0]))
    idempotence.failed(unknown)
    append(accumulator, 0)
    append(accumulator, 1)
    drained = drain(accumulator, make_cluster([0, 0]))
    assert [batch.topic_partition.partition for batch in drained] == [1]


# --- retry -----------------------------------------------------------------------------------------------------------


def drain_all(accumulator: DrainedAccumulator) -> list[ProducerBatch]:
    found: list[ProducerBatch] = []
    while batches := drain(accumulator):
        found += batches
    return found


def test_a_batch_to_be_retried_goes_before_those_not_yet_sent() -> None:
    accumulator = make_accumulator(ManualClock(), retry_backoff_ms=0)
    for index in range(3):
        append(accumulator, value=b"%d" % index + LARGE)
    (first,) = drain(accumulator)
    accumulator.drain_side.reenqueue(first, 0)
    assert first.attempts == 1
    assert queued(accumulator)[0] is first
    assert [batch is first for batch in drain_all(accumulator)] == [True, False, False]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize("first_sequence", [0, 2**31 - 2])
def test_retries_with_sequences_stand_in_their_order(order: Sequence[int], first_sequence: int) -> None:
    idempotence = make_idempotence()
    accumulator = make_accumulator(ManualClock(), idempotence=idempotence, retry_backoff_ms=0)
    append(accumulator)
    drain(accumulator)
    idempotence._partitions[tp(0)].next_sequence = first_sequence
    for index in range(4):
        append(accumulator, value=b"%d" % index + LARGE)
    sent = [drain(accumulator)[0] for _ in range(3)]
    for index in order:
        accumulator.drain_side.reenqueue(sent[index], 0)
    assert queued(accumulator)[:3] == sent
    assert not queued(accumulator)[3].has_sequence


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_retries_without_sequences_stand_by_age_so_that_none_expires_unseen(order: Sequence[int]) -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, delivery_timeout_ms=100)
    sent = []
    for index in range(3):
        append(accumulator, value=b"%d" % index + LARGE)
        sent += drain(accumulator)
        clock.advance(10)
    append(accumulator, value=b"new")
    for index in order:
        accumulator.drain_side.reenqueue(sent[index], clock.now_ms)
    assert queued(accumulator)[:3] == sent
    clock.advance(75)
    assert accumulator.drain_side.expired_batches(clock.now_ms)[0] == sent[:1]


def test_the_backoff_of_a_batch_is_drawn_once() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, retry_backoff_ms=100)
    append(accumulator)
    (batch,) = drain(accumulator)
    accumulator.drain_side.reenqueue(batch, clock.now_ms)
    assert batch.retry_backoff_ms == 100
    clock.advance(99)
    assert accumulator.drain_side.ready(ONE, clock.now_ms).next_ready_check_delay_ms == 1
    clock.advance(1)
    assert drain(accumulator) == [batch]


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_batches_whose_time_has_passed_are_taken_out_and_the_next_is_noted() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, delivery_timeout_ms=1000)
    for _ in range(2):
        append(accumulator, value=LARGE)
    old = queued(accumulator)
    clock.advance(400)
    append(accumulator, value=LARGE)
    clock.advance(100)
    append(accumulator, partition=1)
    clock.advance(500)
    assert accumulator.drain_side.expired_batches(clock.now_ms) == (old, clock.now_ms + 400)
    assert len(queued(accumulator)) == len(queued(accumulator, 1)) == 1


def test_a_batch_lives_to_the_last_moment() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, delivery_timeout_ms=1000)
    append(accumulator)
    clock.advance(999)
    assert accumulator.drain_side.expired_batches(clock.now_ms) == ([], clock.now_ms + 1)
    clock.advance(1)
    expired, next_expiry_ms = accumulator.drain_side.expired_batches(clock.now_ms)
    assert len(expired) == 1
    assert next_expiry_ms == FOREVER_MS
    assert append(accumulator).new_batch_created


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory_comes_back_when_a_batch_is_done() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator)
    (batch,) = drain(accumulator)
    assert accumulator.has_incomplete
    batch.done(0, NO_TIMESTAMP, None)
    accumulator.deallocate(batch)
    accumulator.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert not accumulator.has_incomplete


def test_memory_stays_while_a_request_points_into_it() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator, value=b"on its way")
    (batch,) = drain(accumulator)
    batch.unanswered_sends += 1
    wire = batch.wire
    batch.done(-1, NO_TIMESTAMP, KafkaTimeoutError("expired"))
    accumulator.deallocate(batch)
    assert not accumulator.has_incomplete
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000
    for _ in range(3):
        append(accumulator, value=b"another one")
    _, records = read_wire(wire)
    assert records[0].value == b"on its way"
    batch.unanswered_sends -= 1
    accumulator.deallocate(batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000


# --- flush and close -------------------------------------------------------------------------------------------------


def finish(accumulator: DrainedAccumulator, batch: ProducerBatch) -> None:
    batch.done(0, NO_TIMESTAMP, None)
    accumulator.deallocate(batch)


def test_a_flush_waits_for_what_is_incomplete_and_not_for_what_comes_later() -> None:
    clock = ManualClock()
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


def test_a_flush_that_takes_too_long_ends_and_stops_hurrying_the_batches() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock, linger_ms=5000)
    for partition in range(2):
        append(accumulator, partition)
    with pytest.raises(KafkaTimeoutError, match="flush did not end within 700 ms"):
        accumulator.flush(700, lambda: None)
    assert clock.waits == [700]
    assert not is_ready(accumulator)


def test_the_time_of_a_flush_is_that_of_all_batches_together() -> None:
    clock = ManualClock()
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
    accumulator = make_accumulator(ManualClock())
    append(accumulator)

    def fail() -> None:
        raise OSError("closed")

    with pytest.raises(OSError, match="closed"):
        accumulator.flush(10, fail)
    assert not is_ready(accumulator)


def test_a_forced_end_fails_everything_queued_and_in_flight() -> None:
    accumulator = make_accumulator(ManualClock())
    seen: list[Delivery] = []
    for partition in range(3):
        append(accumulator, partition, callback=seen.append)
    sent = drain(accumulator, make_cluster([0, None, None]))
    sent[0].unanswered_sends += 1
    accumulator.close()
    accumulator.abort_incomplete(lambda _: KafkaError("closed by force"))
    assert [str(delivery.topic_partition) for delivery in seen] == ["orders-0", "orders-1", "orders-2"]
    assert all(str(delivery.error) == "closed by force" for delivery in seen)
    assert not accumulator.has_incomplete
    assert not queued(accumulator, 1)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 1000, "one is still on the wire"


def test_an_append_whose_end_an_interrupt_kept_from_being_told_holds_up_no_close() -> None:
    accumulator = make_accumulator(ManualClock())
    append(accumulator)
    AppendInProgress(accumulator).__enter__()
    accumulator.close()
    accumulator.caller_does_not_append()
    accumulator.abort_incomplete(lambda _: KafkaError("closed by force"))
    assert not accumulator.has_incomplete_or_appends


def test_a_forced_end_waits_for_appends_that_were_let_in_before() -> None:
    clock = ManualClock()
    accumulator = make_accumulator(clock)
    straggler = AppendInProgress(accumulator)
    straggler.__enter__()
    buffer = accumulator.pool.allocate(1000, 0)
    accumulator.close()

    def straggler_ends() -> None:
        queue = accumulator.queue(tp(0))
        with queue.lock:
            batch = accumulator.new_batch(tp(0), buffer, 0)
            batch.try_append(0, None, b"late", (), None)
            accumulator.add_batch(queue, batch)
        straggler.__exit__()

    clock.actions.append(straggler_ends)
    accumulator.abort_incomplete(lambda _: KafkaError("closed by force"))
    assert not accumulator.has_incomplete
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert len(clock.waits) == 1
