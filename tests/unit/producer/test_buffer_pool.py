"""The memory bound: reused buffers, the order of waiting threads, and no leaks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kafka_sink.common.errors import BufferExhaustedError, KafkaError, KafkaTimeoutError
from kafka_sink.producer.batching.buffer_pool import BufferPool
from tests.fakes.clock import FakeClock

#: Real seconds after which a test with threads has failed.
_PATIENCE_S = 60


def make_pool(total: int, poolable: int, clock: FakeClock | None = None) -> BufferPool:
    return BufferPool(total, poolable, clock or FakeClock(), on_wait=lambda: None)


def waited_ms(pool: BufferPool) -> float:
    return dict(pool.figures(0))["bufferpool-wait-time-ns-total"] / 10**6


class Waiter:
    """A thread that allocates and waits; :meth:`join` returns the outcome."""

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


@pytest.mark.behaviour("BufferPool", "Buffers of batch.size are used again")
def test_a_buffer_of_the_poolable_size_is_reused() -> None:
    pool = make_pool(1000, 100)
    first = pool.allocate(100, 0)
    pool.deallocate(first)
    assert pool.allocate(100, 0) is first
    assert pool.available_memory == 900


def test_only_as_many_kept_buffers_are_dropped_as_are_needed() -> None:
    pool = make_pool(100, 10)
    kept = [pool.allocate(10, 0) for _ in range(3)]
    for buffer in kept:
        pool.deallocate(buffer)
    assert len(pool.allocate(70, 0)) == 70
    assert [pool.allocate(10, 0) is buffer for buffer in kept] == [True] * 3
    for buffer in kept:
        pool.deallocate(buffer)
    assert len(pool.allocate(9, 0)) == 9
    assert [pool.allocate(10, 0) is buffer for buffer in kept[:2]] == [True, True]
    assert pool.available_memory == 1


@pytest.mark.behaviour("BufferPool", "Kept buffers are released before a rest")
def test_kept_buffers_are_released() -> None:
    pool = make_pool(100, 10)
    memory = pool.allocate(10, 0)
    pool.deallocate(memory)
    pool.release_kept()
    assert pool.available_memory == 100
    assert pool.allocate(10, 0) is not memory


def test_more_than_there_will_ever_be_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"cannot allocate 1001 bytes: buffer\.memory is 1000 bytes"):
        make_pool(1000, 100).allocate(1001, 1000)


@pytest.mark.behaviour("BufferPool", "An error about exhausted memory says which options to look at")
def test_exhausted_memory_error_says_which_options_to_check() -> None:
    clock = FakeClock()
    pool = make_pool(100, 100, clock)
    pool.allocate(100, 0)
    with pytest.raises(
        BufferExhaustedError, match=r"could not allocate 100 bytes within 50 ms.*\(100 bytes\)"
    ) as caught:
        pool.allocate(100, 50)
    assert isinstance(caught.value, KafkaTimeoutError)
    assert clock.waits == [50]
    assert pool.queued == 0
    assert waited_ms(pool) == 50


def test_allocation_with_zero_timeout_does_not_wait() -> None:
    clock = FakeClock()
    pool = make_pool(100, 100, clock)
    pool.allocate(100, 0)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(1, 0)
    assert clock.waits == []


def test_a_waiter_takes_the_pooled_buffer_that_comes_back() -> None:
    clock = FakeClock()
    pool = make_pool(100, 100, clock)
    first = pool.allocate(100, 0)
    clock.actions.append(lambda: pool.deallocate(first))
    assert pool.allocate(100, 1000) is first
    assert pool.available_memory == 0


def test_waiting_again_only_gets_the_time_that_is_left() -> None:
    clock = FakeClock()
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
    assert waited_ms(pool) == 60


def test_a_waiter_has_to_the_last_moment() -> None:
    clock = FakeClock()
    pool = make_pool(100, 10, clock)
    everything = pool.allocate(100, 0)

    def give_back_at_the_end() -> None:
        clock.advance(50)
        pool.deallocate(everything)

    clock.actions.append(give_back_at_the_end)
    assert len(pool.allocate(80, 50)) == 80
    assert pool.available_memory == 20
    with pytest.raises(BufferExhaustedError):
        pool.allocate(21, 1)
    assert clock.waits == [50, 1]


def test_a_waiter_drops_only_the_kept_buffers_that_it_needs() -> None:
    clock = FakeClock()
    pool = make_pool(80, 10, clock)
    large, small = pool.allocate(50, 0), [pool.allocate(10, 0) for _ in range(3)]

    def give_back_the_small_ones() -> None:
        for buffer in small:
            pool.deallocate(buffer)

    clock.actions.extend([lambda: pool.deallocate(large), give_back_the_small_ones])
    assert len(pool.allocate(55, 50)) == 55
    assert [pool.allocate(10, 0) is buffer for buffer in small[:2]] == [True, True]
    assert pool.available_memory == 5


def test_a_wait_that_ends_for_nothing_goes_on() -> None:
    class Restless(FakeClock):
        def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
            notified = bool(self.actions)
            super().wait(condition, timeout_ms if notified else 10)
            return notified

    clock = Restless()
    pool = make_pool(100, 10, clock)
    everything = pool.allocate(100, 0)
    clock.actions.append(lambda: None)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(1, 30)
    assert clock.waits == [30, 10, 10, 10]
    pool.deallocate(everything)
    assert pool.available_memory == 100


def test_figures_of_waits_and_of_memory() -> None:
    clock = FakeClock(0)
    pool = BufferPool(1000, 100, clock, on_wait=lambda: None, samples=2, window_ms=10_000)
    pool.allocate(300, 0)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(900, 500)
    # Two windows of 10 s, the first of which is missing; and a wait of half a second.
    assert dict(pool.figures(500)) == {
        "buffer-total-bytes": 1000,
        "buffer-available-bytes": 700,
        "buffer-exhausted-rate": 1 / 10,
        "buffer-exhausted-total": 1,
        "waiting-threads": 0,
        "bufferpool-wait-ratio": 0.5 / 10,
        "bufferpool-wait-time-ns-total": 500_000_000,
    }


@pytest.mark.behaviour("BufferPool", "What a waiter had gathered goes back when its time is up")
def test_timed_out_waiter_gives_back_what_it_had_gathered() -> None:
    clock = FakeClock()
    pool = make_pool(100, 10, clock)
    first, second = pool.allocate(60, 0), pool.allocate(40, 0)
    clock.actions.append(lambda: pool.deallocate(second))
    with pytest.raises(BufferExhaustedError):
        pool.allocate(80, 100)
    assert pool.available_memory == 40
    pool.deallocate(first)
    assert pool.available_memory == 100


def test_memory_a_waiter_gives_up_wakes_the_next() -> None:
    clock = FakeClock(shared=True)
    pool = BufferPool(100, 10, clock, on_wait=lambda: None)
    pool.allocate(60, 0)
    small = pool.allocate(40, 0)
    impatient, patient = Waiter(pool, 90, 100), Waiter(pool, 30, 100_000)
    # The first waiter takes the memory, but needs more.
    pool.deallocate(small)
    assert impatient.is_waiting
    clock.advance(100)
    assert isinstance(impatient.join(), BufferExhaustedError)
    patient_got = patient.join()
    assert isinstance(patient_got, bytearray)
    assert len(patient_got) == 30


@pytest.mark.behaviour("BufferPool", "Waiters are served in the order in which they came")
def test_waiters_are_served_in_the_order_they_came() -> None:
    pool = BufferPool(100, 100, FakeClock(shared=True), on_wait=lambda: None)
    held = pool.allocate(100, 0)
    waiters = [Waiter(pool, 100) for _ in range(3)]
    for index in range(3):
        pool.deallocate(held)
        got = waiters[index].join()
        assert isinstance(got, bytearray)
        assert got is held
        assert all(waiter.is_waiting for waiter in waiters[index + 1 :])


def test_small_waiter_does_not_overtake_a_large_one() -> None:
    pool = BufferPool(100, 10, FakeClock(shared=True), on_wait=lambda: None)
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
    small_got = small.join()
    assert isinstance(small_got, bytearray)
    assert len(small_got) == 20


def test_memory_a_waiter_leaves_over_wakes_the_next() -> None:
    pool = BufferPool(100, 10, FakeClock(shared=True), on_wait=lambda: None)
    everything = pool.allocate(100, 0)
    waiters = [Waiter(pool, 40), Waiter(pool, 40)]
    pool.deallocate(everything)
    assert [len(got) for waiter in waiters if isinstance(got := waiter.join(), bytearray)] == [40, 40]


def test_a_last_byte_left_over_wakes_the_next() -> None:
    pool = BufferPool(100, 10, FakeClock(shared=True), on_wait=lambda: None)
    everything = pool.allocate(100, 0)
    waiters = [Waiter(pool, 99), Waiter(pool, 1)]
    pool.deallocate(everything)
    assert [len(got) for waiter in waiters if isinstance(got := waiter.join(), bytearray)] == [99, 1]
    assert pool.available_memory == 0


@pytest.mark.behaviour("BufferPool", "Closing wakes every waiter with an error, and refuses new ones")
def test_close_fails_every_waiter_and_refuses_new_ones() -> None:
    pool = BufferPool(100, 100, FakeClock(shared=True), on_wait=lambda: None)
    first = pool.allocate(100, 0)
    waiters = [Waiter(pool, 100), Waiter(pool, 50)]
    pool.close()
    for waiter in waiters:
        outcome = waiter.join()
        assert isinstance(outcome, KafkaError)
        assert not isinstance(outcome, BufferExhaustedError)
    with pytest.raises(KafkaError, match="closed"):
        pool.allocate(10, 1000)
    pool.deallocate(first)
    assert pool.available_memory == 100


def test_try_allocate_neither_waits_nor_overtakes_waiters() -> None:
    pool = BufferPool(100, 50, FakeClock(shared=True), on_wait=lambda: None)
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
    first = pool.allocate(50, 0)
    pool.deallocate(first)
    assert pool.try_allocate(50) is first
    assert pool.available_memory == 50


def test_waiter_is_counted_before_it_wakes_the_sender() -> None:
    seen: list[int] = []
    clock = FakeClock()
    pool = BufferPool(100, 100, clock, on_wait=lambda: seen.append(pool.queued))
    pool.allocate(100, 0)
    assert seen == []
    with pytest.raises(BufferExhaustedError):
        pool.allocate(100, 10)
    assert seen == [1]


def test_a_sender_that_cannot_be_woken_leaves_no_waiter_behind() -> None:
    def fail() -> None:
        raise OSError("closed")

    pool = BufferPool(100, 100, FakeClock(), on_wait=fail)
    pool.allocate(100, 0)
    with pytest.raises(OSError, match="closed"):
        pool.allocate(100, 10)
    assert pool.queued == 0


def test_a_machine_without_memory_gets_its_reservation_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool(100, 100)

    def no_memory(size: int) -> bytearray:
        raise MemoryError

    monkeypatch.setattr("kafka_sink.producer.batching.buffer_pool.bytearray", no_memory, raising=False)
    with pytest.raises(MemoryError):
        pool.allocate(100, 0)
    assert pool.available_memory == 100


def test_exchange_accounts_for_memory_that_replaces_a_buffer() -> None:
    pool = BufferPool(3000, 1000, FakeClock(), on_wait=lambda: None)
    whole = pool.allocate(1000, 0)
    pieces = [bytearray(520), bytearray(530)]
    pool.exchange(whole, pieces)
    assert pool.available_memory == 1950
    for piece in pieces:
        pool.deallocate(piece)
    assert pool.available_memory == 3000


def test_exchange_for_less_wakes_a_waiter() -> None:
    pool = BufferPool(100, 10, FakeClock(shared=True), on_wait=lambda: None)
    whole = pool.allocate(100, 0)
    waiter = Waiter(pool, 1)
    pool.exchange(whole, [bytearray(60), bytearray(39)])
    got = waiter.join()
    assert isinstance(got, bytearray)
    assert pool.available_memory == 0


def test_nothing_is_had_of_memory_that_is_overdrawn() -> None:
    clock = FakeClock()
    pool = make_pool(100, 10, clock)
    piece = bytearray(30)
    pool.exchange(pool.allocate(100, 0), [piece, bytearray(120)])
    clock.actions.append(lambda: pool.deallocate(piece))
    with pytest.raises(BufferExhaustedError):
        pool.allocate(1, 50)
    assert pool.available_memory == -20


def test_exchange_may_overdraw_the_pool_and_is_repaid_first() -> None:
    pool = BufferPool(1000, 1000, FakeClock(), on_wait=lambda: None)
    whole = pool.allocate(1000, 0)
    pieces = [bytearray(540), bytearray(530)]
    pool.exchange(whole, pieces)
    assert pool.available_memory == -70
    with pytest.raises(BufferExhaustedError):
        pool.allocate(100, 0)
    pool.deallocate(pieces[0])
    assert pool.available_memory == 470
    rest = pool.allocate(470, 0)
    assert len(rest) == 470
    pool.deallocate(pieces[1])
    pool.deallocate(rest)
    assert pool.available_memory == 1000


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "Memory is refused to a signal handler that interrupted a change of the pool"
)
def test_memory_is_refused_in_the_middle_of_a_change() -> None:
    pool = make_pool(1000, 100)
    held = pool.allocate(300, 0)
    refused: list[bool] = []

    def pieces() -> Iterator[bytearray]:
        """Try to allocate in the middle of the change, as a signal handler may do at this point."""
        refused.append(pool.try_allocate(100) is None)
        yield bytearray()

    pool.exchange(held, pieces())
    assert refused == [True]
    assert pool.available_memory == 1000
