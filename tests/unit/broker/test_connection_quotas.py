"""Connection limits: per address, per listener, in total, and the rate of new connections."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.network.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    ConnectionThrottledError,
    TooManyConnectionsError,
)
from kafka_sink.broker.network.quotas import RateQuota
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.threads import start_thread
from tests.fakes.clock import FakeClock
from tests.support.living import living


class OneWait(FakeClock):
    """Runs *meanwhile* when a thread waits for a slot, instead of waiting."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        # The condition's lock is a plain re-entrant one: the thread that waits may change the counts itself.
        self._meanwhile()
        return True


def quotas(clock: FakeClock | None = None, listeners: int = 1, **limits: object) -> ConnectionQuotas:
    return ConnectionQuotas(ConnectionLimits(**limits), listeners, clock or FakeClock())  # type: ignore[arg-type]


def come(counted: ConnectionQuotas, listener: str, connections: int) -> None:
    """Open *connections* connections from one address."""
    for _ in range(connections):
        counted.inc(listener, "1.1.1.1")


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections.per.ip refuses a connection, which counts until it is closed"
)
def test_one_address_too_many_is_refused_but_counted_until_dec() -> None:
    counted = quotas(per_ip=2)
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


def test_an_override_by_name_holds_for_every_address_of_it() -> None:
    counted = quotas(per_ip_overrides={"localhost": 1, "[0:0::1]": 0})
    counted.inc("PLAINTEXT", "127.0.0.1")
    with pytest.raises(TooManyConnectionsError):
        counted.inc("PLAINTEXT", "127.0.0.1")
    with pytest.raises(TooManyConnectionsError):
        counted.inc("PLAINTEXT", "::1")
    counted.update(ConnectionLimits(per_ip_overrides={"localhost": 3}))
    counted.inc("PLAINTEXT", "127.0.0.1")


def test_an_override_of_an_unknown_host_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides: cannot resolve host name 'no host'"):
        quotas(per_ip_overrides={"no host": 1})


@pytest.mark.behaviour("ConnectionQuotas", "max.connections.per.ip.overrides wins over the limit per address")
def test_an_override_rules_over_the_limit_per_address() -> None:
    counted = quotas(per_ip=0, per_ip_overrides={"1.1.1.1": 1})
    counted.inc("PLAINTEXT", "1.1.1.1")
    with pytest.raises(TooManyConnectionsError):
        counted.inc("PLAINTEXT", "2.2.2.2")


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections makes the acceptor wait for a free slot, and it is told of one"
)
@pytest.mark.parametrize("limits", [{"total": 1}, {"per_listener": {"A": 1}}])
def test_full_node_or_listener_makes_the_acceptor_wait(limits: dict[str, int]) -> None:
    clock = OneWait(lambda: counted.dec("A", "1.1.1.1"))
    counted = quotas(clock, **limits)
    counted.inc("A", "1.1.1.1")
    assert clock.waits == []
    counted.inc("A", "2.2.2.2")
    assert clock.waits == [FOREVER_MS]
    assert sum(counted.counts().values()) == 1


@pytest.mark.behaviour("ConnectionQuotas", "A listener's limit holds for that listener")
def test_connection_limit_of_a_listener_is_its_own() -> None:
    clock = FakeClock()
    counted = quotas(clock, per_listener={"A": 1})
    come(counted, "B", 3)
    assert clock.waits == []


@pytest.mark.behaviour("ConnectionQuotas", "The listener between brokers is not held back by max.connections")
def test_protected_listener_is_exempt_from_max_connections() -> None:
    clock = FakeClock()
    counted = quotas(clock, listeners=2, total=1, protected_listener="INTERNAL")
    counted.inc("CLIENTS", "1.1.1.1")
    assert not counted.max_connections_exceeded("CLIENTS")
    counted.inc("INTERNAL", "2.2.2.2")
    assert clock.waits == []
    assert counted.max_connections_exceeded("CLIENTS")
    assert not counted.max_connections_exceeded("INTERNAL")


@pytest.mark.behaviour("ConnectionQuotas", "A single listener is not protected")
def test_a_single_listener_is_not_protected() -> None:
    counted = quotas(OneWait(lambda: counted.dec("A", "1.1.1.1")), total=1, protected_listener="A")
    counted.inc("A", "1.1.1.1")
    counted.inc("A", "2.2.2.2")
    assert counted.counts() == {"A": 1}


