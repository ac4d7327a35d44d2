"""The batches that may leave the queues, their order, and the return of failed batches to the queues."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo
from kafka_sink.common.clock import FOREVER_MS, ExponentialBackoff
from kafka_sink.common.errors import BufferExhaustedError, KafkaError, KafkaTimeoutError
from kafka_sink.producer.batching.producer_batch import Compression, ProducerBatch
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size
from tests.fakes.batches import read_wire
from tests.fakes.clock import FakeClock
from tests.fakes.producing import (
    LARGE,
    NODES,
    ONE,
    TOPIC,
    MadeAccumulator,
    append,
    append_record,
    drain,
    is_ready,
    make_accumulator,
    make_cluster,
    make_idempotence,
    queue_of,
    queued,
    tp,
    use_up_sequences,
    values,
)
from tests.support.cases import with_each
from tests.unit.producer.gated import GivenTransactions, gated_accumulator

# --- ready -----------------------------------------------------------------------------------------------------------


def test_nothing_is_ready_without_data() -> None:
    accumulator = make_accumulator(FakeClock())
    queue_of(accumulator, 0)
    result = accumulator.sender_side.ready(ONE, 0)
    assert not result.ready_nodes
    assert not result.unknown_leader_topics
    assert result.next_ready_check_delay_ms == FOREVER_MS


def test_a_young_batch_with_room_waits_for_its_linger() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, linger_ms=10)
    append(accumulator)
    clock.advance(4)
    result = accumulator.sender_side.ready(ONE, clock.now_ms)
    assert not result.ready_nodes
    assert result.next_ready_check_delay_ms == 6


@pytest.mark.behaviour("Drain", "A partition is ready when linger.ms has passed")
def test_the_linger_makes_ready() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, linger_ms=10)
    append(accumulator)
    clock.advance(10)
    assert is_ready(accumulator)


@pytest.mark.behaviour("Drain", "A partition is ready when a batch is full")
def test_a_full_batch_makes_ready() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=HEADER_BYTES + record_size(0, 0, None, b"v"))
    append(accumulator)
    assert len(queued(accumulator)) == 1
    assert is_ready(accumulator)


def test_a_second_batch_makes_ready() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator, value=LARGE)
    assert not is_ready(accumulator)
    append(accumulator, value=LARGE)
    assert is_ready(accumulator)


def test_a_batch_that_a_record_did_not_fit_into_is_ready() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator, value=LARGE)
    append(accumulator, value=LARGE, abort_on_new_batch=True)
    assert is_ready(accumulator)


@pytest.mark.behaviour("Drain", "Everything is ready while a thread waits for memory")
def test_a_thread_waiting_for_memory_makes_everything_ready() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, memory=1000)
    append(accumulator)
    seen: list[bool] = []
    clock.actions.append(lambda: seen.append(is_ready(accumulator)))
    with pytest.raises(BufferExhaustedError):
        append(accumulator, partition=1)
    assert seen == [True]


@pytest.mark.behaviour("Drain", "Everything is ready during a flush")
def test_a_flush_makes_everything_ready() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)
    seen: list[bool] = []
    with pytest.raises(KafkaTimeoutError):
        accumulator.flush(5, lambda: seen.append(is_ready(accumulator)))
    assert seen == [True]


@pytest.mark.behaviour("Drain", "Everything is ready while the producer closes")
def test_closing_makes_everything_ready() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)
    accumulator.close()
    assert is_ready(accumulator)


@pytest.mark.behaviour("Drain", "A batch that backs off is not ready, for whatever reason")
@with_each("reason", ["linger", "second batch", "memory", "flush", "closed"])
def test_batch_in_backoff_is_not_ready_for_any_reason(reason: str) -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, linger_ms=10, retry_backoff_ms=100, memory=2000)
    append(accumulator, value=LARGE)
    clock.advance(10)
    (batch,) = drain(accumulator)
    accumulator.sender_side.reenqueue(batch, clock.now_ms)
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
    result = accumulator.sender_side.ready(ONE, clock.now_ms)
    assert not result.ready_nodes
    assert result.next_ready_check_delay_ms == 60 - (clock.now_ms - 1_000_050)
    assert not drain(accumulator)
    clock.now_ms = 1_000_110
    assert is_ready(accumulator), "the backoff is over: a retry does not linger again"
    assert drain(accumulator) == [batch]


@pytest.mark.behaviour("Drain", "A muted partition is neither ready nor a reason to look again")
def test_muted_partition_is_not_ready_and_sets_no_ready_check() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    accumulator.sender_side.mute(tp(0))
    assert accumulator.sender_side.ready(ONE, clock.now_ms).next_ready_check_delay_ms == FOREVER_MS
    clock.advance(10)
    assert not is_ready(accumulator)
    assert not drain(accumulator)
    accumulator.sender_side.unmute(tp(0))
    assert is_ready(accumulator)
    assert len(drain(accumulator)) == 1


@pytest.mark.behaviour("Drain", "Topics with records but without a known leader are reported")
def test_topics_with_data_but_no_leader_are_reported() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator, partition=0)
    append(accumulator, partition=1)
    result = accumulator.sender_side.ready(make_cluster([None, 1]), 0)
    assert result.unknown_leader_topics == {"orders"}
    assert accumulator.sender_side.ready(make_cluster([0, 1]), 0).unknown_leader_topics == set()
    assert accumulator.sender_side.ready(Cluster(), 0).unknown_leader_topics == {"orders"}


def test_next_ready_check_is_the_least_remaining_linger() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, linger_ms=50)
    append(accumulator, partition=0)
    clock.advance(20)
    append(accumulator, partition=1)
    assert accumulator.sender_side.ready(make_cluster([0, 1]), clock.now_ms).next_ready_check_delay_ms == 30


def test_ready_node_still_reports_the_linger_of_other_partitions() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, linger_ms=50)
    append(accumulator, partition=0)
    clock.advance(50)
    append(accumulator, partition=1)
    result = accumulator.sender_side.ready(make_cluster([0, 0]), clock.now_ms)
    assert result.ready_nodes == {NODES[0]}
    assert result.next_ready_check_delay_ms == 50


def test_ready_check_changes_nothing() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    clock.advance(10)
    for _ in range(2):
        assert is_ready(accumulator)
    assert queued(accumulator)[0].room_bytes > 0


# --- drain -----------------------------------------------------------------------------------------------------------


def test_no_nodes_no_batches() -> None:
    assert make_accumulator(FakeClock()).sender_side.drain(ONE, [], 1000, 0) == {}
    assert make_accumulator(FakeClock()).sender_side.drain(make_cluster([0]), [NODES[1]], 1000, 0) == {1: []}


def test_a_node_gets_the_batches_of_the_partitions_it_leads() -> None:
    accumulator = make_accumulator(FakeClock())
    for partition in range(4):
        append(accumulator, partition)
    drained = accumulator.sender_side.drain(make_cluster([0, 1, 0, None]), NODES, 10**6, 0)
    assert {node: [batch.topic_partition.partition for batch in batches] for node, batches in drained.items()} == {
        0: [0, 2],
        1: [1],
    }


@pytest.mark.behaviour("Drain", "A request takes one batch of a partition at most, the oldest first")
def test_one_batch_of_a_partition_at_most_and_the_oldest_first() -> None:
    accumulator = make_accumulator(FakeClock())
    for index in range(3):
        append(accumulator, value=b"%d" % index + LARGE)
    for index in range(3):
        (batch,) = drain(accumulator)
        assert values(batch) == [b"%d" % index + LARGE]
    assert drain(accumulator) == []


def test_a_drained_batch_takes_no_more_records() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    append(accumulator)
    clock.advance(3)
    (batch,) = drain(accumulator)
    assert batch.drained_ms == clock.now_ms
    assert append(accumulator).new_batch_created
    assert batch.record_count == 1


@pytest.mark.behaviour("Drain", "A request is not larger than max.request.size, unless by its first batch")
def test_only_the_first_batch_may_exceed_max_request_size() -> None:
    accumulator = make_accumulator(FakeClock())
    for partition in range(3):
        append(accumulator, partition, LARGE)
    cluster = make_cluster([0, 0, 0])
    size = queued(accumulator, 0)[0].size_bytes
    assert len(drain(accumulator, cluster, max_bytes=2 * size)) == 2
    assert len(drain(accumulator, cluster, max_bytes=10)) == 1


def test_request_size_counts_batches_after_compression() -> None:
    accumulator = make_accumulator(FakeClock(), compression=Compression(CompressionType.GZIP, None))
    for partition in range(6):
        append(accumulator, partition, LARGE)
    cluster = make_cluster([0] * 6)
    assert queued(accumulator, 0)[0].size_bytes > 600
    drained = drain(accumulator, cluster, max_bytes=500)
    assert sum(batch.wire_bytes for batch in drained) <= 500
    assert [batch.topic_partition.partition for batch in drained] == [0, 1, 2, 3, 4]
    assert [batch.topic_partition.partition for batch in drain(accumulator, cluster, max_bytes=500)] == [5]


def test_batch_that_did_not_fit_stays_before_later_ones() -> None:
    accumulator = make_accumulator(FakeClock(), idempotence=make_idempotence())
    cluster = make_cluster([0, 0])
    for partition, value in ((0, LARGE), (1, b"first" * 100)):
        append(accumulator, partition, value)
    assert len(drain(accumulator, cluster, max_bytes=700)) == 1
    append(accumulator, 1, b"second")
    found = [drain(accumulator, cluster, max_bytes=700) for _ in range(2)]
    assert [values(batch) for (batch,) in found] == [[b"first" * 100], [b"second"]]
    assert [batch.base_sequence for (batch,) in found] == [0, 1]


def test_the_partition_that_did_not_fit_comes_first_next_time() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=2000)
    cluster = make_cluster([0, 0])
    large = b"x" * 1500
    taken: list[int] = []
    for _ in range(3):
        # The small batch that precedes it each time must not starve the large one.
        append(accumulator, 0, b"small")
        append(accumulator, 1, large)
        taken += [batch.topic_partition.partition for batch in drain(accumulator, cluster, max_bytes=1000)]
    assert taken == [0, 1, 0]


@pytest.mark.behaviour("Drain", "Every partition gets its turn")
def test_every_partition_gets_its_turn() -> None:
    accumulator = make_accumulator(FakeClock())
    cluster = make_cluster([0] * 5)
    counts = [0] * 5
    for _ in range(10):
        for partition in range(5):
            append(accumulator, partition, LARGE)
        for batch in drain(accumulator, cluster, max_bytes=1400):
            counts[batch.topic_partition.partition] += 1
    assert counts == [4] * 5


def test_drain_starts_at_valid_place_after_partitions_shrank() -> None:
    accumulator = make_accumulator(FakeClock())
    for partition in range(4):
        append(accumulator, partition, LARGE)
    drain(accumulator, make_cluster([0] * 4), max_bytes=2000)
    append(accumulator, 0)
    assert drain(accumulator, make_cluster([0]))


def test_a_batch_that_cannot_be_compressed_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    idempotence = make_idempotence()
    accumulator = make_accumulator(FakeClock(), idempotence=idempotence)
    futures = [append_record(accumulator, partition) for partition in range(3)]
    broken = queued(accumulator, 1)[0]

    def fail() -> None:
        raise MemoryError("no memory for the codec")

    monkeypatch.setattr(broken, "close", fail)
    drained = drain(accumulator, make_cluster([0, 0, 0]))
    assert [batch.topic_partition.partition for batch in drained] == [0, 2]
    with pytest.raises(KafkaError, match=r"could not build a batch of 1 record\(s\) for orders-1: MemoryError"):
        futures[1].result(0)
    assert not futures[0].done()
    # Its memory was released, and its sequence was never assigned.
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 2000
    append(accumulator, 1)
    (batch,) = drain(accumulator, make_cluster([0, 0, 0]))
    assert batch.base_sequence == 0


def test_sequences_are_given_when_a_batch_leaves_its_queue() -> None:
    accumulator = make_accumulator(FakeClock(), idempotence=make_idempotence())
    for _ in range(2):
        append(accumulator, value=LARGE)
    for expected in (0, 1):
        (batch,) = drain(accumulator)
        view, _ = read_wire(batch.wire)
        assert (view.header.producer_id, view.header.base_sequence) == (9, expected)


def test_unsettled_partition_is_skipped_and_the_drain_continues() -> None:
    idempotence = make_idempotence()
    accumulator = make_accumulator(FakeClock(), idempotence=idempotence)
    append(accumulator, 0)
    (unknown,) = drain(accumulator, make_cluster([0, 0]))
    idempotence.failed(unknown)
    append(accumulator, 0)
    append(accumulator, 1)
    drained = drain(accumulator, make_cluster([0, 0]))
    assert [batch.topic_partition.partition for batch in drained] == [1]


# --- retry -----------------------------------------------------------------------------------------------------------


def drain_all(accumulator: MadeAccumulator) -> list[ProducerBatch]:
    found: list[ProducerBatch] = []
    while batches := drain(accumulator):
        found += batches
    return found


def test_a_batch_to_be_retried_goes_before_those_not_yet_sent() -> None:
    accumulator = make_accumulator(FakeClock(), retry_backoff_ms=0)
    for index in range(3):
        append(accumulator, value=b"%d" % index + LARGE)
    (first,) = drain(accumulator)
    accumulator.sender_side.reenqueue(first, 0)
    assert first.attempts == 1
    assert queued(accumulator)[0] is first
    assert [batch is first for batch in drain_all(accumulator)] == [True, False, False]


@with_each("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
@with_each("first_sequence", [2, 2**31 - 2])
def test_retries_with_sequences_stand_in_their_order(order: Sequence[int], first_sequence: int) -> None:
    idempotence = make_idempotence()
    accumulator = make_accumulator(FakeClock(), idempotence=idempotence, retry_backoff_ms=0)
    use_up_sequences(idempotence, tp(0), first_sequence - 1)
    append(accumulator)
    drain(accumulator)
    for index in range(4):
        append(accumulator, value=b"%d" % index + LARGE)
    sent = [drain(accumulator)[0] for _ in range(3)]
    for index in order:
        accumulator.sender_side.reenqueue(sent[index], 0)
    assert queued(accumulator)[:3] == sent
    assert not queued(accumulator)[3].has_sequence


@with_each("order", list(itertools.permutations(range(3))))
def test_retries_without_sequences_are_ordered_by_age(order: Sequence[int]) -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, delivery_timeout_ms=100)
    sent = []
    for index in range(3):
        append(accumulator, value=b"%d" % index + LARGE)
        sent += drain(accumulator)
        clock.advance(10)
    append(accumulator, value=b"new")
    for index in order:
        accumulator.sender_side.reenqueue(sent[index], clock.now_ms)
    assert queued(accumulator)[:3] == sent
    clock.advance(75)
    assert accumulator.sender_side.expired_batches(clock.now_ms)[0] == sent[:1]


def test_the_backoff_of_a_batch_is_drawn_once() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, retry_backoff_ms=100)
    append(accumulator)
    (batch,) = drain(accumulator)
    accumulator.sender_side.reenqueue(batch, clock.now_ms)
    assert batch.retry_backoff_ms == 100
    clock.advance(99)
    assert accumulator.sender_side.ready(ONE, clock.now_ms).next_ready_check_delay_ms == 1
    assert drain(accumulator) == []
    clock.advance(1)
    assert drain(accumulator) == [batch]


def test_the_backoff_doubles_from_the_second_retry_on() -> None:
    clock = FakeClock()
    accumulator = gated_accumulator(clock, None, ExponentialBackoff(100, 1000, jitter=0))
    append(accumulator)
    drawn = []
    for _ in range(6):
        (batch,) = drain(accumulator)
        accumulator.sender_side.reenqueue(batch, clock.now_ms)
        drawn.append(batch.retry_backoff_ms)
        clock.advance(batch.retry_backoff_ms)
    assert drawn == [100, 200, 400, 800, 1000, 1000]


def led_by_the_first_node(leader_epoch: int | None) -> Cluster:
    return Cluster(NODES, [PartitionInfo(TOPIC, 0, NODES[0], leader_epoch)])


@pytest.mark.behaviour("Drain", "A retry to a newer leader does not wait for its backoff")
@with_each(
    ("sent", "known", "left_ms"),
    [(5, 6, 0), (5, 5, 100), (5, 4, 100), (None, 6, 100), (5, None, 100), (None, None, 100)],
)
def test_a_retry_to_a_newer_leader_does_not_wait(sent: int | None, known: int | None, left_ms: int) -> None:
    accumulator = make_accumulator(FakeClock(), retry_backoff_ms=100)
    append(accumulator)
    (batch,) = drain(accumulator, led_by_the_first_node(sent))
    assert batch.leader_epoch == sent
    accumulator.sender_side.reenqueue(batch, accumulator.clock.monotonic_ms())
    cluster = led_by_the_first_node(known)
    assert is_ready(accumulator, cluster) == (left_ms == 0)
    delay_ms = accumulator.sender_side.ready(cluster, accumulator.clock.monotonic_ms()).next_ready_check_delay_ms
    assert delay_ms == (left_ms or FOREVER_MS)
    assert drain(accumulator, cluster) == ([] if left_ms else [batch])


# --- transactions ----------------------------------------------------------------------------------------------------


def test_batches_wait_until_their_transaction_has_them() -> None:
    transactions = GivenTransactions()
    accumulator = gated_accumulator(FakeClock(), transactions)
    for partition in range(3):
        append(accumulator, partition)
    transactions.held_back.add(tp(1))
    cluster = make_cluster([0, 0, 0])
    assert [batch.topic_partition.partition for batch in drain(accumulator, cluster)] == [0, 2]
    assert drain(accumulator, cluster) == []
    transactions.held_back.clear()
    assert [batch.topic_partition.partition for batch in drain(accumulator, cluster)] == [1]


def test_transaction_learns_of_a_batch_that_could_not_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = GivenTransactions()
    accumulator = gated_accumulator(FakeClock(), transactions)
    future = append_record(accumulator)
    monkeypatch.setattr(queued(accumulator)[0], "close", lambda: 1 / 0)
    assert drain(accumulator) == []
    with pytest.raises(KafkaError, match="could not build a batch") as raised:
        future.result(0)
    assert transactions.failures == [raised.value]


def test_only_batches_that_were_never_sent_are_given_up() -> None:
    accumulator = make_accumulator(FakeClock(), idempotence=make_idempotence())
    for _ in range(2):
        append(accumulator, value=LARGE)
    (retried,) = drain(accumulator)
    accumulator.sender_side.reenqueue(retried, 0)
    never_sent = queued(accumulator)[1]
    append(accumulator, 1)
    (in_flight,) = drain(accumulator, make_cluster([None, 0]))
    append(accumulator, 1)
    newest = queued(accumulator, 1)[0]
    reason = KafkaError("given up")
    assert accumulator.sender_side.abort_undrained(reason) == [never_sent, newest]
    assert (queued(accumulator), queued(accumulator, 1)) == ([retried], [])
    assert [batch.is_done for batch in (retried, never_sent, in_flight, newest)] == [False, True, False, True]
    assert never_sent.result.error is newest.result.error is reason
    assert accumulator.incomplete.snapshot() == [retried, in_flight]
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - 2000


def test_a_batch_without_a_sequence_in_flight_is_not_given_up() -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)
    (in_flight,) = drain(accumulator)
    assert accumulator.sender_side.abort_undrained(KafkaError("given up")) == []
    assert not in_flight.is_done


# --- split -----------------------------------------------------------------------------------------------------------

#: The content of a record of 132 bytes, so that two and a header take 325: a quarter more than 260.
OF_132_BYTES = b"x" * 123


@with_each(
    ("most_bytes", "counts"),
    [(10**6, [4, 4]), (472, [4, 4]), (471, [2] * 4), (260, [2] * 4), (259, [1] * 8), (1, [1] * 8)],
)
def test_pieces_are_split_until_they_are_small_enough(most_bytes: int, counts: list[int]) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=10_000, idempotence=make_idempotence())
    sent = [b"%d" % number + OF_132_BYTES[1:] for number in range(8)]
    for value in sent:
        append(accumulator, value=value)
    append(accumulator, value=b"y" * 9_000)
    (batch,) = drain(accumulator)
    assert batch.size_bytes == HEADER_BYTES + 8 * 132
    later = queued(accumulator)
    accumulator.sender_side.split_and_reenqueue(batch, most_bytes)
    pieces = queued(accumulator)[: -len(later)]
    assert queued(accumulator) == pieces + later
    assert [piece.record_count for piece in pieces] == counts
    assert [piece.base_sequence for piece in pieces] == list(range(0, 8, counts[0]))
    assert {(piece.attempts, piece.created_ms) for piece in pieces} == {(0, batch.created_ms)}
    assert accumulator.incomplete.snapshot() == later + pieces
    used = 10_000 + sum(piece.size_bytes for piece in pieces)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory - used
    found: list[bytes | None] = []
    for piece in pieces:
        piece.close()
        found += values(piece)
    assert found == sent


# --- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Delivery time-out", "Batches whose delivery.timeout.ms has passed are taken out of the queues")
def test_expired_batches_are_taken_out_and_next_expiry_noted() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, delivery_timeout_ms=1000)
    for _ in range(2):
        append(accumulator, value=LARGE)
    old = queued(accumulator)
    clock.advance(400)
    append(accumulator, value=LARGE)
    clock.advance(100)
    append(accumulator, partition=1)
    clock.advance(500)
    assert accumulator.sender_side.expired_batches(clock.now_ms) == (old, clock.now_ms + 400)
    assert len(queued(accumulator)) == len(queued(accumulator, 1)) == 1


def test_a_batch_lives_to_the_last_moment() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, delivery_timeout_ms=1000)
    append(accumulator)
    clock.advance(999)
    assert accumulator.sender_side.expired_batches(clock.now_ms) == ([], clock.now_ms + 1)
    clock.advance(1)
    expired, next_expiry_ms = accumulator.sender_side.expired_batches(clock.now_ms)
    assert len(expired) == 1
    assert next_expiry_ms == FOREVER_MS
    assert append(accumulator).new_batch_created


def test_no_single_record_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=10_000)
    for value in (b"1", LARGE, b"2", b"3"):
        append(accumulator, value=value)
    (batch,) = drain(accumulator)
    split = ProducerBatch.split
    counts: list[int] = []
    monkeypatch.setattr(ProducerBatch, "split", lambda it: (counts.append(it.record_count), split(it))[1])
    accumulator.sender_side.split_and_reenqueue(batch, 100)
    assert [piece.record_count for piece in queued(accumulator)] == [1, 1, 2]
    assert counts == [4, 3]
