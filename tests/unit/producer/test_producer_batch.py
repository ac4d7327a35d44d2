"""A batch from its first record to its single completion."""

from __future__ import annotations

import logging

import pytest

from kafka_sink.common.errors import KafkaError, RecordTooLargeError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP
from kafka_sink.producer.batching.producer_batch import (
    Compression,
    FinalState,
    ProducerBatch,
    sequence_after,
    sequence_precedes,
)
from kafka_sink.producer.futures import Delivery, DeliveryCallback, FutureRecordMetadata
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size, write_record
from tests.fakes.batches import TP, UNCOMPRESSED, GivenMemory, append, make_batch, on_the_wire, read_wire
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

# --- appending -------------------------------------------------------------------------------------------------------


def test_records_come_back_as_they_were_appended() -> None:
    batch = make_batch()
    append(batch, b"one", key=b"k", timestamp=5000, headers=[("h", b"x"), ("n", None)])
    append(batch, None, key=None, timestamp=5020)
    append(batch, b"", key=b"", timestamp=4990)
    batch.close()
    view, records = read_wire(batch.wire)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == [
        (0, 5000, b"k", b"one", (("h", b"x"), ("n", None))),
        (1, 5020, None, None, ()),
        (2, 4990, b"", b"", ()),
    ]
    assert (view.header.base_timestamp, view.header.max_timestamp) == (5000, 5020)


def test_record_filling_last_byte_fits_and_one_more_does_not() -> None:
    size = record_size(0, 0, None, b"x" * 50)
    exact = make_batch(room=size)
    assert exact.try_append(5000, None, b"x" * 50, (), None) is not None
    assert exact.is_full
    assert exact.room_bytes == 0
    assert make_batch(room=size - 1).try_append(5000, None, b"x" * 50, (), None) is None


#: Around the sizes at which a length takes one byte more.
EDGES = [0, 1, 2, *range(50, 68), *range(8178, 8196), 2**20 - 1, 2**20]


@with_each("varied", ["key", "value", "headers", "nulls"])
def test_sizes_of_records_are_counted_to_the_byte(varied: str) -> None:
    for edge in EDGES:
        data = b"x" * edge
        key, value = {"key": (data, None), "value": (None, data)}.get(varied, (b"k", data))
        headers = [("h", b"v")] * (edge % 70) if varied == "headers" else []
        if varied == "nulls":
            key = value = None
        batch = make_batch(room=2 * edge + 2000)
        for index in range(2):
            before = batch.size_bytes
            append(batch, value, key=key, headers=headers)
            assert batch.size_bytes - before == record_size(index, 0, key, value, headers)
        size = batch.size_bytes
        batch.close()
        assert batch.size_bytes == size
        assert batch.largest_record_bytes == record_size(1, 0, key, value, headers)
        assert [(r.key, r.value, list(r.headers)) for r in read_wire(batch.wire)[1]] == [(key, value, headers)] * 2


def test_sizes_of_deltas_are_counted_to_the_byte() -> None:
    edges = [0, 1, 62, 63, 64, 65, 127, 128, 8191, 8192, 2**20 - 1, 2**20, 2**40]
    batch = make_batch(room=1000)
    append(batch, timestamp=5000)
    for index, delta in enumerate([*edges, *(-edge for edge in edges)], start=1):
        before = batch.size_bytes
        append(batch, timestamp=5000 + delta)
        assert batch.size_bytes - before == record_size(index, delta, None, b"value")


def test_sizes_of_positions_are_counted_to_the_byte() -> None:
    batch = make_batch(room=200_000)
    for index in range(8200):
        before = batch.size_bytes
        append(batch, b"")
        assert batch.size_bytes - before == record_size(index, 0, None, b"")
    size = batch.size_bytes
    batch.close()
    assert batch.size_bytes == size
    assert [record.offset for record in read_wire(batch.wire)[1]] == list(range(8200))


def test_a_new_batch_has_no_past() -> None:
    batch = make_batch()
    assert (batch.retry_backoff_ms, batch.attempts, batch.unanswered_sends, batch.largest_record_bytes) == (0, 0, 0, 0)
    assert not any((batch.reopened_sequence, batch.may_be_stored, batch.was_sent, batch.has_sequence, batch.is_done))
    append(batch)
    batch.close()
    view, _ = read_wire(batch.wire)
    assert not view.is_transactional
    for change in ("may_be_stored", "unanswered_sends", "attempts"):
        sent = make_batch()
        setattr(sent, change, 1)
        assert sent.was_sent


