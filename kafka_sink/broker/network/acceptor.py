"""The thread that accepts connections on a listener and assigns them to processors.

:meth:`Acceptor.run_once` is one iteration of its own thread. The acceptor must not read from a connection, and an error
of a connection must not end it.

Source: apache/kafka ``SocketServer.Acceptor``.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from kafka_sink.broker.network.connection_quotas import (
    ConnectionQuotas,
    ConnectionThrottledError,
    TooManyConnectionsError,
)
from kafka_sink.broker.network.processor import AcceptedConnection, Processor
from kafka_sink.common.clock import Clock
from kafka_sink.common.files import is_reserved_for_local
from kafka_sink.common.log_context import ContextLogger, Said
from kafka_sink.network.transport.listener import remote_address
from kafka_sink.network.transport.transport import Socket

SELECT_TIMEOUT_MS: Final = 500
#: Connections accepted per iteration: under a flood of connections, throttled ones still have to be closed in time.
_ACCEPTED_A_ROUND: Final = 64
#: Pause after accept() fails (no file descriptors left): the connection stays pending, so select would return at once.
_REFUSED_PAUSE_MS: Final = 100


class ListeningSocket(Protocol):
    """The part of ``network.listener.Listener`` that the acceptor uses."""

    def wait(self, timeout_ms: int) -> None: ...

    def accept(self) -> Socket | None: ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...


class Acceptor:
    """Accepts on one listener and assigns connections to several processors, round-robin."""

    def __init__(
        self,
        listener_name: str,
        listener: ListeningSocket,
        processors: Sequence[Processor],
        quotas: ConnectionQuotas,
        clock: Clock,
    ) -> None:
        self._listener_name = listener_name
        self._listener = listener
        self._quotas = quotas
        self._clock = clock
        self._log = ContextLogger(__name__, f"acceptor {listener_name}")
        self._lock = threading.Condition()
        self._stopping = False
        # Used only by the acceptor's own thread.
        self._processor_count = len(processors)
        self._processors = itertools.cycle(processors)
        self._throttled: list[tuple[int, int, Socket]] = []
        self._sequence = itertools.count()
        self._told = Said()

    def stop(self) -> None:
        """Make :meth:`run` return."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        self._listener.wakeup()

    def run(self) -> None:
        """Iterate until :meth:`stop`, then close the listener."""
        try:
            while not self._stopping:
                try:
                    self.run_once()
                except Exception:
                    self._log.exception("uncaught exception; the acceptor continues")
        finally:
            self._listener.close()
            for _, _, sock in self._throttled:
                sock.close()
            self._throttled.clear()

    def run_once(self) -> None:
        """Accept pending connections, then close throttled connections that are due."""
        self._accept_new_connections()
        now_ms = self._clock.monotonic_ms()
        while self._throttled and self._throttled[0][0] < now_ms:
            heapq.heappop(self._throttled)[-1].close()

    def _accept_new_connections(self) -> None:
        self._listener.wait(SELECT_TIMEOUT_MS)
        for _ in range(_ACCEPTED_A_ROUND):
            if self._stopping:
                return
            try:
                sock = self._listener.accept()
            except OSError as error:
                self._tell_once(f"cannot accept connections: {error}; they wait until that is possible")
                with self._lock:
                    self._clock.wait(self._lock, _REFUSED_PAUSE_MS)
                return
            if sock is None:
                return
            connection = self._admit(sock)
            if connection is not None:
                self._assign(connection)

    def _tell_once(self, text: str) -> None:
        if self._told.is_new(text):
            self._log.warning("%s", text)

    def _admit(self, sock: Socket) -> AcceptedConnection | None:
        """Count the connection; None if it is rejected or has to be closed later. The last descriptors of the process
        are kept: a broker without logs cannot serve anybody, and one without pages does not say why."""
        try:
            address = remote_address(sock).host
        except OSError:
            sock.close()
            return None
        if is_reserved_for_local(sock.fileno()):
            sock.close()
            self._tell_once(
                "rejecting connections: almost all files that this process may open are in use; close idle clients, or "
                "raise the limit (ulimit -n)"
            )
            return None
        try:
            self._quotas.inc(self._listener_name, address)
        except TooManyConnectionsError as error:
            self._log.info("rejecting a connection: %s", error)
            sock.close()
            self._quotas.dec(self._listener_name, address)
            return None
        except ConnectionThrottledError as error:
            self._log.debug("%s", error)
            end_ms = self._clock.monotonic_ms() + error.throttle_ms
            heapq.heappush(self._throttled, (end_ms, next(self._sequence), sock))
            return None
        return AcceptedConnection(sock, address)

    def _assign(self, connection: AcceptedConnection) -> None:
        """Pass it to the next processor with a free slot; if there is none, wait for the last processor tried."""
        tries = itertools.count(1)
        while not next(self._processors).accept(connection, may_block=next(tries) >= self._processor_count):
            continue
