"""Peers that failed to authenticate and learn it only after a delay: whoever tries passwords waits for each answer.

Owned by a selector and its thread. It closes nothing itself: it says who is to be answered now, and how long it is
until then.

Source: KIP-306 (connection.failed.authentication.delay.ms).
"""

from __future__ import annotations

from kafka_sink.common.clock import Clock
from kafka_sink.network.channel import KafkaChannel


class DelayedRefusals:
    """The delay is the same for all, so they come up in the order in which they failed; 0 ms = no delay."""

    def __init__(self, clock: Clock, delay_ms: int) -> None:
        self._clock = clock
        self._delay_ms = delay_ms
        # And until when, monotonic ms.
        self._refused: dict[KafkaChannel, int] = {}

    def add(self, channel: KafkaChannel) -> bool:
        """Keep *channel*, which failed just now; False where it is told so at once."""
        if channel.failure is None or not channel.transport.ready or not self._delay_ms:
            return False
        self._refused[channel] = self._clock.monotonic_ms() + self._delay_ms
        return True

    def discard(self, channel: KafkaChannel) -> None:
        """It is closed."""
        self._refused.pop(channel, None)

    def wait_ms(self, timeout_ms: int) -> int:
        """How long a wait of *timeout_ms* may take."""
        if not self._refused:
            return timeout_ms
        first_ms = next(iter(self._refused.values()))
        return max(min(timeout_ms, first_ms - self._clock.monotonic_ms()), 0)

    def take_due(self, now_ms: int) -> KafkaChannel | None:
        """The next one whose delay is over at *now_ms*."""
        if not self._refused:
            return None
        channel, until_ms = next(iter(self._refused.items()))
        if now_ms < until_ms:
            return None
        del self._refused[channel]
        return channel