def test_a_record_that_may_not_fill_its_batch_leaves_room() -> None:
    size = record_size(0, 0, None, b"x" * 50)
    for room, fits in ((size - 1, False), (size, False), (size + 1, True)):
        assert (make_batch(room=room).try_append(5000, None, b"x" * 50, (), None, False) is not None) is fits
    batch = make_batch(room=size + 1)
    assert batch.room_bytes == size + 1
    assert batch.try_append(5000, None, b"x" * 50, (), None, False) is not None
    assert (batch.room_bytes, batch.is_full) == (1, False)


def test_a_batch_does_not_grow_for_what_it_has_room_for() -> None:
    room = 100 - HEADER_BYTES
    encoded = bytearray()
    write_record(encoded, 0, 0, None, b"x" * (room - 7))
    assert len(encoded) == room
    for size in (room - 1, room):
        batch = growing(300, [])
        assert batch.try_append(5000, None, b"x" * (size - 7), (), None) is not None
        batch = growing(300, [])
        assert batch.append_encoded(encoded[:size], 1, 5000, 5000, None)
        assert len(batch.memory) == 100
    assert growing(300, []).try_append(5000, None, b"x" * (room - 6), (), None) is None
    assert not growing(300, []).append_encoded(encoded + b"x", 1, 5000, 5000, None)


def test_rows_fill_a_batch_to_its_last_byte() -> None:
    encoded = bytearray()
    write_record(encoded, 0, 0, None, b"row")
    assert not make_batch(room=len(encoded) - 1).append_encoded(encoded, 1, 5000, 5000, None)
    batch = make_batch(room=len(encoded))
    assert batch.append_encoded(encoded, 1, 5000, 5100, None)
    assert batch.is_full
    batch.close()
    view, records = read_wire(batch.wire)
    assert [record.value for record in records] == [b"row"]
    assert (view.header.base_timestamp, view.header.max_timestamp) == (5000, 5100)


def test_a_batch_grows_for_rows_up_to_its_limit() -> None:
    encoded = bytearray()
    write_record(encoded, 0, 0, None, b"x" * 60)
    batch = growing(HEADER_BYTES + len(encoded) - 1, [400])
    assert not batch.append_encoded(encoded, 1, 5000, 5000, None)
    assert len(batch.memory) == 100
    batch = growing(HEADER_BYTES + len(encoded), [400])
    assert batch.append_encoded(encoded, 1, 5000, 5000, None)
    assert len(batch.memory) == 400
    batch.close()
    assert [record.value for record in read_wire(batch.wire)[1]] == [b"x" * 60]


def test_nothing_is_appended_in_the_middle_of_an_append() -> None:
    seen: list[tuple[bool, int]] = []

    class Watched(GivenMemory):
        def allocate_larger(self, needed: int) -> bytearray | None:
            seen.append((batch.is_full, batch.room_bytes))
            return super().allocate_larger(needed)

    encoded = bytearray()
    write_record(encoded, 0, 0, None, b"x" * 60)
    for _ in range(2):
        batch = ProducerBatch(TP, bytearray(100), Watched([400], 400), UNCOMPRESSED, FakeClock(), 0)
        if not seen:
            assert batch.append_encoded(encoded, 1, 5000, 5000, None)
        else:
            append(batch, b"x" * 60)
    assert seen == [(True, 0)] * 2


def test_records_without_a_callback_are_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    batch, encoded = make_batch(values=[b"one"]), bytearray()
    write_record(encoded, 1, 0, None, b"row")
    assert batch.append_encoded(encoded, 1, 5000, 5000, None, records_before=1)
    batch.done(0, NO_TIMESTAMP, None)
    assert not caplog.records


def test_records_and_rows_take_turns_in_a_batch() -> None:
    batch, expected = make_batch(room=5000), bytearray()
    for index in range(0, 80, 4):
        append(batch, b"one", timestamp=5000 + index)
        append(batch, b"two", timestamp=4990, headers=[("h", b"v")])
        encoded = bytearray()
        for place in (2, 3):
            write_record(encoded, index + place, 7, b"k", b"row")
        assert batch.append_encoded(encoded, 2, 1, 5200 - index, None, records_before=index + 2)
        write_record(expected, index, index, None, b"one")
        write_record(expected, index + 1, -10, None, b"two", [("h", b"v")])
        expected += encoded
    batch.close()
    assert on_the_wire(batch.wire)[HEADER_BYTES:] == expected
    view, _ = read_wire(batch.wire)
    assert (view.header.base_timestamp, view.header.max_timestamp) == (5000, 5200)


