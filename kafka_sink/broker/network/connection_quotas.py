"""Limits on the number of connections and on the rate of new connections.

Acceptors count new connections (and wait here for a free slot), processors count closed ones; one lock guards the
counts. Only connections that were counted may be removed from the counts.

Source: apache/kafka ``ConnectionQuotas`` (KIP-402, KIP-612).
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_sink.broker.config import UNLIMITED, BrokerConfig, parse_counts
from kafka_sink.broker.network.quotas import RateQuota, RateQuotas
from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import ConfigError
from kafka_sink.network.transport.resolver import resolve


class TooManyConnectionsError(Exception):
    """The address has reached its maximum number of connections."""


class ConnectionThrottledError(Exception):
    """The address exceeds its rate of new connections: close the connection, but only after *throttle_ms*."""

    def __init__(self, address: str, throttle_ms: int) -> None:
        super().__init__(f"{address} exceeds its connection rate; its connection is closed in {throttle_ms} ms")
        self.throttle_ms = throttle_ms


@dataclass(frozen=True)
class ConnectionLimits:
    """All limits; by default there are none."""

    total: int = UNLIMITED
    per_listener: Mapping[str, int] = field(default_factory=dict)
    per_ip: int = UNLIMITED
    #: Limits by address or host name; a name is resolved once.
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    creation_rate: int = UNLIMITED
    creation_rate_per_listener: Mapping[str, int] = field(default_factory=dict)
    creation_rate_per_ip: int = UNLIMITED
    #: A listener that is exempt from the total limit and rate of the node, if it is not the only listener.
    protected_listener: str = ""
    windows: int = 11
    window_ms: int = 1000

    @classmethod
    def of(cls, config: BrokerConfig) -> ConnectionLimits:
        """The limits in *config*. :raises ConfigError: if a list of counts is malformed."""
        return cls(
            config.max_connections,
            parse_counts("max.connections.per.listener", config.max_connections_per_listener),
            config.max_connections_per_ip,
            parse_counts("max.connections.per.ip.overrides", config.max_connections_per_ip_overrides),
            config.max_connection_creation_rate,
            parse_counts("max.connection.creation.rate.per.listener", config.max_connection_creation_rate_per_listener),
            config.max_connection_creation_rate_per_ip,
            config.inter_broker_listener_name,
            config.quota_window_num,
            int(config.quota_window_size_seconds * 1000),
        )


class ConnectionQuotas:
    """Counts connections per address, per listener and in total."""

    def __init__(self, limits: ConnectionLimits, listeners: int, clock: Clock) -> None:
        """:raises ConfigError: if a host in *per_ip_overrides* cannot be resolved."""
        self._limits = limits
        self._per_ip_overrides = _by_address(limits.per_ip_overrides)
        self._protects = listeners > 1
        self._clock = clock
        self._changed = threading.Condition()
        # Guarded by the condition's lock.
        self._total = 0
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._rate = self._new_rate()
        self._listener_rates: defaultdict[str, RateQuota] = defaultdict(self._new_rate)
        self._ip_rates = RateQuotas[str](limits.windows, limits.window_ms)
        self._closed = False

    def _new_rate(self) -> RateQuota:
        return RateQuota(self._limits.windows, self._limits.window_ms)

    def update(self, limits: ConnectionLimits) -> None:
        """Replace the limits; waiting acceptors check again. Connections beyond a lower limit are closed one by one.

        Measured rates are kept, with their windows. :raises ConfigError: if a host in *per_ip_overrides* cannot be
        resolved.
        """
        overrides = _by_address(limits.per_ip_overrides)
        with self._changed:
            self._limits, self._per_ip_overrides = limits, overrides
            self._changed.notify_all()

    def inc(self, listener: str, address: str) -> None:
        """Count a new connection; blocks until the node and the listener have a free slot.

        :raises ConnectionThrottledError: the connection was not counted. :raises TooManyConnectionsError: it was
            counted nevertheless; close it and call :meth:`dec`.
        """
        with self._changed:
            self._wait_for_slot(listener)
            throttle_ms = self._ip_throttle_ms(address)
            if throttle_ms:
                raise ConnectionThrottledError(address, throttle_ms)
            self._total += 1
            self._by_listener[listener] += 1
            self._by_ip[address] += 1
            limit = self._per_ip_overrides.get(address, self._limits.per_ip)
            if self._by_ip[address] > limit:
                raise TooManyConnectionsError(f"{address} has {limit} connections, which is the limit")

    def dec(self, listener: str, address: str) -> None:
        """Remove a connection from the counts. :raises ValueError: if none is counted."""
        with self._changed:
            if not self._by_listener[listener] or not self._by_ip[address]:
                raise ValueError(f"no connection of {address} on listener {listener} is counted")
            self._total -= 1
            self._by_listener[listener] -= 1
            self._by_ip[address] -= 1
            if not self._by_ip[address]:
                del self._by_ip[address]
            self._changed.notify_all()

    def max_connections_exceeded(self, listener: str) -> bool:
        """Whether the total exceeds its limit and *listener* has to close a connection."""
        # Without the lock: it is called in each iteration of each network thread, and reading an int is atomic.
        return self._total > self._limits.total and not self._is_protected(listener)

    def counts(self) -> Mapping[str, int]:
        """The number of connections of each listener that ever had one."""
        with self._changed:
            return dict(self._by_listener)

    def close(self) -> None:
        """Wake all waiting threads, because the node stops."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for_slot(self, listener: str) -> None:
        now_ms = self._clock.monotonic_ms()
        ready_ms = now_ms + self._rate_delay_ms(listener, now_ms)
        while not self._closed and (now_ms < ready_ms or not self._has_slot(listener)):
            self._clock.wait(self._changed, ready_ms - now_ms if now_ms < ready_ms else FOREVER_MS)
            now_ms = self._clock.monotonic_ms()

    def _rate_delay_ms(self, listener: str, now_ms: int) -> int:
        """The time that the acceptor of *listener* has to wait before it accepts this connection."""
        limits, delay_ms = self._limits, 0
        if limits.creation_rate < UNLIMITED and not self._is_protected(listener):
            delay_ms = self._rate.record(1, limits.creation_rate, now_ms)
        limit = limits.creation_rate_per_listener.get(listener, UNLIMITED)
        if limit < UNLIMITED:
            delay_ms = max(delay_ms, self._listener_rates[listener].record(1, max(limit, 1), now_ms))
        return min(delay_ms, limits.windows * limits.window_ms)

    def _has_slot(self, listener: str) -> bool:
        if self._by_listener[listener] >= self._limits.per_listener.get(listener, UNLIMITED):
            return False
        return self._is_protected(listener) or self._total < self._limits.total

    def _is_protected(self, listener: str) -> bool:
        return self._protects and listener == self._limits.protected_listener

    def _ip_throttle_ms(self, address: str) -> int:
        limits = self._limits
        if limits.creation_rate_per_ip >= UNLIMITED:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._ip_rates.of(address, now_ms)
        throttle_ms = rate.record(1, limits.creation_rate_per_ip, now_ms)
        if throttle_ms:
            # A rejected connection is not counted; otherwise a client that retries would never be accepted.
            rate.unrecord(1)
        return min(throttle_ms, limits.windows * limits.window_ms)


def _by_address(limits: Mapping[str, int]) -> dict[str, int]:
    """The limits by address, with host names resolved, because connections are counted by address."""
    by_address: dict[str, int] = {}
    for host, limit in limits.items():
        try:
            by_address |= dict.fromkeys((address.host for address in resolve(host.strip("[]"), 0)), limit)
        except OSError as error:
            raise ConfigError.of("max.connections.per.ip.overrides", f": {error}") from error
    return by_address
