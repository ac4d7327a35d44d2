"""KSelector over real sockets on the loopback interface. The tests do not depend on timing: they poll until the
expected event has happened, and fail after very many polls."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kafka_sink.common.errors import AuthenticationError
from kafka_sink.network.channel.authenticator import PlaintextAuthenticator
from kafka_sink.network.channel.channel import ChannelBuilder, KafkaChannel
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.network.frames import UNLIMITED_MEMORY_POOL, FrameReader, MemoryPool, NetworkSend
from kafka_sink.network.polling.selector import KSelector, SelectorLimits
from kafka_sink.network.transport.listener import Listener
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.network.transport.transport import READ, PlaintextTransport, Socket, TransportLayer
from tests.conftest import Figure
from tests.fakes.clock import FakeClock
from tests.fakes.interrupting import Points, interrupt

PATIENCE = 2000


class Harness:
    """A selector and the other ends of its connections."""

    def __init__(
        self, builder: ChannelBuilder | None = None, pool: MemoryPool = UNLIMITED_MEMORY_POOL, **limits: int
    ) -> None:
        self.clock = FakeClock()
        limited = SelectorLimits(memory_pool=pool, **limits)
        self.selector = KSelector(builder or ChannelBuilder(), self.clock, limited)
        self.peers: list[socket.socket] = []

    def pair(self, connection_id: str = "a") -> socket.socket:
        """Register a connection, and return its other end, which blocks."""
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        self.peers.append(theirs)
        self.selector.register(connection_id, ours)
        return theirs

    def until(self, happened: Callable[[], object], timeout_ms: int = 10) -> None:
        for _ in range(PATIENCE):
            self.selector.poll(timeout_ms)
            if happened():
                return
        pytest.fail("did not happen")

    def receive(self, count: int) -> list[tuple[str, bytes]]:
        """The next *count* frames."""
        received: list[tuple[str, bytes]] = []

        def enough() -> bool:
            received.extend((r.source, bytes(r.payload)) for r in self.selector.completed_receives)
            return len(received) >= count

        self.until(enough)
        return received

    def idle_polls(self, count: int = 3) -> list[tuple[str, bytes]]:
        """The frames that arrive in *count* polls."""
        received = []
        for _ in range(count):
            self.selector.poll(1)
            received += [(r.source, bytes(r.payload)) for r in self.selector.completed_receives]
        return received

    def close(self) -> None:
        self.selector.close()
        for peer in self.peers:
            peer.close()


@contextlib.contextmanager
def running(*arguments: Any, **options: Any) -> Iterator[Harness]:
    with contextlib.closing(Harness(*arguments, **options)) as harness:
        yield harness


@pytest.fixture
def harness() -> Iterator[Harness]:
    with running() as harness:
        yield harness


@pytest.fixture
def listener() -> Iterator[Listener]:
    subject = Listener("127.0.0.1", 0)
    yield subject
    subject.close()


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def reset(sock: socket.socket) -> None:
    """Close the socket so that the other side receives an RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


# -- connecting


def test_a_refused_connection_says_so(harness: Harness) -> None:
    free = Listener("127.0.0.1", 0)
    address = free.address
    free.close()
    # The system may refuse at once or slightly later; the reason is available in both cases.
    try:
        harness.selector.connect("0", address, -1, -1)
    except ConnectionRefusedError:
        return
    harness.until(lambda: harness.selector.disconnected)
    assert harness.selector.disconnected == {"0": Disconnect(ChannelState.NOT_CONNECTED, "connection refused")}
    assert harness.selector.connected == []
    assert not harness.selector.is_open("0")


def test_a_failed_connect_leaves_nothing_behind(harness: Harness, listener: Listener) -> None:
    with pytest.raises(OSError):
        harness.selector.connect("0", SocketAddress(socket.AF_INET, "255.255.255.255", 1), -1, -1)
    assert not harness.selector.is_open("0")
    harness.selector.connect("0", listener.address, -1, -1)


# -- writing


@pytest.mark.behaviour("KSelector", "A frame larger than the socket's buffer goes out in pieces")
def test_a_frame_larger_than_the_socket_goes_out_in_pieces(harness: Harness) -> None:
    peer = harness.pair()
    payload = bytes(range(256)) * 40_000
    send = NetworkSend("a", [payload[:100], payload[100:]])
    harness.selector.send(send)
    harness.selector.poll(0)
    assert not send.completed
    assert harness.selector.completed_sends == []
    # While the frame is being written, another send is refused, and closes the connection.
    received = bytearray()
    while len(received) < send.size:
        received += peer.recv(1 << 20)
        harness.selector.poll(0)
    assert bytes(received) == frame(payload)
    assert send.completed