def growing(limit: int, sizes: list[int | None]) -> ProducerBatch:
    """A batch of at most *limit* bytes that begins with 100 and then gets memory of *sizes*."""

    return ProducerBatch(TP, bytearray(100), GivenMemory(sizes, limit), UNCOMPRESSED, FakeClock(), 0)


def test_a_batch_grows_up_to_its_limit() -> None:
    sizes: list[int | None] = [200, 400]
    batch, fixed = growing(300, sizes), make_batch(room=300 - HEADER_BYTES)
    for each in (batch, fixed):
        count = 0
        while each.try_append(5000, None, b"x" * 30, (), None) is not None:
            count += 1
        assert count == 6
        each.close()
    assert on_the_wire(batch.wire) == on_the_wire(fixed.wire)
    assert sizes == []
    assert len(batch.memory) == 400


def test_without_memory_to_grow_nothing_is_appended() -> None:
    batch = growing(300, [None, None])
    append(batch, b"x" * 20)
    before = batch.size_bytes
    assert batch.try_append(5000, None, b"x" * 30, (), None) is None
    assert not batch.append_encoded(b"x" * 30, 1, 5000, 5000, None)
    assert (batch.size_bytes, batch.record_count) == (before, 1)
    assert batch.room_bytes > 30


def test_an_empty_batch_is_not_full() -> None:
    assert not make_batch(room=0).is_full


def test_a_closed_batch_takes_nothing_more() -> None:
    batch = make_batch(values=[b"one"])
    batch.close_for_appends()
    assert batch.is_full
    assert batch.room_bytes == 0
    assert batch.try_append(5000, None, b"two", (), None) is None
    assert not batch.append_encoded(b"\x00", 1, 5000, 5000, None, records_before=1)
    assert batch.record_count == 1


@pytest.mark.behaviour("Compression", "Batches of all five codecs can be read, also by foreign readers")
@with_each("codec", list(CompressionType))
def test_every_codec_can_be_read_back(codec: CompressionType) -> None:
    batch = make_batch(compression=Compression(codec, None), values=[b"same" * 50] * 4)
    batch.close()
    view, records = read_wire(batch.wire)
    assert view.header.compression is codec
    assert [record.value for record in records] == [b"same" * 50] * 4
    assert batch.wire_bytes == len(on_the_wire(batch.wire))
    assert (batch.wire_bytes < batch.size_bytes) == (codec is not CompressionType.NONE)


@pytest.mark.behaviour("Compression", "The compression level is the one that was configured")
@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_the_level_of_compression_is_the_one_asked_for(codec: CompressionType) -> None:
    text = "".join(f"{number * number % 9973:x}," for number in range(4000)).encode()
    sizes = []
    for level in (1, 9):
        batch = make_batch(room=30_000, compression=Compression(codec, level), values=[text])
        batch.close()
        sizes.append(batch.wire_bytes)
    assert sizes[1] != sizes[0]


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "A record that an interrupt left half staged is no part of its batch"
)
@pytest.mark.parametrize("struck", ["keys", "values", "headers"])
def test_half_staged_interrupted_record_is_not_in_the_batch(struck: str) -> None:
    class Struck(list[bytes | None]):
        def append(self, item: bytes | None) -> None:
            if struck == "headers":
                super().append(item)
            raise KeyboardInterrupt

    batch = make_batch()
    append(batch, b"before")
    # Private: an interrupt occurs between two lines of the append.
    staging = batch._staging
    assert staging is not None
    name = "values" if struck == "headers" else struck
    whole = getattr(staging, name)
    setattr(staging, name, Struck(whole))
    with pytest.raises(KeyboardInterrupt):
        append(batch, b"struck")
    assert batch.try_append(5000, None, b"after", (), None) is None
    batch.close()
    _, records = read_wire(batch.wire)
    assert [record.value for record in records] == [b"before"]


