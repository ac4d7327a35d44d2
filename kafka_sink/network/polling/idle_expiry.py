"""Determines which connection a selector has to close next: the one that has been idle for longest, and one whose
authentication has failed, which is answered late to slow down attempts to guess passwords.

Owned by a selector and its thread. The owner reports every activity and its time; nothing here closes anything itself.

Source: KIP-306 (connection.failed.authentication.delay.ms).
"""

from __future__ import annotations

from collections import OrderedDict

from kafka_sink.common.clock import Clock
from kafka_sink.network.channel.channel import KafkaChannel


class DelayedRefusals:
    """The delay is the same for all channels, so they are due in the order in which they failed; 0 ms = no delay."""

    def __init__(self, clock: Clock, delay_ms: int) -> None:
        self._clock = clock
        self._delay_ms = delay_ms
        # Channel → when it is due, monotonic ms.
        self._refused: dict[KafkaChannel, int] = {}

    def add(self, channel: KafkaChannel) -> bool:
        """Add *channel*, whose authentication has just failed; False if it is to be answered at once."""
        if channel.failure is None or not channel.transport.ready or not self._delay_ms:
            return False
        self._refused[channel] = self._clock.monotonic_ms() + self._delay_ms
        return True

    def discard(self, channel: KafkaChannel) -> None:
        """Remove *channel*, which is closed."""
        self._refused.pop(channel, None)

    def wait_ms(self, timeout_ms: int) -> int:
        """The time until the next channel is due, at most *timeout_ms*."""
        if not self._refused:
            return timeout_ms
        first_ms = next(iter(self._refused.values()))
        return max(min(timeout_ms, first_ms - self._clock.monotonic_ms()), 0)

    def take_due(self, now_ms: int) -> KafkaChannel | None:
        """The next channel that is due at *now_ms*, removed; None if there is none."""
        if not self._refused:
            return None
        channel, until_ms = next(iter(self._refused.items()))
        if now_ms < until_ms:
            return None
        del self._refused[channel]
        return channel


class IdleExpiryManager:
    """Connections by last activity, least recently active first."""

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms
        self._last_active_ms: OrderedDict[str, int] = OrderedDict()
        self._next_check_ms = 0

    def update(self, connection_id: str, now_ms: int) -> None:
        """Record that *connection_id* was active at *now_ms*."""
        self._last_active_ms[connection_id] = now_ms
        self._last_active_ms.move_to_end(connection_id)

    def remove(self, connection_id: str) -> None:
        """Remove a connection that is closed."""
        self._last_active_ms.pop(connection_id, None)

    def poll_expired(self, now_ms: int) -> str | None:
        """A connection that has been idle for longer than the limit, at most one per call."""
        if now_ms <= self._next_check_ms:
            return None
        if not self._last_active_ms:
            self._next_check_ms = now_ms + self._max_idle_ms
            return None
        oldest, active_ms = next(iter(self._last_active_ms.items()))
        self._next_check_ms = active_ms + self._max_idle_ms
        return oldest if now_ms > self._next_check_ms else None

    @property
    def least_recently_active(self) -> str | None:
        """The connection to close first if there are too many."""
        return next(iter(self._last_active_ms), None)
