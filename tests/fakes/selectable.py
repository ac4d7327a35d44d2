"""A network without sockets: the test acts as the brokers, in order and without waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.network.frames import NetworkReceive, NetworkSend
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.network.transport.transport import Socket
from kafka_sink.protocol.framing import SIZE_BYTES
from kafka_sink.protocol.header import RequestHeader, decode_request_body, decode_request_header, encode_response
from kafka_sink.protocol.schema import Struct
from tests.fakes.clock import FakeClock

#: Returns the response of a broker to a request, or None to leave the response to the test.
Broker = Callable[[str, RequestHeader, Struct], Struct | None]


class _Tape:
    """Records written bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, buffers: Sequence[memoryview]) -> int:
        self.data += b"".join(buffers)
        return sum(buffer.nbytes for buffer in buffers)


@dataclass
class FakeConnection:
    """One connection as both ends see it."""

    address: SocketAddress | None
    established: bool = False
    ready: bool = False
    muted: bool = False
    outgoing: NetworkSend | None = None
    tape: _Tape = field(default_factory=_Tape)
    #: Written frames, without their length.
    frames: list[bytes] = field(default_factory=list)
    #: Requests without a response, oldest first.
    unanswered: deque[tuple[RequestHeader, Struct]] = field(default_factory=deque)
    incoming: deque[bytes] = field(default_factory=deque)
    lost: Disconnect | None = None


class FakeSelectable:
    """Implements :class:`~kafka_sink.network.channel.selectable.Selectable`.

    The next poll establishes connections unless *auto_connect* is off, and writes frames unless the connection is in
    *held*; in *lagging* connections the transport accepts whole frames and keeps their last bytes, as TLS may. A poll
    without events advances *clock* by its time-out.
    """

    def __init__(self, clock: FakeClock | None = None, broker: Broker | None = None) -> None:
        self.clock = clock or FakeClock()
        self.broker = broker
        self.auto_connect = True
        self.auto_ready = True
        self.held: set[str] = set()
        self.lagging: set[str] = set()
        #: Raised by the next connects, by connection id.
        self.refusals: dict[str, OSError] = {}
        self.connects: list[tuple[str, SocketAddress]] = []
        self.closed: list[str] = []
        self.poll_timeouts: list[int] = []
        self.is_closed = False
        self.connections: dict[str, FakeConnection] = {}
        self.woken = False
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.connected: list[str] = []
        self.disconnected: dict[str, Disconnect] = {}

    # -- what the test does

    def lose(
        self,
        connection_id: str,
        cause: str = "closed by the other side",
        *,
        state: ChannelState = ChannelState.READY,
        disconnect: Disconnect | None = None,
    ) -> None:
        """Close the connection in the next poll."""
        self.connections[connection_id].lost = disconnect or Disconnect(state, cause)

    def requests(self, connection_id: str) -> list[tuple[RequestHeader, Struct]]:
        """Return the client's requests without a response, oldest first."""
        return list(self.connections[connection_id].unanswered)

    def reply(self, connection_id: str, body: Struct, *, correlation_id: int | None = None) -> RequestHeader:
        """Answer the oldest request; the client reads it in the next poll. Returns that request's header."""
        connection = self.connections[connection_id]
        header, _ = connection.unanswered.popleft()
        answers = header.correlation_id if correlation_id is None else correlation_id
        segments = encode_response(header.api_key, header.api_version, answers, body)
        connection.incoming.append(b"".join(segments))
        return header

    def receive(self, connection_id: str, payload: bytes) -> None:
        """Deliver a frame, which the client reads in the next poll."""
        self.connections[connection_id].incoming.append(payload)

    # -- what the client does

    def connect(
        self, connection_id: str, address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int
    ) -> None:
        if connection_id in self.connections:
            raise RuntimeError(f"there is a connection {connection_id} already")
        self.connects.append((connection_id, address))
        refusal = self.refusals.get(connection_id)
        if refusal is not None:
            raise refusal
        self.connections[connection_id] = FakeConnection(address, established=self.auto_connect, ready=self.auto_ready)

    def register(self, connection_id: str, sock: Socket) -> None:
        if connection_id in self.connections:
            raise RuntimeError(f"there is a connection {connection_id} already")
        self.connections[connection_id] = FakeConnection(None, established=True, ready=True)

    def send(self, send: NetworkSend) -> None:
        connection = self._connection(send.destination)
        if connection.outgoing is not None:
            raise RuntimeError(f"connection {send.destination} has a frame that is not fully written yet")
        connection.outgoing = send

    def poll(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            raise ValueError(f"timeout_ms must not be negative, got {timeout_ms}")
        self.poll_timeouts.append(timeout_ms)
        self.completed_sends, self.completed_receives = [], []
        self.connected, self.disconnected = [], {}
        for connection_id, connection in list(self.connections.items()):
            self._process(connection_id, connection)
        something = self.completed_sends or self.completed_receives or self.connected or self.disconnected
        if not something and not self.woken:
            assert timeout_ms < FOREVER_MS, "this poll would wait for ever"
            self.clock.advance(timeout_ms)
        self.woken = False

    def _process(self, connection_id: str, connection: FakeConnection) -> None:
        if connection.lost is not None:
            del self.connections[connection_id]
            self.disconnected[connection_id] = connection.lost
            return
        if connection.established:
            connection.established = False
            if connection.address is not None:
                self.connected.append(connection_id)
        if connection.incoming and not connection.muted:
            payload = connection.incoming.popleft()
            self.completed_receives.append(NetworkReceive(connection_id, memoryview(payload)))
        if connection.outgoing is not None and connection_id not in self.held:
            self._write(connection_id, connection, connection.outgoing)

    def _write(self, connection_id: str, connection: FakeConnection, send: NetworkSend) -> None:
        send.write_to(connection.tape.write)
        if connection_id in self.lagging:
            return
        connection.outgoing = None
        self.completed_sends.append(send)
        payload = bytes(connection.tape.data[SIZE_BYTES:])
        connection.tape = _Tape()
        connection.frames.append(payload)
        if connection.address is None:
            return
        header, offset = decode_request_header(payload)
        body = decode_request_body(header, payload, offset)
        connection.unanswered.append((header, body))
        answer = self.broker(connection_id, header, body) if self.broker else None
        if answer is not None:
            self.reply(connection_id, answer)

    def wakeup(self) -> None:
        self.woken = True

    def can_send(self, connection_id: str) -> bool:
        connection = self.connections.get(connection_id)
        if connection is None or not connection.ready or connection.established:
            return False
        return connection.outgoing is None

    def is_open(self, connection_id: str) -> bool:
        return connection_id in self.connections

    def mute(self, connection_id: str) -> None:
        self._connection(connection_id).muted = True

    def unmute(self, connection_id: str) -> None:
        self._connection(connection_id).muted = False

    def _connection(self, connection_id: str) -> FakeConnection:
        if connection_id not in self.connections:
            raise RuntimeError(f"there is no connection {connection_id}")
        return self.connections[connection_id]

    def close_connection(self, connection_id: str) -> None:
        if self.connections.pop(connection_id, None) is not None:
            self.closed.append(connection_id)

    def close(self) -> None:
        self.connections.clear()
        self.is_closed = True