def test_second_pending_send_ends_the_connection(harness: Harness) -> None:
    harness.pair()
    harness.selector.send(NetworkSend("a", [b"1"]))
    with pytest.raises(RuntimeError, match="not fully written"):
        harness.selector.send(NetworkSend("a", [b"2"]))
    assert not harness.selector.is_open("a")
    harness.selector.poll(10_000)
    assert harness.selector.disconnected["a"].state is ChannelState.FAILED_SEND
    harness.selector.poll(0)
    assert harness.selector.disconnected == {}


@pytest.mark.behaviour("KSelector", "A failed write tells the cause")
def test_writing_to_a_connection_that_was_reset_tells_the_cause(harness: Harness, listener: Listener) -> None:
    harness.selector.connect("0", listener.address, -1, -1)
    harness.until(lambda: harness.selector.connected)
    accepted = listener.accept()
    assert accepted is not None
    reset(accepted)
    harness.selector.send(NetworkSend("0", [b"x"]))
    harness.until(lambda: harness.selector.disconnected)
    assert harness.selector.disconnected["0"].cause == "connection reset by the other side"


# -- reading


def test_close_by_the_other_side_is_reported_once(harness: Harness) -> None:
    peer = harness.pair()
    peer.sendall(frame(b"last words"))
    peer.close()
    assert harness.receive(1) == [("a", b"last words")]
    harness.until(lambda: harness.selector.disconnected)
    assert harness.selector.disconnected == {"a": Disconnect(ChannelState.READY, "closed by the other side")}
    harness.selector.poll(0)
    assert harness.selector.disconnected == {}


@pytest.mark.parametrize(
    ("size", "cause"),
    [
        (101, "frame of 101 bytes is larger than the limit of 100 bytes"),
        (-5, "frame of negative length -5; the other side does not speak Kafka's protocol"),
    ],
)
def test_impossible_frame_ends_connection_and_reads_no_further(size: int, cause: str) -> None:
    with running(max_receive_bytes=100) as harness:
        peer = harness.pair()
        peer.sendall(size.to_bytes(4, "big", signed=True) + frame(b"not a frame any more"))
        harness.until(lambda: harness.selector.disconnected)
        assert harness.selector.disconnected["a"].cause == cause
        assert harness.selector.completed_receives == []
        assert harness.idle_polls() == []


@pytest.mark.behaviour("KSelector", "A closing connection hands out what came before")
def test_a_frame_that_was_read_outlives_a_failed_write(harness: Harness, listener: Listener) -> None:
    """A response that was read must reach the caller even if the next request cannot be written any more."""
    peer = harness.pair()
    peer.sendall(frame(b"answer"))
    big = NetworkSend("a", [bytes(10_000_000)])
    harness.selector.send(big)
    harness.selector.poll(0)
    received = [bytes(r.payload) for r in harness.selector.completed_receives]
    peer.close()
    harness.until(lambda: harness.selector.disconnected)
    assert received == [b"answer"]


# -- muting


@pytest.mark.behaviour("KSelector", "Buffered frames wait for unmute too")
@pytest.mark.behaviour("KSelector", "Frames in memory are looked at without a socket event, and wait for unmute")
def test_frames_that_are_buffered_wait_for_unmute_too(harness: Harness) -> None:
    peer = harness.pair()
    peer.sendall(frame(b"1") + frame(b"2"))
    assert harness.receive(1) == [("a", b"1")]
    harness.selector.mute("a")
    assert harness.idle_polls() == []
    harness.selector.unmute("a")
    # No socket event announces the frame any more, so the poll must not wait for one.
    harness.selector.poll(3_600_000)
    assert [bytes(r.payload) for r in harness.selector.completed_receives] == [b"2"]


def test_a_muted_connection_can_still_be_written_to(harness: Harness) -> None:
    peer = harness.pair()
    harness.selector.mute("a")
    peer.sendall(frame(b"1"))
    harness.selector.poll(1)
    harness.selector.send(NetworkSend("a", [bytes(3_000_000)]))
    harness.selector.poll(0)
    taken = 0
    while taken < 3_000_004:
        taken += len(peer.recv(1 << 20))
        harness.selector.poll(0)
        assert harness.selector.completed_receives == []
    harness.selector.unmute("a")
    assert harness.receive(1) == [("a", b"1")]


