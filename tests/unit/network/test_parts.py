"""The small parts of the network: memory pool, idle expiry, delayed refusals, wakeup, socket events, resolver,
listener, causes, socket options."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from kafka_sink.common.errors import AuthenticationError, InvalidReceiveError
from kafka_sink.network.channel.channel import ChannelBuilder, KafkaChannel
from kafka_sink.network.channel.selectable import cause_of
from kafka_sink.network.frames import UNLIMITED, UNLIMITED_MEMORY_POOL, FrameReader, MemoryPool
from kafka_sink.network.polling.selector import DelayedRefusals, IdleExpiryManager, SocketEvents
from kafka_sink.network.transport.listener import Listener, local_address, remote_address
from kafka_sink.network.transport.resolver import SocketAddress, canonical_names, resolve
from kafka_sink.network.transport.transport import READ, begin_connect
from kafka_sink.network.transport.wakeup import Wakeup
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

# -- memory pool


def test_memory_pool_grants_while_any_byte_is_free() -> None:
    pool = MemoryPool(10)
    assert pool.try_reserve(9)
    assert pool.try_reserve(100)
    assert pool.available_bytes == -99
    assert pool.is_out_of_memory
    assert not pool.try_reserve(1)
    pool.release(100)
    assert not pool.is_out_of_memory
    assert pool.available_bytes == 1
    assert pool.low_memory_threshold_bytes == 1


def test_memory_pool_refuses_release_of_ungranted_bytes() -> None:
    pool = MemoryPool(10)
    with pytest.raises(RuntimeError, match="did not grant"):
        pool.release(1)
    with pytest.raises(ValueError, match="above zero"):
        MemoryPool(0)


def test_without_a_pool_everything_is_granted() -> None:
    assert UNLIMITED_MEMORY_POOL.try_reserve(2**40)
    UNLIMITED_MEMORY_POOL.release(1)
    assert not UNLIMITED_MEMORY_POOL.is_out_of_memory


# -- idle expiry


def test_longest_idle_connection_expires_first_one_at_a_time() -> None:
    idle = IdleExpiryManager(100)
    idle.update("a", 1000)
    idle.update("b", 1010)
    idle.update("a", 1020)
    assert idle.least_recently_active == "b"
    assert idle.poll_expired(1110) is None
    assert idle.poll_expired(1111) == "b"
    idle.remove("b")
    assert idle.poll_expired(1120) is None
    assert idle.poll_expired(1121) == "a"


def test_without_connections_nothing_expires() -> None:
    idle = IdleExpiryManager(100)
    assert idle.poll_expired(5000) is None
    idle.remove("never seen")
    assert idle.least_recently_active is None


# -- delayed refusals


@pytest.fixture
def peers() -> Iterator[list[socket.socket]]:
    """The other ends of the channels of :func:`make_channel`."""
    made: list[socket.socket] = []
    yield made
    for peer in made:
        peer.close()


def make_channel(peers: list[socket.socket], name: str = "a") -> KafkaChannel:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    peers.append(theirs)
    reader = FrameReader(name, UNLIMITED, UNLIMITED_MEMORY_POOL, memoryview(bytearray(100)))
    return ChannelBuilder().build_channel(name, ours, connected=True, reader=reader, peer_host="")


@pytest.mark.behaviour(
    "KSelector", "A refused client is told so, and closed after connection.failed.authentication.delay.ms"
)
def test_refused_clients_are_told_after_the_delay_in_order(peers: list[socket.socket]) -> None:
    clock = FakeClock(1000)
    refusals = DelayedRefusals(clock, 100)
    first, second, gone, other = (make_channel(peers, name) for name in "abcd")
    for channel in (first, gone, second):
        channel.refuse(AuthenticationError("wrong password"))
        assert refusals.add(channel)
        clock.advance(10)
    assert not refusals.add(other)
    refusals.discard(gone)
    assert refusals.wait_ms(3_600_000) == 70
    assert refusals.wait_ms(5) == 5
    assert refusals.take_due(1099) is None
    assert refusals.take_due(1100) is first
    assert refusals.take_due(1119) is None
    clock.advance(1000)
    assert refusals.wait_ms(3_600_000) == 0
    assert refusals.take_due(1120) is second
    assert refusals.take_due(10_000) is None
    assert refusals.wait_ms(3_600_000) == 3_600_000
    for channel in (first, second, gone, other):
        channel.close()


def test_without_a_delay_nobody_waits_for_a_refusal(peers: list[socket.socket]) -> None:
    refusals = DelayedRefusals(FakeClock(), 0)
    channel = make_channel(peers)
    channel.refuse(AuthenticationError("wrong password"))
    assert not refusals.add(channel)
    channel.close()


# -- wakeup and socket events


def readable(wakeup: Wakeup) -> bool:
    return bool(select.select([wakeup], [], [], 0)[0])


def test_a_signal_lasts_until_it_is_drained() -> None:
    wakeup = Wakeup()
    assert not readable(wakeup)
    for _ in range(100_000):
        wakeup.signal()
    assert readable(wakeup)
    wakeup.drain()
    assert not readable(wakeup)
    wakeup.drain()
    wakeup.signal()
    assert readable(wakeup)
    wakeup.close()
    wakeup.signal()


@pytest.mark.behaviour("KSelector", "A wakeup ends one wait of another thread")
def test_wakeup_ends_one_wait_and_is_not_an_event(peers: list[socket.socket]) -> None:
    events = SocketEvents()
    channel = make_channel(peers)
    events.register(channel)
    events.wakeup()
    assert events.wait(3_600_000) == []
    # A pending wakeup would end this wait before the byte arrives.
    sending = threading.Timer(0.05, peers[0].sendall, [b"x"])
    sending.start()
    assert events.wait(3_600_000) == [(channel, READ)]
    sending.join()
    events.unregister(channel)
    events.unregister(channel)
    assert events.wait(0) == []
    channel.close()
    events.close()


# -- resolver


def test_a_numeric_address_resolves_to_itself() -> None:
    assert resolve("127.0.0.1", 9092) == [SocketAddress(socket.AF_INET, "127.0.0.1", 9092)]
    assert str(resolve("127.0.0.1", 9092)[0]) == "127.0.0.1:9092"
    assert resolve("127.0.0.1", 9092)[0].sockaddr == ("127.0.0.1", 9092)


def test_an_ip6_address_keeps_its_brackets() -> None:
    with pytest.raises(OSError, match="not a host name"):
        resolve("localhost\0.evil", 9092)
    [address] = resolve("::1", 9092)
    assert (str(address), address.sockaddr) == ("[::1]:9092", ("::1", 9092, 0, 0))


def test_each_address_of_a_name_is_given_once_with_ipv4_first(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 1)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 1)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: entries)
    assert [address.host for address in resolve("broker", 1)] == ["10.0.0.1", "::1"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [])
    with pytest.raises(OSError, match="'broker': it has no IP address"):
        resolve("broker", 1)


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 64 + ".invalid", "..", "\udcff"])
def test_an_unknown_name_is_named_in_the_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def offline(host: str, *args: object, **kwargs: object) -> object:
        if host == "no-such-host.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    with pytest.raises(OSError, match="cannot resolve host name"):
        resolve(name, 1)


def test_canonical_names_come_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getnameinfo", lambda sockaddr, flags: (f"name-of-{sockaddr[0]}", "9"))
    assert canonical_names(resolve("127.0.0.1", 9)) == ["name-of-127.0.0.1"]


# -- listener and sockets


@pytest.fixture
def listener() -> Iterator[Listener]:
    subject = Listener("127.0.0.1", 0, receive_buffer_bytes=65536, send_buffer_bytes=65536)
    yield subject
    subject.close()


def test_a_listener_hands_out_prepared_connections(listener: Listener) -> None:
    assert listener.accept() is None
    client = begin_connect(listener.address, 4096, 4096)
    listener.wait(5000)
    accepted = listener.accept()
    assert accepted is not None
    assert remote_address(accepted) == local_address(client)
    assert local_address(accepted).port == listener.port
    for sock in (client, accepted):
        assert not sock.getblocking()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    # Linux doubles the requested size.
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (65536, 131072)
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (4096, 8192)
    client.close()
    accepted.close()


def test_a_listener_can_be_woken(listener: Listener) -> None:
    listener.wakeup()
    listener.wait(2**40)
    listener.wait(0)


def test_an_address_in_use_is_named(listener: Listener) -> None:
    with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{listener.port}: ") as caught:
        Listener("127.0.0.1", listener.port)
    assert caught.value.errno == errno.EADDRINUSE


# -- causes


@with_each(
    ("error", "text"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused"),
        (OSError(errno.ETIMEDOUT, "x"), "connection timed out"),
        (ConnectionResetError(), "connection reset by the other side"),
        (BrokenPipeError(), "connection reset by the other side"),
        (EOFError(), "closed by the other side"),
        (OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH)), "no route to host"),
        (OSError("cannot resolve host name 'x'"), "cannot resolve host name 'x'"),
        (InvalidReceiveError("frame of 9 bytes"), "frame of 9 bytes"),
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
    ],
)
def test_cause_of_an_error_is_in_words(error: Exception, text: str) -> None:
    assert cause_of(error) == text