def test_interrupted_record_of_a_later_run_is_not_in_the_batch() -> None:
    batch, encoded = make_batch(), bytearray()
    told: list[int] = []
    append(batch, b"one")
    for index in (1, 2, 3):
        write_record(encoded, index, 0, None, b"row")
    assert batch.append_encoded(encoded, 3, 5000, 5000, None, records_before=1)
    append(batch, b"two", callback=lambda delivery: told.append(delivery.count))
    append(batch, b"struck", callback=lambda delivery: told.append(delivery.count))
    # The interrupt occurred before the record was counted.
    batch.record_count = 5
    batch.close()
    view, records = read_wire(batch.wire)
    assert [record.value for record in records] == [b"one", b"row", b"row", b"row", b"two"]
    assert batch.size_bytes == view.header.size_in_bytes
    batch.done(0, NO_TIMESTAMP, None)
    assert told == [1]


def test_a_batch_is_built_once() -> None:
    batch = make_batch(values=[b"one", b"two"], compression=Compression(CompressionType.GZIP, None))
    batch.close()
    assert batch.try_append(5000, None, b"three", (), None) is None
    first = batch.wire
    batch.close()
    assert all(one is other for one, other in zip(first, batch.wire, strict=True))
    assert read_wire(first)[0].header.last_offset_delta == 1


def test_the_memory_of_a_batch_is_released_once() -> None:
    batch = make_batch(room=100, values=[b"one"])
    assert len(batch.release_memory()) == 161
    assert not batch.release_memory()


def test_an_open_batch_has_no_wire_form() -> None:
    batch = make_batch(values=[b"one"])
    assert batch.wire_bytes == batch.size_bytes
    with pytest.raises(RuntimeError, match="closed before it is sent"):
        _ = batch.wire


# --- sequences -------------------------------------------------------------------------------------------------------


def test_new_sequence_after_close_makes_new_header_and_crc() -> None:
    batch = make_batch(values=[b"one", b"two"])
    batch.close()
    batch.set_producer_state(9, 1, 70)
    first = batch.wire
    before = on_the_wire(first)
    batch.reset_producer_state(9, 2, 0)
    view, records = read_wire(batch.wire)
    assert (view.header.producer_id, view.header.producer_epoch, view.header.base_sequence) == (9, 2, 0)
    assert len(records) == 2
    # An attempt with the old header may be partly written.
    assert on_the_wire(first) == before
    view, _ = read_wire(first)
    assert (view.header.producer_epoch, view.header.base_sequence) == (1, 70)


def test_reopened_sequence_lasts_until_the_batch_is_closed_again() -> None:
    batch = make_batch(values=[b"one"])
    batch.close()
    batch.set_producer_state(9, 1, 70)
    assert not batch.reopened_sequence
    batch.reset_producer_state(9, 2, 0)
    assert batch.reopened_sequence
    batch.close()
    assert not batch.reopened_sequence


def test_sequences_wrap_to_zero() -> None:
    batch = make_batch(values=[b"x"] * 5)
    batch.set_producer_state(9, 0, 2**31 - 3)
    assert batch.last_sequence == 1
    assert sequence_after(2**31 - 1) == 0
    assert sequence_after(2**31 - 3, 5) == 2


@with_each(
    ("first", "second", "expected"),
    [
        (0, 1, True),
        (1, 0, False),
        (5, 5, False),
        (2**31 - 1, 0, True),
        (0, 2**31 - 1, False),
        (2**31 - 10, 7, True),
        (0, 2**30 - 1, True),
        (0, 2**30, False),
        (0, 2**30 + 1, False),
    ],
)
def test_order_of_sequences_holds_across_the_wrap(first: int, second: int, expected: bool) -> None:
    assert sequence_precedes(first, second) is expected


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("ProducerBatch", "Callbacks are called in the order of the records, and before get() returns")
def test_callbacks_come_in_order_and_before_get_returns() -> None:
    batch = make_batch()
    seen: list[tuple[str, int, bool]] = []

    def send(name: str) -> FutureRecordMetadata:
        return append(batch, b"v", callback=lambda told: seen.append((name, told.base_offset, batch.result.wait(0))))

    futures = [send(name) for name in ("first", "second", "third")]
    assert batch.done(40, NO_TIMESTAMP, None)
    assert seen == [("first", 40, False), ("second", 41, False), ("third", 42, False)]
    assert [future.result(0).offset for future in futures] == [40, 41, 42]


