"""The contract of every Selectable: the same tests over real sockets and over the fake that other tests use."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest

from kafka_sink.common.tls_config import TLS_1_2, TLS_1_3, SslConfig
from kafka_sink.network.channel.channel import ChannelBuilder
from kafka_sink.network.channel.selectable import Selectable
from kafka_sink.network.frames import NetworkSend
from kafka_sink.network.polling.selector import KSelector
from kafka_sink.network.transport.listener import Listener
from kafka_sink.network.transport.resolver import SocketAddress, resolve
from kafka_sink.network.transport.transport import Socket
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_request
from kafka_sink.protocol.messages.connection import ApiVersionsRequest
from kafka_sink.trust.tls_context import TlsContexts
from tests.fakes.clock import FakeClock
from tests.fakes.hesitant import HesitantChannelBuilder, HoldingChannelBuilder, payload_of_records, record
from tests.fakes.selectable import FakeSelectable
from tests.support.certificates import Authority

PATIENCE = 2000
REQUEST = encode_request(ApiKey.API_VERSIONS, 0, 7, "me", ApiVersionsRequest())
REQUEST_BYTES = b"".join(REQUEST)


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        found.append(data[4:end])
        data = data[end:]
    return found


class World(ABC):
    """A Selectable, a server to connect to, and the server's end of the only connection."""

    selectable: Selectable
    address: SocketAddress

    @abstractmethod
    def accept(self) -> None: ...

    @abstractmethod
    def server_sends(self, payload: bytes) -> None: ...

    @abstractmethod
    def server_received(self) -> list[bytes]: ...

    @abstractmethod
    def server_closes(self) -> None: ...

    @abstractmethod
    def server_stops_reading(self) -> None: ...

    @abstractmethod
    def server_reads_on(self, size: int) -> None:
        """Read *size* bytes while the subsequent polls write them."""

    def poll_until(self, attribute: str) -> None:
        for _ in range(PATIENCE):
            self.selectable.poll(10)
            if getattr(self.selectable, attribute):
                return
        pytest.fail(f"{attribute} stays empty")

    def become_ready(self) -> None:
        """Poll until the connection is ready: a handshake may follow after it is connected."""
        for _ in range(PATIENCE):
            if self.selectable.can_send("0"):
                return
            self.selectable.poll(10)
        pytest.fail("the connection does not become ready")

    def connect(self) -> None:
        self.selectable.connect("0", self.address, -1, -1)
        self.poll_until("connected")
        self.become_ready()
        self.accept()


class RealWorld(World):
    def __init__(self) -> None:
        self.selectable = KSelector(self._channel_builder(), FakeClock())
        self._listener = Listener("127.0.0.1", 0)
        self.address = self._listener.address
        self._server: Socket | None = None
        self._reading: threading.Thread | None = None

    def _channel_builder(self) -> ChannelBuilder:
        return ChannelBuilder()

    def accept(self) -> None:
        self._listener.wait(10_000)
        self._server = self._listener.accept()
        assert self._server is not None
        self._server.settimeout(10)

    def server_sends(self, payload: bytes) -> None:
        assert self._server is not None
        self._server.sendall(len(payload).to_bytes(4, "big") + payload)

    def server_received(self) -> list[bytes]:
        assert self._server is not None
        return frames(self._server.recv(1 << 20))

    def server_closes(self) -> None:
        assert self._server is not None
        self._server.close()

    def server_stops_reading(self) -> None:
        """The server reads only when a test calls for it; the system's buffers in between have a limited size."""

    def server_reads_on(self, size: int) -> None:
        self._reading = threading.Thread(target=self._read, args=[size], daemon=True)
        self._reading.start()

    def _read(self, size: int) -> None:
        assert self._server is not None
        while size > 0:
            size -= len(self._server.recv(1 << 20))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.join(60)
        self.selectable.close()
        self._listener.close()
        if self._server is not None:
            self._server.close()


