"""Whole columns at once, while others use the same queues, and when memory is exhausted."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kafka_sink.common.errors import BufferExhaustedError, KafkaError, TransactionStateError
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.producer.batching import column_append
from kafka_sink.producer.batching.column_append import AppendedRows, ColumnAppender, SortedRows
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.futures import Delivery
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size
from kafka_sink.records.vectorized import encode_records, partition_order
from tests.fakes.batches import read_wire
from tests.fakes.chunks import Row, make_chunk
from tests.fakes.clock import FakeClock, on_another_thread
from tests.fakes.producing import (
    NODES,
    MadeAccumulator,
    append,
    append_columns,
    finish,
    make_accumulator,
    make_cluster,
    queue_of,
    queued,
    tp,
)
from tests.unit.producer.gated import GivenTransactions, gated_accumulator

#: A row of which exactly three fit into a batch.
VALUE = b"x" * 100
ROW = Row(VALUE)
THREE_ROWS = HEADER_BYTES + 3 * record_size(0, 0, None, VALUE)


def drain_all(accumulator: MadeAccumulator, partitions: int = 1) -> list[ProducerBatch]:
    cluster = make_cluster([0] * partitions)
    found: list[ProducerBatch] = []
    while drained := accumulator.sender_side.drain(cluster, NODES[:1], 10**9, accumulator.clock.monotonic_ms())[0]:
        found += drained
    return found


def values(batches: list[ProducerBatch]) -> list[list[bytes | None]]:
    for batch in batches:
        batch.close()
    return [[record.value for record in read_wire(batch.wire)[1]] for batch in batches]


@pytest.fixture
def after_encoding(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Actions of other threads between plan and append, one for each time rows are encoded."""
    actions: list[Callable[[], object]] = []
    encode = encode_records

    def encode_then_act(*arguments: Any) -> Any:
        encoded = encode(*arguments)
        if actions:
            on_another_thread(actions.pop(0))
        return encoded

    monkeypatch.setattr(column_append, "encode_records", encode_then_act)
    return actions


# --- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "Record format", "Rows without a timestamp get the time of their own call, also in a batch that is open"
)
def test_rows_without_timestamp_get_the_time_of_their_own_call() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock)
    append_columns(accumulator, [Row(VALUE)])
    clock.advance(70)
    append_columns(accumulator, [Row(VALUE), Row(VALUE)])
    (batch,) = drain_all(accumulator)
    times = [record.timestamp - clock.wall_ms() for record in read_wire(batch.wire)[1]]
    assert times == [-70, 0, 0]


def test_rows_fill_an_open_batch_to_its_last_byte() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS)
    for rows in (1, 5):
        append_columns(accumulator, [ROW] * rows)
    assert [batch.record_count for batch in queued(accumulator)] == [3, 3]


def test_rows_fill_batches_and_only_the_last_stays_open() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS + 5)
    assert append_columns(accumulator, [ROW] * 7)
    assert [batch.record_count for batch in queued(accumulator)] == [3, 3, 1]
    assert [batch.room_bytes > 0 for batch in queued(accumulator)] == [False, False, True]
    assert append_columns(accumulator, [ROW] * 3)
    assert [batch.record_count for batch in queued(accumulator)] == [3, 3, 3, 1]


def test_sender_is_woken_only_for_something_new_to_send() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS)
    assert append_columns(accumulator, [ROW]), "a new batch: when to look again has changed"
    assert not append_columns(accumulator, [ROW])
    assert append_columns(accumulator, [ROW]), "full"


def test_with_long_linger_only_a_complete_batch_wakes_the_sender() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS, linger_ms=50)
    assert not append_columns(accumulator, [ROW])
    assert append_columns(accumulator, [Row(b"y" * 220)]), "the batch before it is complete"
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1]
    assert not queued(accumulator)[-1].is_full
    assert append_columns(accumulator, [ROW._replace(partition=1)] * 3), "full at once"


def test_a_callback_is_told_once_for_each_batch() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS)
    seen: list[Delivery] = []
    append(accumulator)
    append_columns(accumulator, [ROW] * 5, callback=seen.append)
    for number, batch in enumerate(drain_all(accumulator)):
        batch.done(100 * number, NO_TIMESTAMP, None)
    assert [(told.base_offset, told.count) for told in seen] == [(1, 2), (100, 3)]


