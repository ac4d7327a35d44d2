"""One network thread of the broker: reads requests from its connections and writes responses to them.

:meth:`Processor.run_once` is one iteration of the processor's own thread; acceptors pass connections with
:meth:`Processor.accept`, handlers pass responses with :meth:`Processor.enqueue_response`. The processor must only read
the headers of requests, and an error of a connection must not end it: that connection is closed, the others continue.
One request of a connection is processed at a time, so that its answers are sent in order; throttling mutes the
connection for longer.

Source: apache/kafka ``SocketServer.Processor``, ``KafkaChannel.ChannelMuteState``.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

from kafka_sink.broker.network.connection_quotas import ConnectionQuotas
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    EndThrottlingResponse,
    NoOpResponse,
    Request,
    RequestChannel,
    RequestContext,
    Response,
    SendResponse,
    StartThrottlingResponse,
)
from kafka_sink.broker.network.request_metrics import RequestMetrics
from kafka_sink.common.clock import FOREVER_MS, Clock, stopwatch_ns
from kafka_sink.common.errors import AuthenticationError, KafkaError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.network.channel.selectable import Selectable
from kafka_sink.network.frames import NetworkReceive, NetworkSend
from kafka_sink.network.transport.listener import local_address, remote_address
from kafka_sink.network.transport.transport import Socket
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_header

#: Capacity of the queue of accepted connections; if it is full, acceptors try another processor.
CONNECTION_QUEUE_SIZE: Final = 20
POLL_TIMEOUT_MS: Final = 300


class ServerSelectable(Selectable, Protocol):
    """A selectable that also selects the connection to close first, and measures its idle time."""

    @property
    def idle(self) -> IdleMeter: ...

    def lowest_priority_connection(self) -> str | None: ...

    def principal(self, connection_id: str) -> str:
        """The principal of the client: ``User:name``."""

    def begin_reauthentication(self, connection_id: str, request: NetworkReceive) -> bool:
        """Treat *request* as the beginning of a reauthentication; False if it is not one or comes too early."""

    def session_expired(self, connection_id: str) -> bool:
        """Whether the client's session has expired without reauthentication."""


@dataclass(frozen=True, slots=True)
class AcceptedConnection:
    """A connection on its way from the acceptor; *address* is the one under which it was counted."""

    sock: Socket
    address: str


@dataclass(slots=True)
class ClientConnection:
    """A connection of the client at *address*: not read while a request is *unanswered* or its client *throttled*.

    :raises RuntimeError: from every method, if the event is not possible now; nothing has changed.
    """

    address: str
    unanswered: bool = False
    throttled: bool = False

    @property
    def is_muted(self) -> bool:
        return self.unanswered or self.throttled

    def received(self) -> None:
        """A request was read."""
        self._check(not self.is_muted, "a request")
        self.unanswered = True

    def answered(self) -> None:
        """The request was answered, or needs no answer."""
        self._check(self.unanswered, "an answer")
        self.unanswered = False

    def throttle(self, *, begins: bool) -> None:
        """The throttling of the client *begins*, before the answer, or ends."""
        self._check(self.unanswered and not self.throttled if begins else self.throttled, "throttling")
        self.throttled = begins

    def _check(self, is_possible: bool, what: str) -> None:
        if not is_possible:
            raise RuntimeError(f"{what} is not possible now: {self}")