class TlsWorld(RealWorld):
    """The same over TLS; the server uses Python's own blocking TLS sockets."""

    authority = Authority()
    identity = authority.issue("127.0.0.1")
    protocols: tuple[str, ...] = (TLS_1_2, TLS_1_3)

    def __init__(self) -> None:
        super().__init__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(self.identity.pem())
            file.flush()
            context.load_cert_chain(file.name)
        self._accepted = threading.Thread(target=self._handshake, args=[context], daemon=True)
        self._accepted.start()

    def _channel_builder(self) -> ChannelBuilder:
        config = SslConfig(ssl_truststore_certificates=self.authority.pem, ssl_enabled_protocols=self.protocols)
        return ChannelBuilder(contexts=TlsContexts(config, server=False))

    def _handshake(self, context: ssl.SSLContext) -> None:
        self._listener.wait(10_000)
        plain = self._listener.accept()
        if plain is not None:
            plain.settimeout(10)
            self._server = context.wrap_socket(plain, server_side=True)

    def accept(self) -> None:
        self._accepted.join(60)
        assert isinstance(self._server, ssl.SSLSocket)

    def close(self) -> None:
        self._listener.wakeup()
        self._accepted.join(60)
        super().close()


class Tls12World(TlsWorld):
    protocols = (TLS_1_2,)


class HesitantWorld(RealWorld):
    """The same over a socket that transfers a random number of bytes at a time."""

    def _channel_builder(self) -> ChannelBuilder:
        return HesitantChannelBuilder(super()._channel_builder(), random.Random(1))


class HesitantTlsWorld(TlsWorld):
    """The same, with TLS over that socket."""

    def _channel_builder(self) -> ChannelBuilder:
        return HesitantChannelBuilder(super()._channel_builder(), random.Random(1))


class HoldingWorld(RealWorld):
    """The same over a transport that accepts bytes and sends them later, in records."""

    def _channel_builder(self) -> ChannelBuilder:
        return HoldingChannelBuilder(None, random.Random(1), asks=False)

    def server_sends(self, payload: bytes) -> None:
        assert self._server is not None
        self._server.sendall(record(len(payload).to_bytes(4, "big") + payload))

    def server_received(self) -> list[bytes]:
        assert self._server is not None
        return frames(payload_of_records(self._server.recv(1 << 20)))


class FakeWorld(World):
    def __init__(self) -> None:
        self._fake = FakeSelectable()
        self.selectable = self._fake
        self.address = resolve("127.0.0.1", 9092)[0]

    def accept(self) -> None:
        assert self._fake.connects == [("0", self.address)]

    def server_sends(self, payload: bytes) -> None:
        self._fake.receive("0", payload)

    def server_received(self) -> list[bytes]:
        return self._fake.connections["0"].frames

    def server_closes(self) -> None:
        self._fake.lose("0")

    def server_stops_reading(self) -> None:
        self._fake.lagging.add("0")

    def server_reads_on(self, size: int) -> None:
        self._fake.lagging.clear()

    def close(self) -> None:
        self._fake.close()


WORLDS = (RealWorld, TlsWorld, Tls12World, HesitantWorld, HesitantTlsWorld, HoldingWorld, FakeWorld)


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with contextlib.closing(request.param()) as world:
        yield world


def test_a_connection_is_reported_in_one_poll_only(world: World) -> None:
    world.selectable.connect("0", world.address, -1, -1)
    assert not world.selectable.can_send("0")
    world.poll_until("connected")
    assert world.selectable.connected == ["0"]
    world.become_ready()
    world.selectable.poll(1)
    assert world.selectable.connected == []


def test_connection_id_cannot_be_used_twice(world: World) -> None:
    world.connect()
    with pytest.raises(RuntimeError, match="connection 0 already"):
        world.selectable.connect("0", world.address, -1, -1)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(RuntimeError, match="connection 0 already"):
        world.selectable.register("0", ours)


def test_a_frame_reaches_the_other_side_during_a_poll(world: World) -> None:
    world.connect()
    send = NetworkSend("0", REQUEST)
    world.selectable.send(send)
    assert not send.completed
    world.poll_until("completed_sends")
    assert world.selectable.completed_sends == [send]
    assert send.completed
    assert world.server_received() == [REQUEST_BYTES]
    world.selectable.poll(1)
    assert world.selectable.completed_sends == []