@pytest.mark.behaviour("ProducerBatch", "A callback that raises does not keep the next ones from being called")
def test_raising_callback_does_not_stop_the_next_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    batch = make_batch()
    seen: list[Delivery] = []

    def fail(delivery: Delivery) -> None:
        raise RuntimeError("mine")

    append(batch, b"1", callback=fail)
    future = append(batch, b"2", callback=seen.append)
    with caplog.at_level(logging.ERROR):
        assert batch.done(7, NO_TIMESTAMP, None)
    assert [delivery.base_offset for delivery in seen] == [8]
    assert future.result(0).offset == 8
    assert "delivery callback for orders-3 raised" in caplog.text
    assert "RuntimeError: mine" in caplog.text, "with its traceback"


def test_a_run_of_rows_is_told_once_with_its_count_and_bytes() -> None:
    batch = make_batch()
    seen: list[Delivery] = []
    append(batch, b"before")
    encoded = bytearray()
    for index in (1, 2, 3):
        write_record(encoded, index, 0, None, b"row")
    assert not batch.append_encoded(encoded, 3, 5000, 5000, seen.append), "it has a record before them"
    assert batch.append_encoded(encoded, 3, 5000, 5000, seen.append, records_before=1)
    batch.done(100, 6000, None)
    assert seen == [Delivery(TP, 101, 3, len(encoded), 6000, None)]


def test_pieces_tell_each_callback_of_its_records_and_bytes() -> None:
    batch, encoded = make_batch(), bytearray()
    seen: dict[str, list[tuple[int, int, int]]] = {}

    def note(name: str) -> DeliveryCallback:
        return lambda told: seen.setdefault(name, []).append((told.base_offset, told.count, told.size_bytes))

    sizes = [record_size(index, 0, None, b"x" * (20 + index)) for index in range(6)]
    for index in (0, 1):
        append(batch, b"x" * (20 + index), callback=note(str(index)))
    for index in (2, 3, 4):
        write_record(encoded, index, 0, None, b"x" * (20 + index))
    assert batch.append_encoded(encoded, 3, 5000, 5000, note("rows"), records_before=2)
    append(batch, b"x" * 25, callback=note("5"))
    first, second = batch.split()
    assert (first.record_count, second.record_count) == (3, 3)
    first.done(100, NO_TIMESTAMP, None)
    second.done(200, NO_TIMESTAMP, None)
    assert seen == {
        "0": [(100, 1, sizes[0])],
        "1": [(101, 1, sizes[1])],
        "rows": [(102, 1, sizes[2]), (200, 2, sizes[3] + sizes[4])],
        "5": [(202, 1, sizes[5])],
    }


def test_a_piece_tells_nothing_of_the_records_of_the_other() -> None:
    batch, seen = make_batch(), list[tuple[int, int]]()
    for value in (b"1", b"2"):
        append(batch, value, callback=lambda told: seen.append((told.base_offset, told.count)))
    for number, piece in enumerate(batch.split()):
        piece.done(number, NO_TIMESTAMP, None)
    assert seen == [(0, 1), (1, 1)]


@with_each(("attempts", "may_be_stored"), [(0, False), (1, False), (0, True), (2, True)])
def test_pieces_may_be_stored_if_their_batch_may_be(attempts: int, may_be_stored: bool) -> None:
    batch = make_batch(values=[b"1", b"2"])
    batch.attempts, batch.may_be_stored = attempts, may_be_stored
    for piece in batch.split():
        assert piece.may_be_stored is (attempts > 0 or may_be_stored)


def test_sizes_of_null_are_minus_one_and_of_empty_zero() -> None:
    batch = make_batch()
    nulls, empties = append(batch, None, key=None), append(batch, b"", key=b"")
    batch.done(0, NO_TIMESTAMP, None)
    assert (nulls.result(0).serialized_key_size, nulls.result(0).serialized_value_size) == (-1, -1)
    assert (empties.result(0).serialized_key_size, empties.result(0).serialized_value_size) == (0, 0)


def test_an_offset_that_is_not_known_is_not_counted_up() -> None:
    batch = make_batch()
    seen: list[Delivery] = []
    append(batch, b"1")
    future = append(batch, b"2", callback=seen.append)
    batch.done(NO_OFFSET, NO_TIMESTAMP, None)
    assert seen[0].base_offset == NO_OFFSET
    assert future.result(0).offset == NO_OFFSET


