"""Limits on the number of connections.

Acceptors count new connections (and wait here for a free slot), processors count closed ones; one lock guards the
counts. Only connections that were counted may be removed from the counts.

Source: apache/kafka ``ConnectionQuotas`` (KIP-402).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from kafka_sink.broker.config import UNLIMITED
from kafka_sink.common.clock import FOREVER_MS, Clock


class TooManyConnectionsError(Exception):
    """The address has reached its maximum number of connections."""


class ConnectionQuotas:
    """Counts the connections of a node, at most *most* of them, and at most *most_per_ip* of an address."""

    def __init__(self, clock: Clock, most: int = UNLIMITED, most_per_ip: int = UNLIMITED) -> None:
        self._clock = clock
        self._most, self._most_per_ip = most, most_per_ip
        self._changed = threading.Condition()
        # Guarded by the condition's lock.
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._closed = False

    def inc(self, listener: str, address: str) -> None:
        """Count a new connection; blocks until the node has a free slot.

        :raises TooManyConnectionsError: it was counted nevertheless; close it and call :meth:`dec`.
        """
        with self._changed:
            while not self._closed and self._by_listener.total() >= self._most:
                self._clock.wait(self._changed, FOREVER_MS)
            self._by_listener[listener] += 1
            self._by_ip[address] += 1
            if self._by_ip[address] > self._most_per_ip:
                raise TooManyConnectionsError(f"{address} has {self._most_per_ip} connections, which is the limit")

    def dec(self, listener: str, address: str) -> None:
        """Remove a connection from the counts. :raises ValueError: if none is counted."""
        with self._changed:
            if not self._by_listener[listener] or not self._by_ip[address]:
                raise ValueError(f"no connection of {address} on listener {listener} is counted")
            self._by_listener[listener] -= 1
            self._by_ip[address] -= 1
            if not self._by_ip[address]:
                del self._by_ip[address]
            self._changed.notify_all()

    def counts(self) -> Mapping[str, int]:
        """The number of connections of each listener that ever had one."""
        with self._changed:
            return dict(self._by_listener)

    def close(self) -> None:
        """Wake all waiting threads, because the node stops."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
