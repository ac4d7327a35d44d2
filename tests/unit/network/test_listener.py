"""Accepting sockets, and their options."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from kafka_sink.common.threads import start_thread
from kafka_sink.network.transport.listener import Listener, local_address, remote_address


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1", 0, send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
    yield made
    made.close()


def test_the_port_is_known_when_it_was_free_to_choose(listener: Listener) -> None:
    assert listener.port > 0 and listener.address.host == "127.0.0.1"


@pytest.mark.behaviour(
    "Broker connections", "Accepted sockets do not block, have no delay, keep alive and have the configured buffers"
)
def test_accepted_socket_is_nonblocking_with_configured_buffers(listener: Listener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port)) as client:
        listener.wait(10_000)
        accepted = listener.accept()
        assert accepted is not None
        with accepted:
            assert not accepted.getblocking()
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            # The system doubles the requested size, and copies the receive buffer's size from the listening socket.
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (50_000, 100_000)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (60_000, 120_000)
            assert remote_address(accepted).port == client.getsockname()[1]
            assert local_address(accepted).port == listener.port
    assert listener.accept() is None


@pytest.mark.behaviour("Package", "A write, a login over TLS and the embedded broker need nothing that macOS lacks")
def test_a_connection_that_was_reset_is_none_on_macos(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS refuses to set options of such a socket; Linux does not."""

    def refuse(code: int) -> None:
        def setsockopt(*arguments: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(socket.socket, "setsockopt", setsockopt)

    with socket.create_connection(("127.0.0.1", listener.port)):
        listener.wait(10_000)
        refuse(errno.EINVAL)
        assert listener.accept() is None
    with socket.create_connection(("127.0.0.1", listener.port)):
        listener.wait(10_000)
        refuse(errno.ENOBUFS)
        with pytest.raises(OSError, match=os.strerror(errno.ENOBUFS)):
            listener.accept()


def test_a_wakeup_ends_the_wait(listener: Listener) -> None:
    waiting = start_thread("waits", lambda: listener.wait(10_000))
    listener.wakeup()
    waiting.join(60)
    assert not waiting.is_alive()


@pytest.mark.behaviour("Broker connections", "An address in use is named")
def test_an_address_that_is_taken_is_named(listener: Listener) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{listener.port}"):
        Listener("127.0.0.1", listener.port)
