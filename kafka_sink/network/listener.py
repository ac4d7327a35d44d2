"""The accepting side: a bound, listening socket.

Owned by one acceptor thread; :meth:`Listener.wakeup` and :meth:`Listener.close` may come from any other. It accepts and
prepares sockets and hands them on; it never reads from them.
"""

from __future__ import annotations

import selectors
import socket

from kafka_sink.common.threads import at_fork
from kafka_sink.network.resolver import SocketAddress, resolve
from kafka_sink.network.transport import OS_DEFAULT_BUFFER, Socket, prepare_socket
from kafka_sink.network.wakeup import Wakeup

_LONGEST_WAIT_MS = 2**31 - 1


class Listener:
    """Listens on *host*:*port* (port 0 = any free one, see :attr:`port`).

    The receive buffer is set on the listening socket, because accepted ones inherit it before the window is agreed on.

    :raises OSError: the address cannot be bound; the text names it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        backlog: int = 50,
        send_buffer_bytes: int = OS_DEFAULT_BUFFER,
        receive_buffer_bytes: int = OS_DEFAULT_BUFFER,
    ) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        address = resolve(host, port)[0]
        self._socket = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if receive_buffer_bytes != OS_DEFAULT_BUFFER:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            self._socket.bind(address.sockaddr)
            self._socket.listen(backlog)
            self._socket.setblocking(False)
            self._selector = selectors.DefaultSelector()
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
        self._wakeup = Wakeup()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        # A child that kept its copies would have clients wait for answers when the parent is gone.
        at_fork(self, Listener.close)

    @property
    def address(self) -> SocketAddress:
        """Where it listens, with the port that was really bound."""
        return local_address(self._socket)

    @property
    def port(self) -> int:
        return self.address.port

    def wait(self, timeout_ms: int) -> None:
        """Return when a connection may be waiting, on :meth:`wakeup`, or after *timeout_ms*."""
        self._selector.select(min(timeout_ms, _LONGEST_WAIT_MS) / 1000)
        self._wakeup.drain()

    def accept(self) -> Socket | None:
        """The next connection, prepared as all of ours are; None when none is waiting.

        :raises OSError: the system refuses (too many open files, for instance); the connection stays in the queue.
        """
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        try:
            prepare_socket(accepted, self._send_buffer_bytes, OS_DEFAULT_BUFFER)
        except OSError:
            accepted.close()
            raise
        at_fork(accepted, socket.socket.close)
        return accepted

    def wakeup(self) -> None:
        """End the current :meth:`wait`, or the next one."""
        self._wakeup.signal()

    def close(self) -> None:
        """Stop listening; connections in the queue are reset."""
        self._selector.close()
        self._wakeup.close()
        self._socket.close()


def local_address(sock: Socket) -> SocketAddress:
    """Our end of *sock*."""
    return SocketAddress.of(sock.family, sock.getsockname())


def remote_address(sock: Socket) -> SocketAddress:
    """The other end of *sock*. :raises OSError: it is gone already."""
    return SocketAddress.of(sock.family, sock.getpeername())
