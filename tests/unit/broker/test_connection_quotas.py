"""Connection limits: per address and in total."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from kafka_sink.broker.network.connection_quotas import ConnectionQuotas, TooManyConnectionsError
from kafka_sink.broker.network.quotas import RateQuota
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.threads import start_thread
from tests.fakes.clock import FakeClock


class OneWait(FakeClock):
    """Runs *meanwhile* when somebody waits for a slot, instead of waiting."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        # The condition's lock is a plain re-entrant one: the waiter's own thread may change the counts.
        self._meanwhile()
        return True


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections.per.ip refuses a connection, which counts until it is closed"
)
def test_one_address_too_many_is_refused_but_counted_until_dec() -> None:
    counted = ConnectionQuotas(FakeClock(), most_per_ip=2)
    counted.inc("PLAINTEXT", "1.1.1.1")
    counted.inc("PLAINTEXT", "1.1.1.1")
    counted.inc("PLAINTEXT", "2.2.2.2")
    with pytest.raises(TooManyConnectionsError, match=r"1\.1\.1\.1 has 2 connections"):
        counted.inc("PLAINTEXT", "1.1.1.1")
    assert counted.counts() == {"PLAINTEXT": 4}
    counted.dec("PLAINTEXT", "1.1.1.1")
    counted.dec("PLAINTEXT", "1.1.1.1")
    counted.inc("PLAINTEXT", "1.1.1.1")
    assert counted.counts() == {"PLAINTEXT": 3}


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections makes the acceptor wait for a free slot, and it is told of one"
)
def test_full_node_makes_the_acceptor_wait() -> None:
    clock = OneWait(lambda: counted.dec("A", "1.1.1.1"))
    counted = ConnectionQuotas(clock, most=1)
    counted.inc("A", "1.1.1.1")
    assert clock.waits == []
    counted.inc("A", "2.2.2.2")
    assert clock.waits == [FOREVER_MS]
    assert sum(counted.counts().values()) == 1


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections makes the acceptor wait for a free slot, and it is told of one"
)
def test_acceptor_waiting_for_a_slot_is_woken_when_one_is_free() -> None:
    clock = FakeClock()
    counted = ConnectionQuotas(clock, most=1)
    counted.inc("A", "1.1.1.1")
    waiting = start_thread("waits for a slot", lambda: counted.inc("A", "2.2.2.2"))
    while not clock.waits:
        continue
    counted.dec("A", "1.1.1.1")
    waiting.join(20)
    assert counted.counts() == {"A": 1}


@pytest.mark.behaviour("ConnectionQuotas", "Addresses without a connection are forgotten")
def test_addresses_without_a_connection_are_forgotten() -> None:
    class Address(str):
        """Unlike a str, its end can be seen."""

    counted = ConnectionQuotas(FakeClock())
    ends: list[weakref.ref[Address]] = []
    for number in range(3):
        address = Address(f"address-{number}")
        ends.append(weakref.ref(address))
        counted.inc("A", address)
        counted.dec("A", address)
    del address
    gc.collect()
    assert [end() for end in ends] == [None] * 3


def test_a_rate_below_its_limit_never_throttles() -> None:
    rate = RateQuota(11, 1000)
    assert all(rate.record(1, 10, now_ms) == 0 for now_ms in range(0, 60_000, 110))


@pytest.mark.behaviour("ConnectionQuotas", "A lasting rate above its limit is held to it")
def test_a_lasting_rate_above_its_limit_is_held_to_it() -> None:
    rate = RateQuota(11, 1000)
    now_ms = 0
    for _ in range(1000):
        now_ms += max(rate.record(1, 10, now_ms), 1)
    # 1,000 connections at 10 a second take 100 s; the burst at the start may be ten seconds' worth.
    assert now_ms >= 85_000


def test_decrementing_an_uncounted_connection_is_refused() -> None:
    counted = ConnectionQuotas(FakeClock())
    counted.inc("A", "1.1.1.1")
    with pytest.raises(ValueError, match=r"no connection of 2\.2\.2\.2 on listener A"):
        counted.dec("A", "2.2.2.2")
    with pytest.raises(ValueError, match="on listener B"):
        counted.dec("B", "1.1.1.1")


def test_close_ends_the_wait_of_an_acceptor() -> None:
    counted = ConnectionQuotas(FakeClock(), most=0)
    waiting = start_thread("waits for a slot", lambda: counted.inc("A", "1.1.1.1"))
    counted.close()
    waiting.join(60)
    assert not waiting.is_alive()
