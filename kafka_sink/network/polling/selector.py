"""Many connections on one thread, as Kafka's Selector.

A client's sender thread or a broker's processor thread owns a :class:`KSelector` and calls all methods except
:meth:`KSelector.wakeup`, which any thread may call. Only :meth:`KSelector.poll` blocks, reads and writes. The selector
does not interpret the content of frames.

A frame is first written without registering for a write event, and a muted channel keeps its read event until that
event fires. Events are registered lazily: those that a channel wants are compared with the registered ones, and the
usual exchange of one request and one response changes no registration. A connection is closed after the idle time-out,
or after a failed authentication; that refusal is sent after a delay, which slows down guessing of passwords.
"""

from __future__ import annotations

import random
import selectors
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_sink.common.clock import Clock, stopwatch_ns
from kafka_sink.common.errors import AuthenticationError, KafkaError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.network.channel.channel import ChannelBuilder, KafkaChannel
from kafka_sink.network.channel.selectable import ChannelState, Disconnect, cause_of
from kafka_sink.network.frames import (
    READ_AHEAD_BYTES,
    UNLIMITED,
    UNLIMITED_MEMORY_POOL,
    FrameReader,
    MemoryPool,
    NetworkReceive,
    NetworkSend,
)
from kafka_sink.network.polling.selector_metrics import SelectorMetrics
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.network.transport.transport import READ, WRITE, Socket, begin_connect
from kafka_sink.network.transport.wakeup import Wakeup
from kafka_sink.protocol.framing import SIZE_BYTES

# epoll takes the timeout in milliseconds as a C int.
_LONGEST_SELECT_MS: Final = 2**31 - 1


class SocketEvents:
    """The socket events of the selector's channels, and its wakeup (epoll, kqueue)."""

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


class DelayedRefusals:
    """Channels with a failed authentication, in the order in which their delayed refusal is due; 0 ms = no delay."""

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


#: Idle connections are never closed.
NO_IDLE_TIMEOUT_MS: Final = -1

#: No limit on handshake and login: clients limit theirs in the states of their connections.
NO_SETUP_TIMEOUT_MS: Final = -1

#: A failed authentication is answered without delay.
NO_FAILED_AUTHENTICATION_DELAY: Final = 0


class _CloseMode(Enum):
    """Whether the unread frames of a closed channel are kept, and whether its disconnection is reported."""

    GRACEFUL = "hand out what was received, then report"
    NOTIFY_ONLY = "read nothing more, report"
    DISCARD_NO_NOTIFY = "drop everything silently"


@dataclass(frozen=True, slots=True)
class SelectorLimits:
    """The limits of a selector's connections: sizes, memory and times."""

    #: Of one frame; −1 = any size.
    max_receive_bytes: int = UNLIMITED
    #: Limits the frames that are returned and not released yet.
    memory_pool: MemoryPool = UNLIMITED_MEMORY_POOL
    #: The idle time after which a connection is closed, the longest idle first; −1 = never.
    connections_max_idle_ms: int = NO_IDLE_TIMEOUT_MS
    #: After this time a peer whose authentication fails is answered and closed.
    failed_authentication_delay_ms: int = NO_FAILED_AUTHENTICATION_DELAY
    #: The time after which a connection without a complete handshake and login is closed; −1 = never.
    setup_timeout_ms: int = NO_SETUP_TIMEOUT_MS


NO_LIMITS: Final = SelectorLimits()


