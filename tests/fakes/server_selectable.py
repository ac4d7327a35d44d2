"""A selectable without sockets for the broker's processor: a test puts requests in and sees what comes out."""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.common.clock import stopwatch_ns
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.network.frames import UNLIMITED_MEMORY_POOL, MemoryPool, NetworkReceive, NetworkSend
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.network.transport.transport import Socket


class FakeServerSelectable:
    """Frames that a test arranges arrive in the next poll; sends complete in the poll after them unless held."""

    def __init__(self) -> None:
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, Disconnect] = {}
        #: Everything that was done, in order.
        self.calls: list[tuple[str, object]] = []
        self.open: set[str] = set()
        self.muted: set[str] = set()
        self.sent: list[NetworkSend] = []
        self.hold_sends = False
        self.wakeups = 0
        self.closed = False
        self.idle = IdleMeter(stopwatch_ns())
        self.poll_error: Exception | None = None
        self.register_error: Exception | None = None
        self.reauthenticates = False
        #: Connections that should have authenticated again.
        self.expired: set[str] = set()
        self.during_poll: Callable[[], None] = lambda: None
        self._arriving: list[NetworkReceive] = []
        self._leaving: dict[str, Disconnect] = {}

    # --- what a test arranges ----------------------------------------------------------------------------------------

    def arrive(self, connection_id: str, frame: bytes, pool: MemoryPool = UNLIMITED_MEMORY_POOL) -> None:
        assert pool.try_reserve(len(frame))
        self._arriving.append(NetworkReceive(connection_id, memoryview(frame), pool))

    def leave(self, connection_id: str) -> None:
        self._leaving[connection_id] = Disconnect(ChannelState.READY, "closed by the other side")

    # --- Selectable --------------------------------------------------------------------------------------------------

    def connect(
        self, connection_id: str, address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        raise AssertionError("a broker's processor never connects")

    def register(self, connection_id: str, sock: Socket) -> None:
        self.calls.append(("register", connection_id))
        if self.register_error is not None:
            raise self.register_error
        self.open.add(connection_id)

    def send(self, send: NetworkSend) -> None:
        self.calls.append(("send", send.destination))
        if not self.can_send(send.destination):
            raise RuntimeError("the slot is taken")
        self.sent.append(send)

    def poll(self, timeout_ms: int) -> None:
        self.calls.append(("poll", timeout_ms))
        self.completed_sends, self.completed_receives, self.disconnected = [], [], {}
        if not self.hold_sends:
            self.completed_sends, self.sent = self.sent, []
        waiting = [receive for receive in self._arriving if receive.source in self.muted]
        self.completed_receives = [receive for receive in self._arriving if receive.source not in self.muted]
        self._arriving = waiting
        self.disconnected, self._leaving = self._leaving, {}
        self.open -= set(self.disconnected)
        self.during_poll()
        if self.poll_error is not None:
            raise self.poll_error

    def wakeup(self) -> None:
        self.wakeups += 1

    def can_send(self, connection_id: str) -> bool:
        return connection_id in self.open and all(send.destination != connection_id for send in self.sent)

    def is_open(self, connection_id: str) -> bool:
        return connection_id in self.open

    def mute(self, connection_id: str) -> None:
        self.calls.append(("mute", connection_id))
        self.muted.add(connection_id)

    def unmute(self, connection_id: str) -> None:
        self.calls.append(("unmute", connection_id))
        self.muted.discard(connection_id)

    def close_connection(self, connection_id: str) -> None:
        self.calls.append(("close", connection_id))
        self.open.discard(connection_id)
        self.sent = [send for send in self.sent if send.destination != connection_id]

    def close(self) -> None:
        self.closed = True

    def principal(self, connection_id: str) -> str:
        return f"User:{connection_id}"

    def begin_reauthentication(self, connection_id: str, request: NetworkReceive) -> bool:
        self.calls.append(("reauthentication", connection_id))
        return self.reauthenticates

    def session_expired(self, connection_id: str) -> bool:
        return connection_id in self.expired

    def lowest_priority_connection(self) -> str | None:
        return min(self.open, default=None)
