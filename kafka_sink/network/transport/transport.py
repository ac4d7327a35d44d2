"""The transport of a channel's bytes: plain TCP in this module, TLS in another implementation of the interface.

A transport belongs to one channel and to its selector's thread. It never blocks: reads and writes move as many bytes as
possible. It uses neither frames nor selectors; it reports the events that it waits for, but does not register them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from kafka_sink.network.transport.resolver import SocketAddress

#: A connected socket, for packages that pass sockets on and may not import the socket module.
Socket: TypeAlias = socket.socket

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: Use the operating system's default buffer size.
OS_DEFAULT_BUFFER: Final = -1


class TransportLayer(Protocol):
    """The bytes of one connection."""

    @property
    def is_connected(self) -> bool:
        """Whether :meth:`finish_connect` has succeeded (on the accepting side always true)."""

    @property
    def ready(self) -> bool:
        """Whether the connection and its handshake, if any, are complete, so that payload may be exchanged."""

    @property
    def handshake_events(self) -> int:
        """The events for which the handshake waits: :data:`READ`, :data:`WRITE` or both."""

    @property
    def peer_subject(self) -> str | None:
        """The subject of the peer's certificate, which may be empty; None if it has sent none."""

    def fileno(self) -> int: ...

    def finish_connect(self) -> None:
        """Complete a pending connect. :raises OSError: if it failed."""

    def handshake(self) -> None:
        """Continue the handshake as far as possible without blocking. :raises OSError: if it failed."""

    def read_into(self, target: memoryview) -> int:
        """Read into *target*; returns fewer bytes than its length only if no more are available now (possibly 0).

        :raises EOFError: if the peer has closed the connection and all its bytes were read.
        :raises OSError: if the connection failed.
        """

    def write(self, buffers: Sequence[memoryview]) -> int:
        """Write as many leading bytes of *buffers* as possible without blocking; 0 if none.

        :raises OSError: if the connection failed.
        """

    def has_bytes_buffered(self) -> bool:
        """Whether the transport has buffered incoming bytes that no socket event will announce again."""

    def has_pending_writes(self) -> bool:
        """Whether the transport has buffered outgoing bytes; :meth:`write`, even with no buffers, writes them.

        They are bytes of earlier writes, or of the transport's protocol: a read may produce such bytes, but does not
        write them.
        """

    def close(self) -> None: ...


class PlaintextTransport:
    """Unencrypted bytes over TCP. *connected* is False for a socket whose connect is pending."""

    @property
    def handshake_events(self) -> int:
        return READ

    @property
    def peer_subject(self) -> str | None:
        return None

    def __init__(self, sock: Socket, *, connected: bool) -> None:
        self._socket = sock
        self._connected = connected

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def ready(self) -> bool:
        return self._connected

    def fileno(self) -> int:
        return self._socket.fileno()

    def finish_connect(self) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            # OSError selects its subclass (ConnectionRefusedError, TimeoutError…) by the error code.
            raise OSError(code, os.strerror(code))
        self._connected = True

    def handshake(self) -> None:
        """Does nothing: plain TCP has no handshake."""

    def read_into(self, target: memoryview) -> int:
        try:
            count = self._socket.recv_into(target)
        except BlockingIOError:
            return 0
        if count == 0:
            raise EOFError("closed by the other side")
        return count

    def write(self, buffers: Sequence[memoryview]) -> int:
        try:
            return self._socket.sendmsg(buffers)
        except BlockingIOError:
            return 0

    def has_bytes_buffered(self) -> bool:
        return False

    def has_pending_writes(self) -> bool:
        return False

    def close(self) -> None:
        self._socket.close()


def prepare_socket(sock: Socket, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
    """Set the options of all connections: non-blocking, no delay, keep-alive, buffer sizes (−1 = system default)."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes != OS_DEFAULT_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes != OS_DEFAULT_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)


def begin_connect(address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int) -> Socket:
    """A non-blocking socket with a pending connect to *address*; it becomes writable when connected, possibly at once.

    :raises OSError: if the connect failed at once; the socket is closed again.
    """
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        prepare_socket(sock, send_buffer_bytes, receive_buffer_bytes)
        with contextlib.suppress(BlockingIOError):
            sock.connect(address.sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock
