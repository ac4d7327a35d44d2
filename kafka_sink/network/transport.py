"""What carries a channel's bytes: plain TCP here, TLS by another implementation of the same seam.

A transport belongs to one channel and to the thread of its selector. It never waits: reads and writes move what fits
now. It knows neither frames nor selectors; which events it has to see is what it answers, not what it registers.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from kafka_sink.network.resolver import SocketAddress

#: A connected socket, for the packages that hand sockets on and may not import the socket module.
Socket: TypeAlias = socket.socket

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

#: Take the operating system's own buffer size.
OS_DEFAULT_BUFFER: Final = -1


class TransportLayer(Protocol):
    """The bytes of one connection."""

    @property
    def is_connected(self) -> bool:
        """:meth:`finish_connect` has succeeded (always, on the accepting side)."""
        ...

    @property
    def ready(self) -> bool:
        """Connected, and the handshake (if there is one) is over: payload may flow."""
        ...

    @property
    def handshake_events(self) -> int:
        """Events the handshake waits for: :data:`READ`, :data:`WRITE` or both."""
        ...

    @property
    def peer_subject(self) -> str:
        """The subject of the certificate that the peer has shown, or nothing."""
        ...

    def fileno(self) -> int: ...

    def finish_connect(self) -> None:
        """Complete a connect that was begun.

        :raises OSError: it failed.
        """
        ...

    def handshake(self) -> None:
        """Get on with the handshake as far as is possible now.

        :raises OSError: it failed.
        """
        ...

    def read_into(self, target: memoryview) -> int:
        """Fill *target* from the front; less than its length only when nothing more is at hand now (then maybe 0).

        :raises EOFError: the other side has closed and everything it sent has been read.
        :raises OSError: the connection is broken.
        """
        ...

    def write(self, buffers: Sequence[memoryview]) -> int:
        """Take as many leading bytes of *buffers* as fit now; 0 when none do.

        :raises OSError: the connection is broken.
        """
        ...

    def has_bytes_buffered(self) -> bool:
        """Bytes wait inside the transport that no socket event will announce again."""
        ...

    def has_pending_writes(self) -> bool:
        """Bytes that have to leave wait inside the transport; :meth:`write`, be it of nothing, moves them.

        They are part of what was written, or the transport's own: a read may make some, and moves none.
        """
        ...

    def close(self) -> None: ...


class PlaintextTransport:
    """Bytes as they are over TCP. *connected* is False for a socket whose connect was only begun."""

    @property
    def handshake_events(self) -> int:
        return READ

    @property
    def peer_subject(self) -> str:
        return ""

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
            # OSError picks its subclass (ConnectionRefusedError, TimeoutError…) by the code.
            raise OSError(code, os.strerror(code))
        self._connected = True

    def handshake(self) -> None:
        """Plain TCP has none."""

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
    """Set what every connection of ours has: non-blocking, no delay, keep-alive, buffer sizes (−1 = the system's)."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes != OS_DEFAULT_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    if receive_buffer_bytes != OS_DEFAULT_BUFFER:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)


def begin_connect(address: SocketAddress, send_buffer_bytes: int, receive_buffer_bytes: int) -> Socket:
    """A non-blocking socket on its way to *address*; it becomes writable when it is there, be it at once.

    :raises OSError: refused at once; the socket is closed again.
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