# -- memory


@pytest.mark.behaviour("KSelector", "Nothing is read without memory, until some is released")
@pytest.mark.behaviour(
    "Request memory", "No room for a frame mutes its connection, and room unmutes it unless it was muted on purpose"
)
def test_without_memory_nothing_is_read_until_some_is_released() -> None:
    pool = MemoryPool(100)
    with running(pool=pool) as harness:
        first, second = harness.pair("a"), harness.pair("b")
        first.sendall(frame(bytes(100)))
        harness.until(lambda: harness.selector.completed_receives)
        [held] = harness.selector.completed_receives
        second.sendall(frame(b"later") + frame(b"still later"))
        assert harness.idle_polls() == []
        assert pool.is_out_of_memory
        held.release()
        assert harness.receive(2) == [("b", b"later"), ("b", b"still later")]


@pytest.mark.behaviour("KSelector", "A connection that was muted on purpose stays muted when memory returns")
@pytest.mark.behaviour(
    "Request memory", "No room for a frame mutes its connection, and room unmutes it unless it was muted on purpose"
)
def test_explicit_mute_outlasts_a_return_of_memory() -> None:
    pool = MemoryPool(10)
    pool.try_reserve(10)
    with running(pool=pool) as harness:
        peer = harness.pair()
        peer.sendall(frame(b"1"))
        assert harness.idle_polls() == []
        harness.selector.mute("a")
        pool.release(10)
        assert harness.idle_polls() == []
        # Private: from outside, a muted channel looks like a poll that wakes and finds no memory.
        assert harness.selector._channels["a"].muted, "its socket would wake every poll"
        harness.selector.unmute("a")
        assert harness.receive(1) == [("a", b"1")]


@pytest.mark.behaviour("Request memory", "A frame that is given up gives its memory back")
def test_closing_frees_the_memory_of_a_half_read_frame() -> None:
    pool = MemoryPool(1000)
    with running(pool=pool) as harness:
        peer = harness.pair()
        peer.sendall(frame(bytes(500))[:100])
        harness.until(lambda: pool.available_bytes == 500)
        harness.selector.close_connection("a")
        assert pool.available_bytes == 1000


@pytest.mark.behaviour("Request memory", "Connections take chances when memory is low")
def test_low_memory_polls_connections_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled: list[int] = []
    monkeypatch.setattr("random.shuffle", lambda events: shuffled.append(len(events)))
    pool = MemoryPool(1000)
    with running(pool=pool) as harness:
        peer = harness.pair()
        peer.sendall(frame(b"1"))
        harness.receive(1)
        assert shuffled == []
        pool.try_reserve(901)
        peer.sendall(frame(b"2"))
        harness.receive(1)
        assert shuffled


# -- closing


@pytest.mark.behaviour(
    "ConnectionQuotas", "Connections beyond a limit that was lowered are closed, the longest silent first"
)
def test_longest_silent_connection_has_the_lowest_priority() -> None:
    with running(connections_max_idle_ms=1000) as harness:
        assert harness.selector.lowest_priority_connection() is None
        peers = {name: harness.pair(name) for name in "abc"}
        for name in "acb":
            harness.clock.advance(10)
            peers[name].sendall(frame(b"1"))
            harness.receive(1)
        assert harness.selector.lowest_priority_connection() == "a"
        harness.clock.advance(10)
        peers["a"].sendall(frame(b"2"))
        harness.receive(1)
        assert harness.selector.lowest_priority_connection() == "c"


@pytest.mark.behaviour("Processor", "A closed connection keeps its place until its frames were handed out")
@pytest.mark.behaviour("KSelector", "A closing connection hands out what came before")
def test_closed_muted_connection_lasts_until_its_frames_are_read() -> None:
    with running(connections_max_idle_ms=100) as harness:
        peer = harness.pair()
        peer.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
        assert harness.receive(1) == [("a", b"1")]
        harness.selector.mute("a")
        harness.clock.advance(101)
        harness.selector.poll(0)
        # The connection is closed, but its owner still processes frame 1; it is the first candidate for eviction.
        harness.pair("other")
        assert harness.selector.lowest_priority_connection() == "a"
        assert harness.selector.disconnected == {}
        assert harness.selector.is_open("a")
        assert harness.selector.lowest_priority_connection() == "a"
        harness.selector.unmute("a")
        assert harness.receive(2) == [("a", b"2"), ("a", b"3")]
        harness.until(lambda: harness.selector.disconnected)
        assert harness.selector.disconnected["a"].state is ChannelState.EXPIRED