class Processor:
    """Owns a selector and every connection in it."""

    def __init__(
        self,
        processor_id: int,
        listener_name: str,
        selector: ServerSelectable,
        request_channel: RequestChannel,
        quotas: ConnectionQuotas,
        clock: Clock,
    ) -> None:
        #: Metrics of its requests; any thread may read them.
        self.request_metrics = RequestMetrics()
        #: Number of connections that were closed because their clients did not reauthenticate in time.
        self.expired_sessions = 0
        self._listener_name = listener_name
        self._selector = selector
        self._request_channel = request_channel
        self._quotas = quotas
        self._clock = clock
        self._log = ContextLogger(__name__, f"processor {processor_id} of {listener_name}")
        # Shared with acceptors.
        self._slots = threading.Condition()
        self._new_connections: deque[AcceptedConnection] = deque()
        self._stopping = False
        # Shared with handlers; a deque's append and popleft are atomic.
        self._responses: deque[Response] = deque()
        self._ended_running = False
        # Used only by the processor's own thread.
        self._connections: dict[str, ClientConnection] = {}
        self._inflight_responses: dict[str, SendResponse] = {}
        self._next_connection_index = 0

    # --- other threads -----------------------------------------------------------------------------------------------

    def accept(self, connection: AcceptedConnection, *, may_block: bool) -> bool:
        """Queue an accepted connection; False if the queue is full and *may_block* is not set.

        A connection that arrives after the processor was stopped is closed.
        """
        with self._slots:
            while len(self._new_connections) >= CONNECTION_QUEUE_SIZE and not self._stopping:
                if not may_block:
                    return False
                self._clock.wait(self._slots, FOREVER_MS)
            stopping = self._stopping
            if not stopping:
                self._new_connections.append(connection)
        if stopping:
            self._drop(connection)
        else:
            self._selector.wakeup()
        return True

    def enqueue_response(self, response: Response) -> None:
        self._responses.append(response)
        self._selector.wakeup()
        if self._ended_running:
            self._drop_responses()

    def stop(self) -> None:
        """Make :meth:`run` return."""
        with self._slots:
            self._stopping = True
            self._slots.notify_all()
        self._selector.wakeup()

    # --- the processor's thread --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Iterate until :meth:`stop`, then close every connection."""
        try:
            while not self._stopping:
                try:
                    self.run_once()
                except Exception:
                    self._log.exception("uncaught exception; the processor continues")
        finally:
            self._close_all()

    def run_once(self) -> None:
        """One iteration: the steps of Kafka's processor, in the same order."""
        self._configure_new_connections()
        self._process_new_responses()
        self._poll()
        self._process_completed_receives()
        self._process_completed_sends()
        self._process_disconnected()
        self._close_excess_connections()

    @property
    def idle_share(self) -> float:
        """The share of time in which the thread waits for events, from 0 to 1 (any thread)."""
        return self._selector.idle.share(stopwatch_ns())

    def _configure_new_connections(self) -> None:
        for _ in range(min(len(self._new_connections), CONNECTION_QUEUE_SIZE)):
            with self._slots:
                connection = self._new_connections.popleft()
                self._slots.notify()
            try:
                sock = connection.sock
                connection_id = f"{local_address(sock)}-{remote_address(sock)}-{self._next_connection_index}"
                self._selector.register(connection_id, sock)
            except Exception as error:
                # The connection may be closed already; an unregistered connection must not stay counted.
                self._log.info("connection of %s was lost immediately: %s", connection.address, error)
                self._drop(connection)
                continue
            self._next_connection_index = (self._next_connection_index + 1) % 2**31
            self._connections[connection_id] = ClientConnection(connection.address)

    def _drop(self, connection: AcceptedConnection) -> None:
        connection.sock.close()
        self._quotas.dec(self._listener_name, connection.address)

    def _process_new_responses(self) -> None:
        while self._responses:
            response = self._responses.popleft()
            response.request.response_dequeued_ns = stopwatch_ns()
            connection_id = response.request.context.connection_id
            try:
                self._process_response(connection_id, response)
            except Exception as error:
                self._process_channel_exception(connection_id, "processing a response", error)

    def _process_response(self, connection_id: str, response: Response) -> None:
        match response:
            case NoOpResponse():
                # There is no response to send, so the next pipelined request may be read.
                self._ended(response)
                response.request.release()
                self._answered(connection_id)
            case SendResponse():
                response.request.release()
                self._send_response(connection_id, response)
            case CloseConnectionResponse():
                self._ended(response)
                response.request.release()
                self._log.debug("closing %s: its request has no other response", connection_id)
                self._close(connection_id)
            case StartThrottlingResponse() | EndThrottlingResponse():
                connection = self._connections.get(connection_id)
                if connection is not None:
                    connection.throttle(begins=isinstance(response, StartThrottlingResponse))
                    self._unmute_unless_held(connection_id, connection)
            case _:
                raise TypeError(f"unknown kind of response: {type(response).__name__}")

    def _send_response(self, connection_id: str, response: SendResponse) -> None:
        if not self._selector.is_open(connection_id):
            self._log.debug("%s has disconnected; dropping its response", connection_id)
            self._ended(response)
            return
        try:
            # The connection is muted until its response was sent, so the slot is free.
            self._selector.send(NetworkSend(connection_id, response.segments, framed=response.is_whole))
        except BaseException:
            self._ended(response)
            raise
        self._inflight_responses[connection_id] = response

    def _poll(self) -> None:
        try:
            self._selector.poll(0 if self._new_connections else POLL_TIMEOUT_MS)
        except (OSError, RuntimeError):
            # Events that this poll has returned are processed nevertheless.
            self._log.exception("poll failed")

    def _process_completed_receives(self) -> None:
        for receive in self._selector.completed_receives:
            try:
                self._process_receive(receive)
            except Exception as error:
                receive.release()
                self._process_channel_exception(receive.source, "processing a request", error)

    def _process_receive(self, receive: NetworkReceive) -> None:
        connection = self._connections.get(receive.source)
        if connection is None or not self._selector.is_open(receive.source):
            raise RuntimeError(f"connection {receive.source} was closed before its request was handled")
        header, body_offset = decode_request_header(receive.payload)
        if header.api_key is ApiKey.SASL_HANDSHAKE and self._selector.begin_reauthentication(receive.source, receive):
            self._log.debug("%s re-authenticates", receive.source)
            return
        if self._selector.session_expired(receive.source):
            self.expired_sessions += 1
            raise AuthenticationError("its session has expired without re-authentication")
        principal = self._selector.principal(receive.source)
        context = RequestContext(header, receive.source, connection.address, self._listener_name, principal)
        request = Request(self, context, receive, body_offset, stopwatch_ns())
        self._request_channel.send_request(request)
        self._selector.mute(receive.source)
        connection.received()

    def _process_completed_sends(self) -> None:
        for send in self._selector.completed_sends:
            connection_id = send.destination
            try:
                response = self._inflight_responses.pop(connection_id, None)
                if response is None:
                    raise RuntimeError(f"a send to {connection_id} completed that was not in flight")
                self._ended(response)
                if response.is_whole:
                    self._answered(connection_id)
            except Exception as error:
                self._process_channel_exception(connection_id, "processing a completed send", error)

    def _process_disconnected(self) -> None:
        for connection_id, disconnect in self._selector.disconnected.items():
            # A failed authentication may be an attack, or a client with a wrong password.
            log = self._log.info if disconnect.authentication_error is not None else self._log.debug
            log("%s disconnected: %s", connection_id, disconnect.cause)
            self._forget(connection_id)

    def _close_excess_connections(self) -> None:
        if self._quotas.max_connections_exceeded(self._listener_name):
            connection_id = self._selector.lowest_priority_connection()
            if connection_id is not None:
                self._log.info("closing %s: there are too many connections", connection_id)
                self._close(connection_id)

    def _ended(self, response: NoOpResponse | SendResponse | CloseConnectionResponse) -> None:
        """The response was sent or dropped."""
        if not isinstance(response, SendResponse) or response.is_whole:
            self.request_metrics.record(response.request, stopwatch_ns())
        if isinstance(response, SendResponse):
            response.complete()

    # --- connections -------------------------------------------------------------------------------------------------

    def _answered(self, connection_id: str) -> None:
        connection = self._connections.get(connection_id)
        if connection is not None:
            connection.answered()
            self._unmute_unless_held(connection_id, connection)

    def _unmute_unless_held(self, connection_id: str, connection: ClientConnection) -> None:
        if not connection.is_muted:
            self._selector.unmute(connection_id)

    def _process_channel_exception(self, connection_id: str, doing: str, error: Exception) -> None:
        """Close the connection that caused *error*; errors of the peer are logged at info, internal errors at error."""
        if isinstance(error, KafkaError):
            self._log.info("closing %s: %s failed: %s", connection_id, doing, error)
        else:
            self._log.error("closing %s: %s failed", connection_id, doing, exc_info=error)
        self._close(connection_id)

    def _close(self, connection_id: str) -> None:
        self._selector.close_connection(connection_id)
        self._forget(connection_id)

    def _forget(self, connection_id: str) -> None:
        response = self._inflight_responses.pop(connection_id, None)
        if response is not None:
            self._ended(response)
        connection = self._connections.pop(connection_id, None)
        if connection is not None:
            self._quotas.dec(self._listener_name, connection.address)

    def _close_all(self) -> None:
        with self._slots:
            waiting = tuple(self._new_connections)
            self._new_connections.clear()
        for connection in waiting:
            self._drop(connection)
        for connection_id in tuple(self._connections):
            self._close(connection_id)
        self._selector.close()
        self._ended_running = True
        self._drop_responses()

    def _drop_responses(self) -> None:
        """Complete responses that will not be sent. Handlers may call this concurrently."""
        while True:
            try:
                response = self._responses.popleft()
            except IndexError:
                return
            if isinstance(response, SendResponse):
                response.complete()