@with_each(("named", "told"), [(0, "a"), (1, "b"), (2, "b"), (3, "b"), (4, "c"), (5, "")])
def test_an_error_of_one_record_is_told_to_its_callback(named: int, told: str) -> None:
    batch, seen = make_batch(), dict[str, Exception | None]()

    def note(name: str) -> DeliveryCallback:
        return lambda delivery: seen.__setitem__(name, delivery.error)

    append(batch, b"1", callback=note("a"))
    encoded = bytearray()
    for index in (1, 2, 3):
        write_record(encoded, index, 0, None, b"row")
    assert batch.append_encoded(encoded, 3, 5000, 5000, note("b"), records_before=1)
    append(batch, b"2", callback=note("c"))
    whole, own = KafkaError("of all"), KafkaError("of one")
    batch.done(NO_OFFSET, NO_TIMESTAMP, whole, {named: own})
    assert seen == {name: own if name == told else whole for name in "abc"}


def test_a_callback_is_told_the_bytes_of_its_record() -> None:
    batch = make_batch()
    seen: list[int] = []
    for size in (3, 5, 80):
        append(batch, b"x" * size, callback=lambda delivery: seen.append(delivery.size_bytes))
    batch.done(0, NO_TIMESTAMP, None)
    assert seen == [record_size(index, 0, None, b"x" * size) for index, size in enumerate((3, 5, 80))]


def test_failure_reaches_callback_and_future() -> None:
    batch = make_batch()
    seen: list[Delivery] = []
    future = append(batch, b"1", callback=seen.append)
    error = RecordTooLargeError("too large")
    assert batch.done(NO_OFFSET, NO_TIMESTAMP, error)
    assert batch.final_state is FinalState.FAILED
    assert seen[0].error is error
    with pytest.raises(RecordTooLargeError):
        future.result(0)


def test_a_second_end_after_a_failure_is_ignored() -> None:
    batch = make_batch()
    seen: list[Delivery] = []
    append(batch, b"1", callback=seen.append)
    assert batch.done(NO_OFFSET, NO_TIMESTAMP, KafkaError("expired"))
    assert not batch.done(5, NO_TIMESTAMP, None)
    assert not batch.done(NO_OFFSET, NO_TIMESTAMP, KafkaError("again"))
    assert len(seen) == 1
    assert batch.final_state is FinalState.FAILED


@pytest.mark.behaviour("ProducerBatch", "A batch ends once")
def test_success_is_final() -> None:
    batch = make_batch(values=[b"1"])
    assert batch.done(5, NO_TIMESTAMP, None)
    with pytest.raises(RuntimeError, match="had succeeded was completed again as failed"):
        batch.done(NO_OFFSET, NO_TIMESTAMP, KafkaError("late"))
    with pytest.raises(RuntimeError, match="had succeeded was completed again as succeeded"):
        batch.done(6, NO_TIMESTAMP, None)
    assert batch.result.base_offset == 5


def test_aborted_batch_fails_its_records_and_ignores_later_ends() -> None:
    batch = make_batch()
    future = append(batch, b"1")
    assert batch.abort(KafkaError("closed"))
    assert batch.final_state is FinalState.ABORTED
    assert not batch.abort(KafkaError("again"))
    assert not batch.done(5, NO_TIMESTAMP, None)
    with pytest.raises(KafkaError, match="closed"):
        future.result(0)


def test_a_batch_that_succeeded_is_not_aborted() -> None:
    batch = make_batch(values=[b"1"])
    batch.done(5, NO_TIMESTAMP, None)
    assert not batch.abort(KafkaError("closed"))
    assert batch.result.error is None


def test_a_retry_waits_from_its_failure_and_counts() -> None:
    batch = make_batch(created_ms=100, values=[b"1"])
    assert (batch.attempts, batch.last_attempt_ms) == (0, 100)
    batch.reenqueued(900)
    assert (batch.attempts, batch.last_attempt_ms) == (1, 900)


def test_delivery_timeout_counts_from_creation_inclusively() -> None:
    batch = make_batch(created_ms=100)
    assert not batch.has_reached_delivery_timeout(1000, 1099)
    assert batch.has_reached_delivery_timeout(1000, 1100)