def test_small_rows_take_more_than_their_content() -> None:
    size = record_size(0, 0, None, b"")
    accumulator = make_accumulator(FakeClock(), batch_size=HEADER_BYTES + 60 * size)
    append_columns(accumulator, [Row(b"")] * 100)
    assert [batch.record_count for batch in queued(accumulator)] == [60, 40]


def test_a_row_larger_than_a_batch_has_one_of_its_own() -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS)
    large = Row(b"y" * 1000)
    append_columns(accumulator, [ROW, large, ROW, ROW])
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1, 2]
    for batch in drain_all(accumulator):
        finish(accumulator, batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory


def place(batches: list[list[Row]], row: Row, room: int) -> None:
    """Append *row* to the last of *batches* if that has room for it, else to a new one."""
    if batches:
        longer = [*batches[-1], row]
        sizes = [
            record_size(number, each.timestamp - longer[0].timestamp, each.key, each.value, each.headers)
            for number, each in enumerate(longer)
        ]
        if sum(sizes) <= room:
            batches[-1].append(row)
            return
    batches.append([row])


def random_row(rng: random.Random, has_timestamps: bool) -> Row:
    size = rng.choice((0, 1, rng.randrange(100), rng.randrange(1000)))
    key = rng.choice((None, b"", rng.randbytes(rng.randrange(70))))
    headers = (("name", rng.choice((None, b"value"))),) * rng.choice((0, 0, 2))
    timestamp = 10**12 + rng.choice((0, rng.randrange(200), rng.randrange(10**9))) if has_timestamps else 0
    return Row(rng.choice((None, rng.randbytes(size))), key, headers, timestamp, rng.randrange(3))


@pytest.mark.parametrize("has_timestamps", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_rows_go_where_one_after_another_would_go(seed: int, has_timestamps: bool) -> None:
    rng, clock = random.Random(seed), FakeClock()
    size = HEADER_BYTES + rng.randrange(200, 1500)
    accumulator = make_accumulator(clock, batch_size=size)
    expected: dict[int, list[list[Row]]] = {partition: [] for partition in range(3)}
    told: list[Delivery] = []
    for _ in range(4):
        # Many small rows, too: the overhead of each is more than its content.
        rows = [random_row(rng, has_timestamps) for _ in range(rng.randrange(1, 50))]
        rows += [Row(b"", timestamp=10**12 + number) for number in range(rng.choice((0, 150)))]
        append_columns(accumulator, rows, has_timestamps=has_timestamps, callback=told.append)
        for row in rows:
            stamped = row if has_timestamps else row._replace(timestamp=clock.wall_ms())
            place(expected[row.partition], stamped, size - HEADER_BYTES)
        clock.advance(rng.randrange(300))
    drained = drain_all(accumulator, 3)
    for partition, batches in expected.items():
        found = [batch for batch in drained if batch.topic_partition == tp(partition)]
        views = [read_wire(batch.wire) for batch in found]
        assert [[record.offset for record in records] for _, records in views] == [[*range(len(b))] for b in batches]
        assert [[(r.value, r.key, tuple(r.headers), r.timestamp) for r in records] for _, records in views] == [
            [(row.value, row.key, row.headers, row.timestamp) for row in batch] for batch in batches
        ]
        spans = [(view.header.base_timestamp, view.header.max_timestamp) for view, _ in views]
        assert spans == [(batch[0].timestamp, max(row.timestamp for row in batch)) for batch in batches]
    for batch in drained:
        batch.done(0, NO_TIMESTAMP, None)
    assert min(delivery.count for delivery in told) > 0
    assert sum(delivery.count for delivery in told) == sum(batch.record_count for batch in drained)


# --- concurrent users of the queues ----------------------------------------------------------------------------------


def test_rows_whose_batch_was_drained_meanwhile_open_a_new_one(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS)
    append_columns(accumulator, [Row(b"0"), Row(b"1")])
    drained: list[ProducerBatch] = []
    after_encoding.append(lambda: drained.extend(drain_all(accumulator)))
    append_columns(accumulator, [Row(b"2"), Row(b"3")])
    assert values(drained) == [[b"0", b"1"]]
    assert values(drain_all(accumulator)) == [[b"2", b"3"]]


def test_only_the_rows_of_drained_batches_are_appended_anew(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock())
    rows = [Row(b"%d" % partition, partition=partition) for partition in range(4)]
    append_columns(accumulator, rows)
    led = make_cluster([None, 0, None, 0])
    after_encoding.append(lambda: accumulator.sender_side.drain(led, NODES[:1], 10**9, 0))
    append_columns(accumulator, [row._replace(value=row.value * 2) for row in rows if row.value])
    assert [values(queued(accumulator, partition)) for partition in range(4)] == [
        [[b"0", b"00"]],
        [[b"11"]],
        [[b"2", b"22"]],
        [[b"33"]],
    ]


def test_record_appended_meanwhile_stands_before_the_rows(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator, value=b"0")
    after_encoding.append(lambda: append(accumulator, value=b"theirs"))
    append_columns(accumulator, [Row(b"1"), Row(b"2")])
    (batch,) = drain_all(accumulator)
    assert values([batch]) == [[b"0", b"theirs", b"1", b"2"]]
    _, records = read_wire(batch.wire)
    assert [record.offset for record in records] == [0, 1, 2, 3]


def test_rows_stay_in_order_when_their_first_batch_was_drained(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS)
    append_columns(accumulator, [ROW, Row(b"a", partition=1)])
    after_encoding.append(lambda: drain_all(accumulator))
    rows = [Row(b"%d" % index + VALUE) for index in range(6)]
    append_columns(accumulator, [*rows, Row(b"b", partition=1)])
    assert values(queued(accumulator)) == [
        [row.value for row in rows[:2]],
        [row.value for row in rows[2:4]],
        [row.value for row in rows[4:]],
    ]
    assert values(queued(accumulator, 1)) == [[b"a", b"b"]]


def test_rows_are_appended_despite_repeatedly_outdated_plans(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=10_000)
    append(accumulator, value=b"first")
    after_encoding.extend([lambda: append(accumulator, value=b"theirs")] * 50)
    assert append_columns(accumulator, [Row(b"1"), Row(b"2")]), "a new batch at last"
    assert len(after_encoding) == 50 - 4
    found = [value for batch in values(queued(accumulator)) for value in batch if value != b"theirs"]
    assert found == [b"first", b"1", b"2"]


def test_rows_of_drained_batches_are_encoded_again_together(
    after_encoding: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulator = make_accumulator(FakeClock())
    rows = [Row(b"%d" % partition, partition=partition) for partition in range(20)]
    append_columns(accumulator, rows)
    calls: list[int] = []
    # The function of the fixture.
    encode = vars(column_append)["encode_records"]
    monkeypatch.setattr(
        column_append, "encode_records", lambda chunk, *rest: (calls.append(chunk.num_rows), encode(chunk, *rest))[1]
    )
    after_encoding.append(lambda: drain_all(accumulator, 20))
    append_columns(accumulator, rows)
    assert calls == [20, 20]
    assert len(drain_all(accumulator, 20)) == 20


def run_together(*works: Callable[[], None]) -> None:
    """Run *works* in a thread each, all started at once; raise the first error."""
    start = threading.Barrier(len(works))
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            start.wait(60)
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    if failures:
        raise failures[0]


@pytest.mark.behaviour(
    "Threads", "Threads that stage and the sender work apart from each other, and lose and reorder nothing"
)
def test_threads_and_a_sender_at_once_lose_and_reorder_nothing() -> None:
    accumulator = make_accumulator(FakeClock(shared=True), batch_size=200, memory=10**7)
    cluster = make_cluster([0] * 3)
    drained: list[ProducerBatch] = []
    finished: list[int] = []

    def send(number: int) -> None:
        for piece in range(40):
            rows = [Row(b"%d-%d" % (number, 30 * piece + i), partition=i % 3) for i in range(30)]
            append_columns(accumulator, rows)
        finished.append(number)

    def drain() -> None:
        while len(finished) < 3:
            drained.extend(accumulator.sender_side.drain(cluster, NODES[:1], 10**9, 0)[0])

    run_together(drain, *(lambda number=number: send(number) for number in range(3)))
    drained.extend(drain_all(accumulator, 3))
    assert all(batch.size_bytes <= 200 for batch in drained)
    found = {partition: _values_of(drained, partition) for partition in range(3)}
    for partition, number in itertools.product(range(3), range(3)):
        mine = [int(value.split(b"-")[1]) for value in found[partition] if value.startswith(b"%d-" % number)]
        assert mine == list(range(partition, 1200, 3))


def _values_of(batches: list[ProducerBatch], partition: int) -> list[bytes]:
    chosen = [batch for batch in batches if batch.topic_partition == tp(partition)]
    return [value for found in values(chosen) for value in found if value is not None]


def acquired_for_a_moment(lock: threading.RLock) -> bool:
    if not lock.acquire(blocking=False):
        return False
    lock.release()
    return True


# --- memory and close ------------------------------------------------------------------------------------------------


def test_exhausted_memory_leaves_only_the_rows_appended_so_far() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, batch_size=THREE_ROWS, memory=2 * THREE_ROWS)
    told: list[Delivery] = []
    rows = [Row(b"%d" % index + VALUE[1:]) for index in range(9)]
    with pytest.raises(BufferExhaustedError):
        append_columns(accumulator, rows, callback=told.append, max_block_ms=70)
    assert clock.waits == [70]
    assert accumulator.pool.available_memory == 0
    batches = drain_all(accumulator)
    assert values(batches) == [[row.value for row in rows[:3]], [row.value for row in rows[3:6]]]
    for batch in batches:
        finish(accumulator, batch)
    assert sum(delivery.count for delivery in told) == 6
    assert accumulator.pool.available_memory == accumulator.pool.total_memory
    assert append_columns(accumulator, rows[:3])


@pytest.mark.parametrize("seed", range(60))
def test_after_an_error_it_is_told_which_rows_are_in_batches(
    seed: int, after_encoding: list[Callable[[], object]]
) -> None:
    rng = random.Random(seed)
    accumulator = make_accumulator(FakeClock(), batch_size=THREE_ROWS, memory=rng.randrange(3, 40) * THREE_ROWS)
    before = [Row(b"before %d" % number, partition=rng.randrange(4)) for number in range(rng.randrange(1, 4))]
    append_columns(accumulator, before)
    found: list[bytes | None] = []

    def some_leave() -> None:
        # Their batches are drained between plan and append, but their memory is not released.
        led = make_cluster([0 if rng.random() < 0.5 else None for _ in range(4)])
        drained = accumulator.sender_side.drain(led, NODES[:1], 10**9, 0)[0]
        found.extend(value for batch in values(drained) for value in batch)
        for partition in range(rng.choice((0, 4))):
            with contextlib.suppress(BufferExhaustedError):
                append(accumulator, partition, b"another")

    after_encoding.extend([some_leave] * rng.randrange(5))
    rows = [Row(b"%040d" % number, partition=rng.randrange(4)) for number in range(rng.randrange(1, 60))]
    chunk = make_chunk(rows)
    order, numbers, starts = partition_order(np.array([row.partition for row in rows], dtype=np.int32))
    appended = AppendedRows(len(rows))
    sorted_chunk = chunk if order is None else chunk.take(order)
    with contextlib.suppress(BufferExhaustedError):
        sorted_rows = SortedRows("orders", sorted_chunk, [tp(number) for number in numbers.tolist()], starts, 0)
        ColumnAppender(accumulator, accumulator.clock).append(sorted_rows, None, 0, appended)
    found += [value for batch in values(drain_all(accumulator, 4)) for value in batch]
    in_order = rows if order is None else [rows[place] for place in order]
    told = [row.value for row, is_appended in zip(in_order, appended.is_appended, strict=True) if is_appended]
    others = [b"another", *(row.value for row in before)]
    assert sorted(map(str, told)) == sorted(str(value) for value in found if value not in others)


def test_pieces_of_rows_are_told_by_their_places() -> None:
    appended = AppendedRows(10)
    appended.begin(1, None)
    appended.add(0, 2)
    appended.begin(5, np.array([3, 0, 2, 1]))
    appended.add(0, 1)
    # The second and the fourth row: 5 + 0 and 5 + 1.
    appended.go_on_with(np.array([1, 3]))
    appended.add(0, 2)
    assert np.flatnonzero(appended.is_appended).tolist() == [1, 2, 5, 6, 8]


def test_rows_whose_batch_cannot_grow_get_one_of_their_own(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock(), batch_size=40_000, memory=70_000)
    append_columns(accumulator, [Row(b"x" * 10_000)])
    hold = accumulator.pool.allocate(25_000, 0)
    after_encoding.extend([lambda: None] * 5)
    append_columns(accumulator, [Row(b"y" * 10_500)])
    assert len(after_encoding) == 3, "planned once again, and not onto that batch"
    assert [batch.record_count for batch in queued(accumulator)] == [1, 1]
    accumulator.pool.deallocate(hold)
    append_columns(accumulator, [Row(b"z" * 9_000)])
    assert [batch.record_count for batch in queued(accumulator)] == [1, 2]
    for batch in drain_all(accumulator):
        finish(accumulator, batch)
    assert accumulator.pool.available_memory == accumulator.pool.total_memory


def test_the_wait_for_memory_is_counted_for_the_whole_chunk() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, batch_size=THREE_ROWS, memory=THREE_ROWS)

    def one_is_acknowledged() -> None:
        clock.advance(30)
        (batch,) = drain_all(accumulator)
        finish(accumulator, batch)

    clock.actions.extend([one_is_acknowledged, one_is_acknowledged])
    append_columns(accumulator, [ROW] * 9, max_block_ms=100)
    assert clock.waits == [100, 70]
    with pytest.raises(BufferExhaustedError):
        append_columns(accumulator, [ROW], max_block_ms=0)
    assert clock.waits == [100, 70]


def test_while_memory_is_awaited_what_was_appended_can_be_sent() -> None:
    clock = FakeClock()
    accumulator = make_accumulator(clock, batch_size=THREE_ROWS + 5, memory=THREE_ROWS + 5, linger_ms=5000)
    seen: list[bool] = []
    clock.actions.append(
        lambda: seen.append(bool(accumulator.sender_side.ready(make_cluster([0]), clock.now_ms).ready_nodes))
    )
    with pytest.raises(BufferExhaustedError):
        append_columns(accumulator, [ROW] * 4)
    assert seen == [True]


def test_rows_need_an_open_transaction() -> None:
    transactions = GivenTransactions()
    accumulator = gated_accumulator(FakeClock(), transactions)
    append_columns(accumulator, [ROW, ROW, Row(b"1", partition=1)])
    assert transactions.added == [tp(0), tp(1)]
    transactions.is_open = False
    with pytest.raises(TransactionStateError):
        append_columns(accumulator, [ROW])
    assert [batch.record_count for batch in queued(accumulator)] == [2]


def test_a_closed_accumulator_takes_no_rows() -> None:
    accumulator = make_accumulator(FakeClock())
    accumulator.close()
    with pytest.raises(KafkaError, match="producer closed while send in progress"):
        append_columns(accumulator, [ROW])
    assert accumulator.pool.available_memory == accumulator.pool.total_memory


@pytest.mark.parametrize("had_open_batch", [False, True])
def test_closing_between_plan_and_append_leaves_nothing_behind(
    after_encoding: list[Callable[[], object]], had_open_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulator = make_accumulator(FakeClock())
    if had_open_batch:
        append(accumulator)
    before = accumulator.pool.available_memory

    # The pool is closed slightly later.
    monkeypatch.setattr(accumulator.pool, "close", lambda: None)
    after_encoding.append(accumulator.close)
    with pytest.raises(KafkaError, match="closed"):
        append_columns(accumulator, [ROW])
    assert accumulator.pool.available_memory == before
    assert [batch.record_count for batch in queued(accumulator)] == ([1] if had_open_batch else [])
    accumulator.await_appends()


def test_no_lock_is_held_while_rows_are_encoded(after_encoding: list[Callable[[], object]]) -> None:
    accumulator = make_accumulator(FakeClock())
    append(accumulator)
    held: list[bool] = []
    after_encoding.append(lambda: held.append(not acquired_for_a_moment(queue_of(accumulator, 0).lock)))
    append_columns(accumulator, [ROW])
    assert held == [False]