@pytest.mark.behaviour("ConnectionQuotas", "Connections that come too fast wait (max.connection.creation.rate)")
def test_connections_that_come_too_fast_wait() -> None:
    clock = FakeClock(1_000_000)
    counted = quotas(clock, creation_rate=10)
    come(counted, "A", 100)
    assert clock.waits == []
    come(counted, "A", 50)
    assert clock.now_ms >= 1_000_000 + 4_000


@pytest.mark.behaviour("ConnectionQuotas", "A connection of an address that is too fast is throttled and not counted")
def test_address_over_its_rate_is_throttled_and_not_counted() -> None:
    clock = FakeClock()
    counted = quotas(clock, creation_rate_per_ip=1, total=11)
    come(counted, "A", 10)
    for _ in range(1000):
        with pytest.raises(ConnectionThrottledError) as caught:
            counted.inc("A", "1.1.1.1")
        assert 0 < caught.value.throttle_ms <= 11_000
    assert sum(counted.counts().values()) == 10
    counted.inc("A", "2.2.2.2")
    assert clock.waits == [], "there is room for one more"


def test_retrying_address_is_admitted_at_its_rate() -> None:
    clock = FakeClock()
    counted = quotas(clock, creation_rate_per_ip=1)
    for _ in range(200):
        # A refused attempt is not a connection, so it does not count.
        clock.advance(100)
        with contextlib.suppress(ConnectionThrottledError):
            counted.inc("A", "1.1.1.1")
    assert 18 <= sum(counted.counts().values()) <= 22, "ten seconds' worth at once, and then one a second"


@pytest.mark.behaviour("ConnectionQuotas", "A listener's rate holds for that listener")
def test_a_listeners_rate_holds_for_that_listener() -> None:
    clock = FakeClock()
    counted = quotas(clock, creation_rate_per_listener={"A": 1})
    come(counted, "B", 100)
    assert clock.waits == []
    come(counted, "A", 11)
    assert clock.waits == [1000]


@pytest.mark.behaviour("ConnectionQuotas", "The listener between brokers is not held back by the node's rate")
def test_node_rate_does_not_hold_back_the_protected_listener() -> None:
    clock = FakeClock()
    counted = quotas(clock, listeners=2, creation_rate=1, protected_listener="INTERNAL")
    come(counted, "INTERNAL", 100)
    assert clock.waits == []
    come(counted, "CLIENTS", 11)
    assert clock.waits == [1000]


@pytest.mark.behaviour("ConnectionQuotas", "Limits change while the broker runs")
def test_limits_change_while_connections_come() -> None:
    counted = quotas(per_ip=1)
    counted.inc("A", "1.1.1.1")
    counted.update(ConnectionLimits(per_ip=2))
    counted.inc("A", "1.1.1.1")
    counted.update(ConnectionLimits(total=1))
    assert counted.max_connections_exceeded("A")
    assert counted.counts() == {"A": 2}


@pytest.mark.behaviour("ConnectionQuotas", "Limits change while the broker runs")
def test_raised_connection_limit_ends_the_wait_of_an_acceptor() -> None:
    clock = OneWait(lambda: counted.update(ConnectionLimits(total=2)))
    counted = quotas(clock, total=1)
    counted.inc("A", "1.1.1.1")
    counted.inc("A", "1.1.1.1")
    assert clock.waits == [FOREVER_MS]


@pytest.mark.behaviour(
    "ConnectionQuotas", "No connection waits longer than the time that is measured, however low a rate is set"
)
@pytest.mark.parametrize("limit", [{"creation_rate": 1000}, {"creation_rate_per_listener": {"A": 1000}}])
def test_lowered_rate_waits_no_longer_than_the_measured_time(limit: dict[str, int]) -> None:
    clock = FakeClock()
    counted = quotas(clock, **limit)
    come(counted, "A", 1000)
    assert clock.waits == []
    counted.update(ConnectionLimits(creation_rate=1, creation_rate_per_listener={"A": 1}))
    counted.inc("A", "1.1.1.1")
    assert clock.waits == [11_000]