@pytest.mark.behaviour("TLS", "A frame larger than any buffer arrives whole")
def test_a_frame_larger_than_any_buffer_arrives_whole(world: World) -> None:
    world.connect()
    payload = bytes(range(256)) * 8192
    sender = threading.Thread(target=world.server_sends, args=[payload], daemon=True)
    sender.start()
    if isinstance(world, FakeWorld):
        sender.join(60)
    world.poll_until("completed_receives")
    sender.join(60)
    assert bytes(world.selectable.completed_receives[0].payload) == payload


def test_only_one_frame_may_wait_to_be_written(world: World) -> None:
    world.connect()
    world.selectable.send(NetworkSend("0", REQUEST))
    with pytest.raises(RuntimeError, match="not fully written"):
        world.selectable.send(NetworkSend("0", REQUEST))
    with pytest.raises(RuntimeError, match="no connection x"):
        world.selectable.send(NetworkSend("x", REQUEST))


def test_the_slot_is_free_when_the_frame_is_reported(world: World) -> None:
    world.connect()
    assert world.selectable.can_send("0")
    assert not world.selectable.can_send("x")
    for _ in range(3):
        send = NetworkSend("0", REQUEST)
        world.selectable.send(send)
        assert not world.selectable.can_send("0")
        world.poll_until("completed_sends")
        assert world.selectable.completed_sends == [send]
        assert world.selectable.can_send("0")


@pytest.mark.behaviour("KafkaChannel", "A connection takes the next frame when the last one has left the transport")
def test_the_next_frame_waits_for_a_peer_that_does_not_read(world: World) -> None:
    world.connect()
    world.server_stops_reading()
    size, is_stuck = 0, False
    while not is_stuck:
        assert world.selectable.can_send("0")
        send = NetworkSend("0", [*REQUEST, bytes(0 if isinstance(world, FakeWorld) else 70_000)])
        size += send.size
        world.selectable.send(send)
        is_stuck = not any(_completes(world, send) for _ in range(5))
    assert not world.selectable.can_send("0")
    world.server_reads_on(size)
    world.poll_until("completed_sends")
    assert world.selectable.can_send("0")


def _completes(world: World, send: NetworkSend) -> bool:
    world.selectable.poll(1)
    return world.selectable.completed_sends == [send]


@pytest.mark.behaviour("KSelector", "A poll hands out one frame of a connection, in order")
@pytest.mark.behaviour("KSelector", "A poll hands out one frame of a connection")
def test_frames_arrive_in_order_and_one_per_poll(world: World) -> None:
    world.connect()
    for payload in (b"a", b"b", b"c"):
        world.server_sends(payload)
    for payload in (b"a", b"b", b"c"):
        world.poll_until("completed_receives")
        [received] = world.selectable.completed_receives
        assert (received.source, bytes(received.payload)) == ("0", payload)
    world.selectable.poll(1)
    assert world.selectable.completed_receives == []


def test_mute_holds_frames_back_until_unmute(world: World) -> None:
    world.connect()
    world.selectable.mute("0")
    world.server_sends(b"a")
    for _ in range(3):
        world.selectable.poll(1)
        assert world.selectable.completed_receives == []
    world.selectable.unmute("0")
    world.poll_until("completed_receives")
    for call in (world.selectable.mute, world.selectable.unmute):
        with pytest.raises(RuntimeError, match="no connection x"):
            call("x")


def test_an_end_is_reported_with_its_cause_in_one_poll_only(world: World) -> None:
    world.connect()
    world.server_closes()
    world.poll_until("disconnected")
    assert world.selectable.disconnected["0"].cause == "closed by the other side"
    assert not world.selectable.is_open("0")
    assert not world.selectable.can_send("0")
    world.selectable.poll(1)
    assert world.selectable.disconnected == {}


def test_our_own_close_is_not_reported(world: World) -> None:
    world.connect()
    world.selectable.close_connection("0")
    world.selectable.close_connection("0")
    world.selectable.poll(1)
    assert world.selectable.disconnected == {}
    assert not world.selectable.is_open("0")
    world.selectable.connect("0", world.address, -1, -1)


@pytest.mark.behaviour("KSelector", "A wakeup lasts until the next poll")
def test_a_wakeup_lasts_until_the_next_poll(world: World) -> None:
    world.selectable.wakeup()
    world.selectable.poll(3_600_000)


def test_a_negative_timeout_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        world.selectable.poll(-1)
