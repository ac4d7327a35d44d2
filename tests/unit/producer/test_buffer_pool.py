"""The memory bound: what is reused, who waits for whom, and that nothing leaks."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_sink.common.errors import BufferExhaustedError, KafkaError, KafkaTimeoutError
from kafka_sink.producer.buffer_pool import BufferPool
from tests.fakes.clock import FakeClock
from tests.fakes.manual_clock import ManualClock

#: Real seconds after which a test with threads has failed.
_PATIENCE_S = 10


def make_pool(total: int, poolable: int, clock: ManualClock | None = None) -> BufferPool:
    return BufferPool(total, poolable, clock or ManualClock(), on_wait=lambda: None)


class Waiter:
    """A thread that allocates and waits; :meth:`join` gives what came of it."""

    def __init__(self, pool: BufferPool, size: int, max_block_ms: int = 1000) -> None:
        queued = pool.queued
        self._outcome: list[bytearray | Exception] = []
        self._thread = threading.Thread(target=self._run, args=(pool, size, max_block_ms), daemon=True)
        self._thread.start()
        _until(lambda: pool.queued == queued + 1)

    def _run(self, pool: BufferPool, size: int, max_block_ms: int) -> None:
        try:
            self._outcome.append(pool.allocate(size, max_block_ms))
        except Exception as error:
            self._outcome.append(error)

    def join(self) -> bytearray | Exception:
        self._thread.join(_PATIENCE_S)
        (outcome,) = self._outcome
        return outcome

    @property
    def is_waiting(self) -> bool:
        return not self._outcome


def _until(reached: Callable[[], bool]) -> None:
    condition = threading.Condition()
    with condition:
        for _ in range(_PATIENCE_S * 1000):
            if reached():
                return
            condition.wait(0.001)
    raise AssertionError("never came")


def test_a_buffer_of_the_poolable_size_is_reused() -> None:
    pool = make_pool(1000, 100)
    buffer = pool.allocate(100, 0)
    pool.deallocate(buffer)
    assert pool.allocate(100, 0) is buffer


def test_buffers_of_other_sizes_are_made_anew() -> None:
    pool = make_pool(1000, 100)
    odd = pool.allocate(150, 0)
    assert len(odd) == 150
    pool.deallocate(odd)
    assert pool.allocate(150, 0) is not odd
    assert pool.available_memory == 850


def test_kept_buffers_are_given_up_for_other_sizes() -> None:
    pool = make_pool(300, 100)
    for buffer in [pool.allocate(100, 0) for _ in range(3)]:
        pool.deallocate(buffer)
    assert len(pool.allocate(250, 0)) == 250
    assert pool.available_memory == 50


def test_what_is_out_is_not_available() -> None:
    pool = make_pool(1000, 100)
    first, second = pool.allocate(100, 0), pool.allocate(300, 0)
    assert pool.available_memory == 600
    pool.deallocate(second)
    assert pool.available_memory == 900
    pool.deallocate(first)
    assert pool.available_memory == 1000


def test_more_than_there_will_ever_be_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"cannot allocate 1001 bytes: buffer\.memory is 1000 bytes"):
        make_pool(1000, 100).allocate(1001, 1000)


def test_memory_that_stays_short_is_an_error_that_says_what_to_look_at() -> None:
    clock = ManualClock()
    pool = make_pool(100, 100, clock)
    pool.allocate(100, 0)
    with pytest.raises(BufferExhaustedError, match=r"no 100 bytes .* within 50 ms.*\(100 bytes\)") as caught:
        pool.allocate(100, 50)
    assert isinstance(caught.value, KafkaTimeoutError)
    assert clock.waits == [50]
    assert pool.queued == 0
    assert pool.waits_ms.total == 50


def test_zero_patience_does_not_wait() -> None:
    clock = ManualClock()
    pool = make_pool(100, 100, clock)
    pool.allocate(100, 0)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(1, 0)
    assert clock.waits == []


def test_a_waiter_takes_the_pooled_buffer_that_comes_back() -> None:
    clock = ManualClock()
    pool = make_pool(100, 100, clock)
    buffer = pool.allocate(100, 0)
    clock.actions.append(lambda: pool.deallocate(buffer))
    assert pool.allocate(100, 1000) is buffer
    assert pool.available_memory == 0


def test_a_waiter_gathers_what_comes_back_bit_by_bit() -> None:
    clock = ManualClock()
    pool = make_pool(100, 10, clock)
    parts = [pool.allocate(30, 0), pool.allocate(30, 0), pool.allocate(40, 0)]
    clock.actions.extend([lambda: pool.deallocate(parts[0]), lambda: pool.deallocate(parts[1])])
    assert len(pool.allocate(55, 1000)) == 55
    assert pool.available_memory == 5
    assert clock.waits == [1000, 1000]


def test_waiting_again_only_gets_the_time_that_is_left() -> None:
    clock = ManualClock()
    pool = make_pool(100, 10, clock)
    parts = [pool.allocate(50, 0), pool.allocate(50, 0)]

    def give_back(index: int) -> Callable[[], None]:
        def action() -> None:
            clock.advance(30)
            pool.deallocate(parts[index])

        return action

    clock.actions.extend([give_back(0), give_back(1)])
    pool.allocate(80, 100)
    assert clock.waits == [100, 70]
    assert pool.waits_ms.total == 60


def test_what_a_waiter_had_gathered_goes_back_when_its_time_is_up() -> None:
    clock = ManualClock()
    pool = make_pool(100, 10, clock)
    first, second = pool.allocate(60, 0), pool.allocate(40, 0)
    clock.actions.append(lambda: pool.deallocate(second))
    with pytest.raises(BufferExhaustedError):
        pool.allocate(80, 100)
    assert pool.available_memory == 40
    pool.deallocate(first)
    assert pool.available_memory == 100


def test_what_the_first_waiter_gives_up_wakes_the_second() -> None:
    clock = FakeClock()
    pool = BufferPool(100, 10, clock, on_wait=lambda: None)
    pool.allocate(60, 0)
    small = pool.allocate(40, 0)
    impatient, patient = Waiter(pool, 90, 100), Waiter(pool, 30, 100_000)
    # Taken by the first waiter, which needs more.
    pool.deallocate(small)
    assert impatient.is_waiting
    clock.advance(100)
    assert isinstance(impatient.join(), BufferExhaustedError)
    assert patient.join() == bytearray(30)


def test_waiters_are_served_in_the_order_they_came() -> None:
    pool = BufferPool(100, 100, FakeClock(), on_wait=lambda: None)
    buffer = pool.allocate(100, 0)
    waiters = [Waiter(pool, 100) for _ in range(3)]
    for index in range(3):
        pool.deallocate(buffer)
        assert waiters[index].join() is buffer
        assert all(waiter.is_waiting for waiter in waiters[index + 1 :])


def test_a_large_waiter_is_not_overtaken_by_a_small_one_behind_it() -> None:
    pool = BufferPool(100, 10, FakeClock(), on_wait=lambda: None)
    first, second = pool.allocate(50, 0), pool.allocate(50, 0)
    large, small = Waiter(pool, 100), Waiter(pool, 20)
    pool.deallocate(first)
    assert large.is_waiting
    assert small.is_waiting
    pool.deallocate(second)
    got = large.join()
    assert isinstance(got, bytearray)
    assert small.is_waiting
    pool.deallocate(got)
    assert small.join() == bytearray(20)


def test_what_one_waiter_leaves_over_wakes_the_next() -> None:
    pool = BufferPool(100, 10, FakeClock(), on_wait=lambda: None)
    everything = pool.allocate(100, 0)
    waiters = [Waiter(pool, 40), Waiter(pool, 40)]
    pool.deallocate(everything)
    assert [waiter.join() for waiter in waiters] == [bytearray(40), bytearray(40)]


def test_close_wakes_every_waiter_with_an_error_and_refuses_newcomers() -> None:
    pool = BufferPool(100, 100, FakeClock(), on_wait=lambda: None)
    buffer = pool.allocate(100, 0)
    waiters = [Waiter(pool, 100), Waiter(pool, 50)]
    pool.close()
    for waiter in waiters:
        outcome = waiter.join()
        assert isinstance(outcome, KafkaError)
        assert not isinstance(outcome, BufferExhaustedError)
    with pytest.raises(KafkaError, match="closed"):
        pool.allocate(10, 1000)
    pool.deallocate(buffer)
    assert pool.available_memory == 100


def test_trying_neither_waits_nor_overtakes_who_does() -> None:
    pool = BufferPool(100, 50, FakeClock(), on_wait=lambda: None)
    first, second = pool.try_allocate(50), pool.try_allocate(40)
    assert first is not None
    assert second is not None
    assert pool.try_allocate(11) is None
    waiter = Waiter(pool, 100)
    assert pool.try_allocate(5) is None, "there is as much, but somebody waits"
    pool.deallocate(first)
    pool.deallocate(second)
    got = waiter.join()
    assert isinstance(got, bytearray)
    pool.deallocate(got)
    pool.close()
    assert pool.try_allocate(5) is None


def test_trying_reuses_a_kept_buffer() -> None:
    pool = make_pool(100, 50)
    buffer = pool.allocate(50, 0)
    pool.deallocate(buffer)
    assert pool.try_allocate(50) is buffer
    assert pool.available_memory == 50


def test_who_begins_to_wait_wakes_the_sender_and_is_counted_by_then() -> None:
    seen: list[int] = []
    clock = ManualClock()
    pool = BufferPool(100, 100, clock, on_wait=lambda: seen.append(pool.queued))
    pool.allocate(100, 0)
    assert seen == []
    with pytest.raises(BufferExhaustedError):
        pool.allocate(100, 10)
    assert seen == [1]


def test_a_sender_that_cannot_be_woken_leaves_no_waiter_behind() -> None:
    def fail() -> None:
        raise OSError("closed")

    pool = BufferPool(100, 100, ManualClock(), on_wait=fail)
    pool.allocate(100, 0)
    with pytest.raises(OSError, match="closed"):
        pool.allocate(100, 10)
    assert pool.queued == 0


def test_a_machine_without_memory_gets_its_reservation_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(100, 100)

    def no_memory(size: int) -> bytearray:
        raise MemoryError

    monkeypatch.setattr("kafka_sink.producer.buffer_pool.bytearray", no_memory, raising=False)
    with pytest.raises(MemoryError):
        pool.allocate(100, 0)
    assert pool.available_memory == 100


def test_memory_that_replaces_a_buffer_is_accounted_for_in_its_place() -> None:
    pool = BufferPool(3000, 1000, ManualClock(), on_wait=lambda: None)
    whole = pool.allocate(1000, 0)
    pieces = [bytearray(520), bytearray(530)]
    pool.exchange(whole, [len(piece) for piece in pieces])
    assert pool.available_memory == 1950
    for piece in pieces:
        pool.deallocate(piece)
    assert pool.available_memory == 3000


def test_a_full_pool_lends_what_the_pieces_are_larger_and_takes_it_back_first() -> None:
    pool = BufferPool(1000, 1000, ManualClock(), on_wait=lambda: None)
    whole = pool.allocate(1000, 0)
    pool.exchange(whole, [540, 530])
    assert pool.available_memory == -70
    with pytest.raises(BufferExhaustedError):
        pool.allocate(100, 0)
    pool.deallocate(bytearray(540))
    assert pool.available_memory == 470
    assert len(pool.allocate(470, 0)) == 470
    pool.deallocate(bytearray(530))
    pool.deallocate(bytearray(470))
    assert pool.available_memory == 1000
