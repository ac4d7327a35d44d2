"""The network layer of one node: listeners, their acceptors and processors, and the request channels.

The node starts and stops it; it runs only the threads of acceptors and processors. It must not depend on handlers,
which receive requests from the request channels. :meth:`Acceptor.run_once` is one iteration of the thread of a
listener. An acceptor must not read from a connection, and an error of a connection must not end it.

Source: apache/kafka ``SocketServer`` and ``SocketServer.Acceptor``.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from kafka_sink.broker.authorizer import Users
from kafka_sink.broker.config import BrokerConfig, EndPoint
from kafka_sink.broker.network.connection_quotas import (
    ConnectionLimits,
    ConnectionQuotas,
    ConnectionThrottledError,
    TooManyConnectionsError,
)
from kafka_sink.broker.network.listener_security import ListenerSecurity
from kafka_sink.broker.network.processor import AcceptedConnection, Processor
from kafka_sink.broker.network.request_channel import RequestChannel
from kafka_sink.broker.network.request_metrics import request_figures
from kafka_sink.broker.network.sasl_authenticator import AnswerVersions
from kafka_sink.common.clock import Clock, stopwatch_ns
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.files import is_reserved_for_local
from kafka_sink.common.log_context import ContextLogger, Said
from kafka_sink.common.metrics import Family, Metric
from kafka_sink.common.threads import start_thread
from kafka_sink.network.frames import UNLIMITED_MEMORY_POOL, MemoryPool
from kafka_sink.network.polling.selector import KSelector, SelectorLimits
from kafka_sink.network.transport.listener import Listener, remote_address
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
        are reserved for logs, without which the broker serves no client, and for pages, which show the cause."""
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


CONTROL_PLANE_QUEUE_CAPACITY: Final = 20

_IDLE: Final = Family(
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    "Share of time, 0 to 1, that the network threads wait. Near 0 they are the bottleneck: num.network.threads.",
)
_EXPIRED: Final = Family(
    "socket-server-metrics",
    "expired-connections-killed-count",
    "Connections closed because their client sent requests after the end of its SASL session, without "
    "re-authentication.",
)
_CONNECTIONS: Final = Family(
    "socket-server-metrics",
    "connection-count",
    "Open connections of the listener. If it only grows, a client does not close its own.",
)
_QUEUED: Final = Family(
    "RequestChannel",
    "RequestQueueSize",
    "Requests that wait for a handler. If it stays above 0, the handlers are the bottleneck: num.io.threads.",
)
FAMILIES: Final = (_IDLE, _EXPIRED, _CONNECTIONS, _QUEUED)