def test_lowered_address_rate_throttles_no_longer_than_measured() -> None:
    counted = quotas(creation_rate_per_ip=1000)
    come(counted, "A", 1000)
    counted.update(ConnectionLimits(creation_rate_per_ip=1))
    with pytest.raises(ConnectionThrottledError) as caught:
        counted.inc("A", "1.1.1.1")
    assert caught.value.throttle_ms == 11_000


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections makes the acceptor wait for a free slot, and it is told of one"
)
@pytest.mark.parametrize("change", ["a connection goes", "the limit is raised"])
def test_acceptor_waiting_for_a_slot_is_woken_when_one_is_free(change: str) -> None:
    clock = FakeClock()
    counted = quotas(clock, total=1)
    counted.inc("A", "1.1.1.1")
    waiting = start_thread("waits for a slot", lambda: counted.inc("A", "2.2.2.2"))
    while not clock.waits:
        continue
    if change == "a connection goes":
        counted.dec("A", "1.1.1.1")
    else:
        counted.update(ConnectionLimits(total=2))
    waiting.join(20)
    assert counted.counts() == {"A": 1 if change == "a connection goes" else 2}


@pytest.mark.behaviour("ConnectionQuotas", "Addresses without a connection are forgotten")
def test_addresses_without_a_connection_are_forgotten() -> None:
    class Address(str):
        """Unlike a str, it supports weak references, which show its end."""

    counted = quotas()
    ends: list[weakref.ref[Address]] = []
    for number in range(3):
        address = Address(f"address-{number}")
        ends.append(weakref.ref(address))
        counted.inc("A", address)
        counted.dec("A", address)
    del address
    gc.collect()
    assert [end() for end in ends] == [None] * 3


def test_rates_of_silent_addresses_are_forgotten() -> None:
    clock = FakeClock()
    counted = quotas(clock, creation_rate_per_ip=1)
    before = living(RateQuota)
    for number in range(1000):
        counted.inc("A", f"address-{number}")
    assert living(RateQuota) == before + 1000
    clock.advance(20_000)
    counted.inc("A", "one more")
    assert living(RateQuota) == before + 1


def test_a_rate_below_its_limit_never_throttles() -> None:
    rate = RateQuota(11, 1000)
    assert all(rate.record(1, 10, now_ms) == 0 for now_ms in range(0, 60_000, 110))


@pytest.mark.behaviour("ConnectionQuotas", "A lasting rate above its limit is held to it")
def test_a_lasting_rate_above_its_limit_is_held_to_it() -> None:
    rate = RateQuota(11, 1000)
    now_ms = 0
    for _ in range(1000):
        now_ms += max(rate.record(1, 10, now_ms), 1)
    # 1,000 connections at 10 per second take 100 s; the initial burst may be ten seconds' worth.
    assert now_ms >= 85_000


def test_decrementing_an_uncounted_connection_is_refused() -> None:
    counted = quotas()
    counted.inc("A", "1.1.1.1")
    with pytest.raises(ValueError, match=r"no connection of 2\.2\.2\.2 on listener A"):
        counted.dec("A", "2.2.2.2")
    with pytest.raises(ValueError, match="on listener B"):
        counted.dec("B", "1.1.1.1")


def test_close_ends_the_wait_of_an_acceptor() -> None:
    counted = quotas(total=0)
    waiting = start_thread("waits for a slot", lambda: counted.inc("A", "1.1.1.1"))
    counted.close()
    waiting.join(60)
    assert not waiting.is_alive()


def test_limits_come_from_the_configuration() -> None:
    config = parse(
        BrokerConfig,
        {
            "max.connections": "7",
            "max.connections.per.listener": "A:3",
            "max.connections.per.ip.overrides": "::1:5,127.0.0.1:6",
            "max.connection.creation.rate": 9,
            "max.connection.creation.rate.per.listener": "A:4",
        },
    )
    limits = ConnectionLimits.of(config)
    assert (limits.total, limits.per_listener, limits.creation_rate) == (7, {"A": 3}, 9)
    assert limits.creation_rate_per_listener == {"A": 4}
    assert limits.per_ip_overrides == {"::1": 5, "127.0.0.1": 6}


def test_a_malformed_count_is_named() -> None:
    config = parse(BrokerConfig, {"max.connections.per.ip.overrides": "localhost"})
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides: 'localhost' is not name:count"):
        ConnectionLimits.of(config)