@pytest.mark.behaviour("Processor", "A response for a connection that is closing fails at once")
@pytest.mark.behaviour("KSelector", "A send on a closing connection fails at once")
def test_send_on_a_closing_connection_fails_at_once() -> None:
    with running(connections_max_idle_ms=100) as harness:
        harness.pair()
        harness.selector.mute("a")
        harness.clock.advance(101)
        harness.selector.poll(0)
        harness.selector.send(NetworkSend("a", [b"answer"]))
        harness.selector.poll(10_000)
        assert harness.selector.disconnected["a"].cause == "idle for more than 100 ms"
        assert not harness.selector.is_open("a")


class Built(ChannelBuilder):
    """Builds channels from the transport and authenticator that *parts* returns; for None, the default channel."""

    def __init__(self, parts: Callable[[str, Socket], tuple[TransportLayer, PlaintextAuthenticator] | None]) -> None:
        super().__init__()
        self._parts = parts

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        parts = self._parts(connection_id, sock)
        if parts is None:
            return super().build_channel(connection_id, sock, connected=connected, reader=reader, peer_host=peer_host)
        return KafkaChannel(connection_id, *parts, reader)


class AnswersFirst(PlaintextTransport):
    """Returns bytes that it has read only after it has sent some of its own: a read that waits for a write."""

    def __init__(self, sock: Socket) -> None:
        super().__init__(sock, connected=True)
        self._read = b""
        self._owes = False

    def read_into(self, target: memoryview) -> int:
        with contextlib.suppress(BlockingIOError):
            found = self._socket.recv(1000)
            self._read += found
            self._owes = self._owes or bool(found)
        given = b"" if self._owes else self._read[: len(target)]
        self._read = self._read[len(given) :]
        target[: len(given)] = given
        return len(given)

    def write(self, buffers: Sequence[memoryview]) -> int:
        self._owes = False
        return super().write(buffers) if buffers else 0

    def has_bytes_buffered(self) -> bool:
        return bool(self._read) and not self._owes

    def has_pending_writes(self) -> bool:
        return self._owes


@pytest.mark.behaviour("Slow transports", "A transport that has to write before it reads on is served")
@pytest.mark.parametrize("sends", [False, True])
def test_transport_that_must_write_before_reading_is_served(sends: bool) -> None:
    def parts(connection_id: str, sock: Socket) -> tuple[TransportLayer, PlaintextAuthenticator]:
        transport = AnswersFirst(sock)
        return transport, PlaintextAuthenticator(transport)

    with running(Built(parts)) as harness:
        harness.pair().sendall(frame(b"x"))
        harness.selector.poll(10_000)
        if sends:
            harness.selector.send(NetworkSend("a", [b"y"]))
        assert harness.receive(1) == [("a", b"x")]


# -- idle connections


@pytest.mark.behaviour("KSelector", "An idle connection is closed after connections.max.idle.ms")
@pytest.mark.behaviour("KSelector", "The broker closes an idle connection after connections.max.idle.ms")
def test_an_idle_connection_expires() -> None:
    with running(connections_max_idle_ms=100) as harness:
        harness.pair("a")
        busy = harness.pair("b")
        assert harness.selector.lowest_priority_connection() == "a"
        harness.clock.advance(60)
        busy.sendall(frame(b"x"))
        harness.receive(1)
        harness.clock.advance(41)
        harness.selector.poll(0)
        assert harness.selector.disconnected == {"a": Disconnect(ChannelState.EXPIRED, "idle for more than 100 ms")}
        assert harness.selector.is_open("b")


def test_an_answer_that_is_written_is_an_activity() -> None:
    with running(connections_max_idle_ms=100) as harness:
        harness.pair("a")
        answered = harness.pair("b")
        harness.clock.advance(60)
        harness.selector.send(NetworkSend("b", [b"an answer"]))
        harness.until(lambda: harness.selector.completed_sends)
        assert answered.recv(100) == frame(b"an answer")
        harness.clock.advance(41)
        gone: list[str] = []
        for _ in range(3):
            # Each poll closes at most one connection.
            harness.selector.poll(0)
            gone += harness.selector.disconnected
        assert gone == ["a"]


