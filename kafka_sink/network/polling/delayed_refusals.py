"""Delays the response to a failed authentication, which slows down attempts to guess passwords.

Owned by a selector and its thread. It closes nothing itself: it determines which channel to answer now, and the time
until the next one is due.

Source: KIP-306 (connection.failed.authentication.delay.ms).
"""

from __future__ import annotations

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
