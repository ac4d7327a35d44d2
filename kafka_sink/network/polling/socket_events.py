"""Socket events: epoll (or the platform's equivalent), the registered channels, and the wakeup.

Owned by a selector and its thread; any thread may call :meth:`SocketEvents.wakeup`. Only this class waits for events;
it neither reads from nor writes to channels.

Events are registered lazily: the events that a channel wants are compared with the registered ones, and the usual
exchange of one request and one response changes no registration.
"""

from __future__ import annotations

import selectors
from contextlib import suppress
from typing import Final

from kafka_sink.common.clock import stopwatch_ns
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.network.channel.channel import KafkaChannel
from kafka_sink.network.transport.transport import READ
from kafka_sink.network.transport.wakeup import Wakeup

# epoll takes the timeout in milliseconds as a C int.
_LONGEST_SELECT_MS: Final = 2**31 - 1


class SocketEvents:
    """See the module."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup()
        self._selector.register(self._wakeup, READ, None)
        #: The share of the thread's time in which it waits for events.
        self.idle = IdleMeter(stopwatch_ns())

    def register(self, channel: KafkaChannel) -> None:
        """Register the events that *channel* wants now."""
        wanted = channel.wanted_events
        registered = channel.registered_events
        if wanted == registered:
            return
        if not wanted:
            self._selector.unregister(channel.transport.fileno())
        elif registered:
            self._selector.modify(channel.transport.fileno(), wanted, channel)
        else:
            self._selector.register(channel.transport.fileno(), wanted, channel)
        channel.registered_events = wanted

    def unregister(self, channel: KafkaChannel) -> None:
        """Unregister *channel*, whatever events it wants.

        A KeyboardInterrupt within :meth:`register` may have left it registered or not, whatever the channel says.
        """
        with suppress(KeyError):
            self._selector.unregister(channel.transport.fileno())
        channel.registered_events = 0

    def wait(self, timeout_ms: int) -> list[tuple[KafkaChannel, int]]:
        """Wait at most *timeout_ms* for an event or a wakeup; returns the channels with events, each with its mask."""
        events: list[tuple[KafkaChannel, int]] = []
        self.idle.begin_wait(stopwatch_ns())
        ready = self._selector.select(min(timeout_ms, _LONGEST_SELECT_MS) / 1000)
        self.idle.end_wait(stopwatch_ns())
        for selected, mask in ready:
            if selected.data is None:
                self._wakeup.drain()
            else:
                events.append((selected.data, mask))
        return events

    def wakeup(self) -> None:
        """End the current wait, or the next one (any thread)."""
        self._wakeup.signal()

    def close(self) -> None:
        self._selector.close()
        self._wakeup.close()