@pytest.mark.behaviour("KSelector", "Without a limit connections may be idle for ever")
def test_without_a_limit_connections_may_be_idle_for_ever(harness: Harness) -> None:
    harness.pair("a")
    harness.clock.advance(10**9)
    harness.selector.poll(0)
    assert harness.selector.disconnected == {}
    assert harness.selector.lowest_priority_connection() == "a"


# -- refusing


class Doorkeeper(PlaintextAuthenticator):
    """Refuses every client, and notes the times at which it sends the failure."""

    complete = False
    wanted_events = READ

    def __init__(self, transport: TransportLayer, harness: Harness, told_ms: list[int]) -> None:
        super().__init__(transport)
        self._harness, self._told_ms = harness, told_ms

    def authenticate(self) -> None:
        raise AuthenticationError("wrong password")

    def send_failure(self) -> None:
        self._told_ms.append(self._harness.clock.now_ms)


@contextlib.contextmanager
def behind_a_door(told_ms: list[int], **limits: int) -> Iterator[Harness]:
    """Every connection except "known" has a :class:`Doorkeeper`."""

    def parts(connection_id: str, sock: Socket) -> tuple[TransportLayer, PlaintextAuthenticator] | None:
        transport = PlaintextTransport(sock, connected=True)
        return None if connection_id == "known" else (transport, Doorkeeper(transport, guarded, told_ms))

    with running(Built(parts), **limits) as guarded:
        yield guarded


@pytest.mark.behaviour(
    "KSelector", "A refused client is told so, and closed after connection.failed.authentication.delay.ms"
)
def test_refused_client_is_told_and_closed_after_the_delay() -> None:
    told_ms: list[int] = []
    with behind_a_door(told_ms, failed_authentication_delay_ms=100) as harness:
        began_ms = harness.clock.now_ms
        peer = harness.pair()
        peer.sendall(b"password")
        harness.selector.poll(10_000)
        peer.sendall(b"and another")
        harness.clock.advance(99)
        harness.selector.poll(0)
        assert (told_ms, harness.selector.disconnected) == ([], {})
        harness.clock.advance(1)
        harness.selector.poll(3_600_000)
        [(connection_id, disconnect)] = harness.selector.disconnected.items()
        assert (connection_id, disconnect.state) == ("a", ChannelState.AUTHENTICATION_FAILED)
        assert told_ms == [began_ms + 100]


def test_a_login_that_is_not_complete_in_time_is_closed() -> None:
    with behind_a_door([], setup_timeout_ms=100) as harness:
        for connection_id in ("known", "silent"):
            harness.pair(connection_id)
        harness.clock.advance(99)
        harness.selector.poll(0)
        assert harness.selector.disconnected == {}
        harness.clock.advance(1)
        harness.selector.poll(0)
        assert [(name, each.cause) for name, each in harness.selector.disconnected.items()] == [
            ("silent", "no login within 100 ms")
        ]
        assert harness.selector.is_open("known")


# -- waking


@pytest.mark.behaviour("KSelector", "A wakeup ends one wait of another thread")
def test_a_wakeup_from_another_thread_ends_the_poll(harness: Harness) -> None:
    waker = threading.Timer(0.01, harness.selector.wakeup)
    waker.start()
    harness.selector.poll(3_600_000)
    waker.join()


@pytest.mark.behaviour("Faults: interrupts and signals", "A selector can be closed after an interrupt wherever it is")
def test_interrupted_selector_can_be_closed(listener: Listener, figure: Figure) -> None:
    for point in range(1_000_000):
        harness = Harness()

        def use(harness: Harness = harness) -> None:
            harness.selector.connect("a", listener.address, -1, -1)
            harness.until(lambda: harness.selector.connected == ["a"])
            harness.selector.mute("a")
            harness.selector.poll(0)
            harness.selector.unmute("a")
            harness.selector.close_connection("a")

        # The interpreter's own module changes its table and the kernel's table in two steps.
        points = Points(point, interrupt, also="/selectors.py")
        with contextlib.suppress(KeyboardInterrupt):
            points.during(use)
        harness.close()
        if (accepted := listener.accept()) is not None:
            accepted.close()
        if points.struck is None:
            figure("interrupted", f"{point} points")
            return