class KSelector:
    """The implementation of :class:`~kafka_sink.network.channel.selectable.Selectable`."""

    def __init__(
        self,
        channel_builder: ChannelBuilder,
        clock: Clock,
        limits: SelectorLimits = NO_LIMITS,
        *,
        metrics: SelectorMetrics | None = None,
        log_context: str = "",
    ) -> None:
        self._channel_builder = channel_builder
        self._clock = clock
        self._max_receive_bytes = limits.max_receive_bytes
        self._max_idle_ms = limits.connections_max_idle_ms
        self._idle = IdleExpiryManager(self._max_idle_ms) if self._max_idle_ms >= 0 else None
        self._memory_pool = limits.memory_pool
        self._metrics = metrics
        self._log = ContextLogger(__name__, log_context)
        self._events = SocketEvents()
        #: The share of the thread's time in which polls wait.
        self.idle = self._events.idle
        self._refusals = DelayedRefusals(clock, limits.failed_authentication_delay_ms)
        self._setup_timeout_ms = limits.setup_timeout_ms
        # Channel that is not ready yet → its deadline, monotonic ms, in this order.
        self._setup_ends_ms: dict[KafkaChannel, int] = {}
        self._scratch = memoryview(bytearray(READ_AHEAD_BYTES))

        self._channels: dict[str, KafkaChannel] = {}
        # Closed channels whose received frames have to be returned first.
        self._closing: dict[str, KafkaChannel] = {}
        self._explicitly_muted: set[KafkaChannel] = set()
        self._unwritten: list[KafkaChannel] = []
        self._buffered: set[KafkaChannel] = set()
        self._failed_sends: dict[str, str] = {}
        self._out_of_memory = False
        self._made_read_progress = True

        # Results of the last poll.
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, Disconnect] = {}
        self._received_from: set[str] = set()

    def connect(
        self, connection_id: str, address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        self._refuse_duplicate(connection_id)
        sock = begin_connect(address, send_buffer_bytes, receive_buffer_bytes)
        self._adopt(connection_id, sock, connected=False, peer_host=(address.name or address.host).removesuffix("."))

    def register(self, connection_id: str, sock: Socket) -> None:
        self._refuse_duplicate(connection_id)
        sock.setblocking(False)
        self._adopt(connection_id, sock, connected=True, peer_host="")

    def _refuse_duplicate(self, connection_id: str) -> None:
        if connection_id in self._channels or connection_id in self._closing:
            raise RuntimeError(f"there is a connection {connection_id} already")

    def _adopt(self, connection_id: str, sock: Socket, *, connected: bool, peer_host: str) -> None:
        reader = FrameReader(connection_id, self._max_receive_bytes, self._memory_pool, self._scratch)
        try:
            channel = self._channel_builder.build_channel(
                connection_id, sock, connected=connected, reader=reader, peer_host=peer_host
            )
            self._events.register(channel)
        except BaseException:
            sock.close()
            raise
        self._channels[connection_id] = channel
        if self._metrics is not None:
            self._metrics.created(self._clock.monotonic_ms())
        if self._idle is not None:
            self._idle.update(connection_id, self._clock.monotonic_ms())
        if self._setup_timeout_ms >= 0 and not channel.ready:
            self._setup_ends_ms[channel] = self._clock.monotonic_ms() + self._setup_timeout_ms

    def can_send(self, connection_id: str) -> bool:
        channel = self._channels.get(connection_id)
        return channel is not None and channel.can_send

    def is_open(self, connection_id: str) -> bool:
        return connection_id in self._channels or connection_id in self._closing

    def mute(self, connection_id: str) -> None:
        channel = self._open_or_closing(connection_id)
        channel.muted = True
        self._explicitly_muted.add(channel)
        self._buffered.discard(channel)

    def unmute(self, connection_id: str) -> None:
        channel = self._open_or_closing(connection_id)
        channel.muted = False
        self._explicitly_muted.discard(channel)
        if connection_id not in self._channels:
            return
        self._events.register(channel)
        if channel.has_bytes_buffered:
            self._buffered.add(channel)
            self._made_read_progress = True

    def _open_or_closing(self, connection_id: str) -> KafkaChannel:
        channel = self._channels.get(connection_id) or self._closing.get(connection_id)
        if channel is None:
            raise RuntimeError(f"there is no connection {connection_id}")
        return channel

    def principal(self, connection_id: str) -> str:
        """The principal of the peer: ``User:name``. :raises RuntimeError: if there is no such connection."""
        return self._open_or_closing(connection_id).authenticator.principal

    def begin_reauthentication(self, connection_id: str, request: NetworkReceive) -> bool:
        """Treat *request* as the beginning of reauthentication (KIP-368); False if it is not one or not allowed now."""
        channel = self._channels.get(connection_id)
        if channel is None or not channel.begin_reauthentication(request):
            return False
        # No socket event announces it: the next poll writes the response.
        self._buffered.add(channel)
        self._made_read_progress = True
        return True

    def session_expired(self, connection_id: str) -> bool:
        """Whether the peer's session has expired without reauthentication."""
        channel = self._channels.get(connection_id)
        return channel is not None and channel.authenticator.session_expired

    def lowest_priority_connection(self) -> str | None:
        """The connection to close first if there are too many: a closing one, else the longest idle one."""
        if self._closing:
            return next(iter(self._closing))
        if self._idle is not None:
            return self._idle.least_recently_active
        return next(iter(self._channels), None)

    def close_connection(self, connection_id: str) -> None:
        channel = self._channels.get(connection_id)
        if channel is not None:
            channel.state = ChannelState.LOCAL_CLOSE
            self._close(channel, _CloseMode.DISCARD_NO_NOTIFY)
            return
        channel = self._closing.pop(connection_id, None)
        if channel is not None:
            self._free(channel)

    def close(self) -> None:
        """Close all connections and the selector itself; nothing is reported."""
        for connection_id in [*self._channels, *self._closing]:
            self.close_connection(connection_id)
        self._events.close()

    def send(self, send: NetworkSend) -> None:
        closing = self._closing.get(send.destination)
        if closing is not None:
            self._failed_sends[send.destination] = closing.cause
            return
        channel = self._channels.get(send.destination)
        if channel is None:
            raise RuntimeError(f"there is no connection {send.destination}")
        try:
            channel.set_send(send)
        except RuntimeError as error:
            channel.state = ChannelState.FAILED_SEND
            self._failed_sends[send.destination] = str(error)
            self._close(channel, _CloseMode.DISCARD_NO_NOTIFY)
            raise
        self._unwritten.append(channel)

    def wakeup(self) -> None:
        self._events.wakeup()

    def poll(self, timeout_ms: int) -> None:
        """See :class:`~kafka_sink.network.channel.selectable.Selectable`.

        :raises ValueError: if *timeout_ms* is negative.
        """
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms must not be negative, got {timeout_ms}")
        made_progress = self._made_read_progress
        self._clear()
        if self._out_of_memory and not self._memory_pool.is_out_of_memory:
            self._recover_memory()
            made_progress = True
        # Usually the socket accepts a frame without a write event.
        unwritten, self._unwritten = self._unwritten, []
        for channel in unwritten:
            if self._channels.get(channel.id) is channel and channel.ready:
                self._guard_write(channel)
        made_progress = made_progress or self._made_read_progress
        nothing_to_wait_for = (
            (made_progress and self._buffered)
            or self.completed_receives
            or self.disconnected
            or any(send.ends_poll for send in self.completed_sends)
        )
        wait_began_ms = 0 if self._metrics is None else self._clock.monotonic_ms()
        events = self._events.wait(0 if nothing_to_wait_for else self._refusals.wait_ms(timeout_ms))
        # Read after the wait, so that a long wait does not make active connections look idle.
        now_ms = self._clock.monotonic_ms()
        if events or self._buffered:
            self._process_all(events, now_ms)
        else:
            self._made_read_progress = True
        self._close_overdue(now_ms)
        if self._metrics is not None:
            ended_ms = self._clock.monotonic_ms()
            self._metrics.polled(now_ms - wait_began_ms, ended_ms - now_ms, ended_ms)

    def _clear(self) -> None:
        """Clear the results of the last poll, and remove closed channels that have returned all their frames."""
        self.completed_sends = []
        self.completed_receives = []
        self.connected = []
        self.disconnected = {}
        self._received_from.clear()
        for connection_id, channel in list(self._closing.items()):
            failed = self._failed_sends.pop(connection_id, None) is not None
            if failed or not self._has_pending_receive(channel):
                del self._closing[connection_id]
                self._free(channel)
                self._report(channel)
        for connection_id, cause in self._failed_sends.items():
            self.disconnected[connection_id] = Disconnect(ChannelState.FAILED_SEND, cause)
        self._failed_sends.clear()
        self._made_read_progress = False

    def _recover_memory(self) -> None:
        self._out_of_memory = False
        for channel in self._channels.values():
            if channel.is_in_mutable_state and channel not in self._explicitly_muted:
                channel.muted = False
                self._events.register(channel)
                if channel.has_bytes_buffered:
                    self._buffered.add(channel)

    def _process_all(self, events: list[tuple[KafkaChannel, int]], now_ms: int) -> None:
        # Buffered channels first, each channel once; processing adds those again that have more to read.
        buffered, self._buffered = self._buffered, set()
        if buffered:
            buffered.difference_update(channel for channel, _ in events)
            for channel in buffered:
                self._process(channel, 0, now_ms)
        if not self._out_of_memory and self._memory_pool.available_bytes < self._memory_pool.low_memory_threshold_bytes:
            random.shuffle(events)
        for channel, mask in events:
            self._process(channel, mask, now_ms)

    def _process(self, channel: KafkaChannel, mask: int, now_ms: int) -> None:
        # One function, because every event of a channel passes through these steps in this order.
        if channel.failure is not None:
            return
        if self._idle is not None:
            self._idle.update(channel.id, now_ms)
        try:
            if channel.state is not ChannelState.READY:
                self._establish(channel)
            if channel.ready and channel not in self._explicitly_muted:
                if (mask & READ or channel.has_bytes_buffered) and channel.id not in self._received_from:
                    self._attempt_read(channel)
                if channel.has_bytes_buffered:
                    self._buffered.add(channel)
        except Exception as error:
            # After a frame of invalid size the rest of the stream cannot be split into frames.
            broken = isinstance(error, OSError | EOFError)
            self._fail(channel, error, _CloseMode.GRACEFUL if broken else _CloseMode.NOTIFY_ONLY)
            return
        if mask & WRITE and channel.wants_write and channel.ready:
            self._guard_write(channel)
        elif channel.id in self._channels:
            self._events.register(channel)

    def _establish(self, channel: KafkaChannel) -> None:
        """Continue connect, handshake and authentication as far as possible."""
        if not channel.transport.is_connected:
            channel.finish_connect()
            self.connected.append(channel.id)
        if not channel.ready:
            channel.prepare()
        if channel.ready:
            channel.state = ChannelState.READY
            self._setup_ends_ms.pop(channel, None)

    def _attempt_read(self, channel: KafkaChannel) -> None:
        received = channel.read()
        if channel.muted:
            self._out_of_memory = True
        else:
            self._made_read_progress = True
        if received is not None:
            self.completed_receives.append(received)
            self._received_from.add(channel.id)
            if self._metrics is not None:
                size_bytes = received.payload.nbytes + SIZE_BYTES
                self._metrics.received(channel.id, size_bytes, self._clock.monotonic_ms())

    def _guard_write(self, channel: KafkaChannel) -> None:
        try:
            written = None
            if channel.wants_reauthentication and channel.begin_reauthentication():
                channel.prepare()
            else:
                written = channel.write()
            self._events.register(channel)
        except Exception as error:
            self._fail(channel, error, _CloseMode.NOTIFY_ONLY)
            return
        if channel.has_bytes_buffered and channel.ready and channel not in self._explicitly_muted:
            # The transport may have had to write before it could continue to read; no event announces that.
            self._buffered.add(channel)
            self._made_read_progress = True
        if written is not None:
            self.completed_sends.append(written)
            if self._idle is not None:
                self._idle.update(channel.id, self._clock.monotonic_ms())
            if self._metrics is not None:
                self._metrics.sent(channel.id, written.size, self._clock.monotonic_ms())

    def _fail(self, channel: KafkaChannel, error: Exception, mode: _CloseMode) -> None:
        channel.cause = cause_of(error)
        if isinstance(error, AuthenticationError):
            channel.refuse(error)
        if isinstance(error, OSError | EOFError | KafkaError):
            self._log.debug("connection %s ended: %s", channel.id, channel.cause)
        else:
            self._log.error("unexpected error on connection %s, closing it", channel.id, exc_info=error)
        if self._refusals.add(channel):
            self._buffered.discard(channel)
            self._events.register(channel)
            return
        channel.authenticator.send_failure()
        self._close(channel, mode)

    def _close_overdue(self, now_ms: int) -> None:
        """Close the longest idle connection if it has expired, and logins that are overdue or whose delayed refusal is
        due."""
        expired = self._idle.poll_expired(now_ms) if self._idle is not None else None
        channel = self._channels.get(expired) if expired is not None else None
        if channel is not None:
            channel.state = ChannelState.EXPIRED
            channel.cause = f"idle for more than {self._max_idle_ms} ms"
            self._log.debug("closing connection %s: %s", channel.id, channel.cause)
            self._close(channel, _CloseMode.GRACEFUL)
        self._close_unfinished(now_ms)
        while (refused := self._refusals.take_due(now_ms)) is not None:
            refused.authenticator.send_failure()
            self._close(refused, _CloseMode.NOTIFY_ONLY)

    def _close_unfinished(self, now_ms: int) -> None:
        while self._setup_ends_ms:
            channel, end_ms = next(iter(self._setup_ends_ms.items()))
            if now_ms < end_ms:
                return
            del self._setup_ends_ms[channel]
            if channel.failure is None:
                channel.cause = f"no login within {self._setup_timeout_ms} ms"
                self._close(channel, _CloseMode.NOTIFY_ONLY)

    def _close(self, channel: KafkaChannel, mode: _CloseMode) -> None:
        self._setup_ends_ms.pop(channel, None)
        del self._channels[channel.id]
        if self._idle is not None:
            self._idle.remove(channel.id)
        if channel.id in self.connected:
            self.connected.remove(channel.id)
        self._events.unregister(channel)
        self._buffered.discard(channel)
        self._refusals.discard(channel)
        received = channel.id in self._received_from
        if mode is not _CloseMode.DISCARD_NO_NOTIFY and (
            received or (mode is _CloseMode.GRACEFUL and self._has_pending_receive(channel))
        ):
            self._closing[channel.id] = channel
            return
        self._free(channel)
        if mode is not _CloseMode.DISCARD_NO_NOTIFY:
            self._report(channel)

    def _has_pending_receive(self, channel: KafkaChannel) -> bool:
        """Whether a closed channel has frames to return; reads its next frame unless the channel is muted."""
        if not channel.ready:
            return False
        if channel in self._explicitly_muted or channel.id in self._received_from:
            return True
        try:
            self._attempt_read(channel)
        except Exception:
            return False
        return channel.id in self._received_from

    def _free(self, channel: KafkaChannel) -> None:
        self._explicitly_muted.discard(channel)
        self._buffered.discard(channel)
        if self._metrics is not None:
            self._metrics.closed(self._clock.monotonic_ms())
        channel.close()

    def _report(self, channel: KafkaChannel) -> None:
        self.disconnected[channel.id] = Disconnect(channel.state, channel.cause, channel.failure)
