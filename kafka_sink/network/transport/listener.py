"""A listening socket, for the accepting side.

Owned by one acceptor thread; any other thread may call :meth:`Listener.wakeup` and :meth:`Listener.close`. It accepts
and configures sockets and passes them on; it never reads from them.
"""

from __future__ import annotations

import errno
import selectors
import socket

from kafka_sink.common.threads import at_fork, no_forks
from kafka_sink.network.transport.resolver import SocketAddress, resolve
from kafka_sink.network.transport.transport import OS_DEFAULT_BUFFER, Socket, prepare_socket
from kafka_sink.network.transport.wakeup import Wakeup

_LONGEST_WAIT_MS = 2**31 - 1


class Listener:
    """Listens on *host*:*port* (port 0 = any free port, see :attr:`port`).

    The receive buffer is set on the listening socket, because accepted sockets must inherit it before TCP negotiates
    the window scale.

    :raises OSError: if the address cannot be bound; the text contains the address.
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
        self._socket = listening_socket(host, port, backlog=backlog, receive_buffer_bytes=receive_buffer_bytes)
        try:
            self._socket.setblocking(False)
            self._selector = selectors.DefaultSelector()
        except OSError:
            self._socket.close()
            raise
        self._wakeup = Wakeup()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        at_fork(self, Listener.close)

    @property
    def address(self) -> SocketAddress:
        """The address, with port 0 replaced by the port that was bound."""
        return local_address(self._socket)

    @property
    def port(self) -> int:
        return self.address.port

    def wait(self, timeout_ms: int) -> None:
        """Wait until a connection may be pending, until :meth:`wakeup`, or for *timeout_ms*."""
        self._selector.select(min(timeout_ms, _LONGEST_WAIT_MS) / 1000)
        self._wakeup.drain()

    def accept(self) -> Socket | None:
        """The next connection, configured as all connections; None if none is pending, or if the client has closed it.

        :raises OSError: if accept() fails (for example, too many open files); the connection stays pending.
        """
        with no_forks():
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return None
            # A forked child that kept its copy would leave the client waiting for answers after the parent has ended.
            at_fork(accepted, socket.socket.close)
        try:
            prepare_socket(accepted, self._send_buffer_bytes, OS_DEFAULT_BUFFER)
        except OSError as error:
            accepted.close()
            # macOS reports this for a connection that its client has already reset.
            if error.errno == errno.EINVAL:
                return None
            raise
        return accepted

    def wakeup(self) -> None:
        """End the current :meth:`wait`, or the next one."""
        self._wakeup.signal()

    def close(self) -> None:
        """Stop listening; pending connections are reset."""
        self._selector.close()
        self._wakeup.close()
        self._socket.close()


def listening_socket(
    host: str, port: int, *, backlog: int = 50, receive_buffer_bytes: int = OS_DEFAULT_BUFFER
) -> Socket:
    """A socket that listens on *host*:*port*, for a server that accepts on it.

    :raises OSError: if the address cannot be bound; the text contains the address.
    """
    address = resolve(host, port)[0]
    with no_forks():
        listening = socket.socket(address.family, socket.SOCK_STREAM)
        # A forked child that kept its copy would hold the port after the parent has closed it.
        at_fork(listening, socket.socket.close)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes != OS_DEFAULT_BUFFER:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(address.sockaddr)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    return listening


def local_address(sock: Socket) -> SocketAddress:
    return SocketAddress.of(sock.family, sock.getsockname())


def remote_address(sock: Socket) -> SocketAddress:
    """The address of the peer of *sock*. :raises OSError: if it is already disconnected."""
    return SocketAddress.of(sock.family, sock.getpeername())