class SocketServer:
    """Data planes (one per listener) and, if configured, the control plane."""

    def __init__(
        self,
        node: str,
        config: BrokerConfig,
        endpoints: list[EndPoint],
        users: Users,
        clock: Clock,
        answer_versions: AnswerVersions,
    ) -> None:
        """Does not open anything.

        :raises ConfigError: if the listeners contradict each other, one has no security protocol, or mechanisms are
            malformed; the certificates of a listener are loaded later.
        """
        names = [endpoint.listener_name for endpoint in endpoints]
        self.security = ListenerSecurity(config, names, users, clock, answer_versions)
        for option, name in (
            ("control.plane.listener.name", config.control_plane_listener_name),
            ("inter.broker.listener.name", config.inter_broker_listener_name),
        ):
            refuse_unknown_listeners(option, [name] if name else [], names)
        for name, count in Counter(names).items():
            if count > 1:
                raise ConfigError.of("listeners", f": {count} have the same name {name}; give each its own name")
        if config.control_plane_listener_name and len(names) == 1:
            raise ConfigError(
                "control.plane.listener.name: the only listener cannot be the control plane",
                option="control.plane.listener.name",
            )
        self._node = node
        self._config = config
        self._clock = clock
        self._endpoints = sorted(endpoints, key=lambda item: item.listener_name != config.inter_broker_listener_name)
        limits = ConnectionLimits.of(config)
        refuse_unknown_listeners("max.connections.per.listener", limits.per_listener, names)
        refuse_unknown_listeners("max.connection.creation.rate.per.listener", limits.creation_rate_per_listener, names)
        self.connection_quotas = ConnectionQuotas(limits, len(endpoints), clock)
        limit = config.queued_max_request_bytes
        self._memory_pool: MemoryPool = MemoryPool(limit) if limit > 0 else UNLIMITED_MEMORY_POOL
        self.data_plane_request_channel = RequestChannel(config.queued_max_requests)
        self.control_plane_request_channel = (
            RequestChannel(CONTROL_PLANE_QUEUE_CAPACITY) if config.control_plane_listener_name else None
        )
        # Guarded by the lock, which serializes startup and shutdown.
        self._lock = threading.Lock()
        self._acceptors: dict[str, Acceptor] = {}
        self._listeners: dict[str, Listener] = {}
        self._processors: list[Processor] = []
        self._acceptor_threads: list[threading.Thread] = []
        self._processor_threads: list[threading.Thread] = []

    def bind(self) -> None:
        """Open every listener, the control plane's first, without starting the threads.

        :raises OSError: if an address cannot be bound; :meth:`shutdown` closes the listeners opened before it.
        """
        control = self._config.control_plane_listener_name
        with self._lock:
            for endpoint in sorted(self._endpoints, key=lambda item: item.listener_name != control):
                if endpoint.listener_name == control and self.control_plane_request_channel is not None:
                    self._create_plane(endpoint, self.control_plane_request_channel, processors=1)
                else:
                    self._create_plane(
                        endpoint, self.data_plane_request_channel, processors=self._config.num_network_threads
                    )

    def _create_plane(self, endpoint: EndPoint, channel: RequestChannel, *, processors: int) -> None:
        config = self._config
        name = endpoint.listener_name
        first = len(self._processors)
        for number in range(first, first + processors):
            selector = self._selector(name)
            self._processors.append(Processor(number, name, selector, channel, self.connection_quotas, self._clock))
        # Opened last, because the acceptor closes it: invalid certificates must not leave a port bound.
        listener = Listener(
            endpoint.host,
            endpoint.port,
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        self._listeners[name] = listener
        self._acceptors[name] = Acceptor(name, listener, self._processors[first:], self.connection_quotas, self._clock)

    def _selector(self, listener_name: str) -> KSelector:
        config = self._config
        limits = SelectorLimits(
            max_receive_bytes=config.socket_request_max_bytes,
            memory_pool=self._memory_pool,
            connections_max_idle_ms=config.connections_max_idle_ms,
            failed_authentication_delay_ms=config.connection_failed_authentication_delay_ms,
            setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        )
        builder = self.security.channel_builder(listener_name, self._memory_pool)
        return KSelector(builder, self._clock, limits, log_context=f"listener {listener_name}")

    def start_processing_requests(self) -> None:
        """Start the threads, processors before acceptors."""
        with self._lock:
            self._processor_threads = [
                start_thread(f"{self._node}-processor-{processor_id}", processor.run)
                for processor_id, processor in enumerate(self._processors)
            ]
            self._acceptor_threads = [
                start_thread(f"{self._node}-acceptor-{name}", acceptor.run)
                for name, acceptor in self._acceptors.items()
            ]

    def bound_endpoint(self, listener_name: str) -> EndPoint:
        """The address of a listener, with port 0 replaced by the port that was bound."""
        listener = self._listeners[listener_name]
        host = next(item.host for item in self._endpoints if item.listener_name == listener_name)
        return EndPoint(listener_name, host, listener.port)

    def metrics(self, tags: tuple[tuple[str, str], ...]) -> Iterator[Metric]:
        """Present metrics: requests by API, idle network threads, connections and queued requests (any thread)."""
        processors = tuple(self._processors)
        yield from request_figures([one.request_metrics for one in processors], tags, stopwatch_ns())
        if processors:
            idle = sum(one.idle_share for one in processors) / len(processors)
            yield _IDLE.at(idle, *tags)
        expired = sum(one.expired_sessions for one in processors)
        yield _EXPIRED.at(expired, *tags)
        for listener, count in self.connection_quotas.counts().items():
            yield _CONNECTIONS.at(count, *tags, ("listener", listener))
        yield _QUEUED.at(self.data_plane_request_channel.queued, *tags)

    def shutdown(self) -> None:
        """Close listeners and connections and end all threads; outstanding responses are dropped."""
        with self._lock:
            self.connection_quotas.close()
            for acceptor in self._acceptors.values():
                acceptor.stop()
                if not self._acceptor_threads:
                    # Its thread was never started: this call closes its resources and returns.
                    acceptor.run()
            _join(self._acceptor_threads)
            for processor in self._processors:
                processor.stop()
                if not self._processor_threads:
                    processor.run()
            _join(self._processor_threads)
            self._acceptors.clear()
            self._processors.clear()


def refuse_unknown_listeners(option: str, named: Iterable[str], listeners: Sequence[str]) -> None:
    """:raises ConfigError: if *option* names a listener that is not in *listeners*."""
    for name in named:
        if name not in listeners:
            raise ConfigError.of(option, f": listener {name} does not exist, only {', '.join(listeners)}")


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
    threads.clear()
