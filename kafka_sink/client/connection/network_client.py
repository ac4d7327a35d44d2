"""Requests to brokers and their answers, over one selector: Kafka's NetworkClient.

One thread (a producer's sender, an admin client's caller) drives it: ``ready`` → ``send`` → ``poll``. Other threads may
only use :meth:`NetworkClient.wakeup`, :meth:`NetworkClient.connection_failures` and the in-flight counters. It connects
to a node when ``ready`` is first called for it, negotiates API versions before any other request, keeps the metadata up
to date, and only waits in ``poll``. The answers to its internal requests are not returned to the caller.
"""

from __future__ import annotations

import random
from typing import Final

from kafka_sink.client.connection.api_versions import (
    ApiVersions,
    NodeApiVersions,
    VersionQuestions,
    allowed_versions,
    api_versions_request,
    throttle_ms,
)
from kafka_sink.client.connection.client_request import (
    BodyBuilder,
    ClientRequest,
    ClientResponse,
    InFlightRequest,
    InFlightRequests,
    ResponseCallback,
)
from kafka_sink.client.connection.connection_states import ClusterConnectionStates, ConnectionFailure, Peers, Resolver
from kafka_sink.client.connection.metadata_updater import MetadataUpdater
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.clock import FOREVER_MS, Clock, ExponentialBackoff
from kafka_sink.common.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.network.channel.selectable import CLOSED, RESET, ChannelState, Disconnect, Selectable, cause_of
from kafka_sink.network.frames import NetworkReceive, NetworkSend
from kafka_sink.network.transport.resolver import resolve
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response, encode_request
from kafka_sink.protocol.messages.connection import ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import MetadataResponse
from kafka_sink.protocol.schema import Struct

__all__ = ["ClientRequest", "ClientResponse", "ConnectionFailure", "NetworkClient"]

#: The ids from here to the end of int32 are reserved by Kafka for SASL exchanges.
_CORRELATION_IDS: Final = 2**31 - 8


class NetworkClient:
    """See the module; *config* contains the time-outs, backoffs, buffer sizes and the maximum number of requests in
    flight."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        selectable: Selectable,
        metadata_updater: MetadataUpdater,
        clock: Clock,
        client_id: str,
        resolver: Resolver = resolve,
    ) -> None:
        self._config = config
        self._selectable = selectable
        self._updater = metadata_updater
        self._clock = clock
        self._client_id = client_id
        self._log = ContextLogger(__name__, f"client.id={client_id}" if client_id else "")
        self.states = ClusterConnectionStates(
            ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            ExponentialBackoff(
                config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
            ),
            resolver,
        )
        self._in_flight = InFlightRequests(config.max_in_flight_requests_per_connection)
        #: The node of each connection; that of a bootstrap address without one is in its failures, too.
        self.peers = Peers(self.states, self._log)
        self._version_questions = VersionQuestions()
        self._aborted: list[ClientResponse] = []
        self._correlation_id = 0
        self._random = random.Random()
        self._is_closed = False
        self.api_versions = ApiVersions()

    def ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to *node* now; if not, starts a connection attempt if one is allowed."""
        if not node.host:
            raise ValueError(f"{node} has no address to connect to")
        if self.is_ready(node, now_ms):
            return True
        if self.states.can_connect(node.connection_id, now_ms):
            self.initiate_connect(node, now_ms)
        return False

    def is_ready(self, node: Node, now_ms: int) -> bool:
        """Whether a request may be sent to *node* now. False while a metadata update is due, which goes first."""
        return not self._updater.is_update_due(now_ms) and self.can_send_request(node.connection_id, now_ms)

    def can_send_request(self, node_id: str, now_ms: int) -> bool:
        """Whether the node is connected, its versions are known, it is not throttled, its send slot is free, and the
        limit of requests in flight is not reached."""
        return (
            self.states.is_ready(node_id, now_ms)
            and self._selectable.can_send(node_id)
            and self._in_flight.can_send_more(node_id)
        )

    def can_connect(self, node_id: str, now_ms: int) -> bool:
        """Whether the node is disconnected and its reconnect backoff is over."""
        return self.states.can_connect(node_id, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        """How long to wait for *node* unless the network reports an event: the backoff or throttle time."""
        return self.states.poll_delay_ms(node.connection_id, now_ms)

    def connection_failed(self, node: Node) -> bool:
        """Whether the connection to *node* was lost or could not be made, and no new attempt is in progress."""
        return self.states.is_disconnected(node.connection_id)

    def is_connected(self, node: Node) -> bool:
        """Whether the connection to *node* is established; the broker may not have answered yet."""
        return self.states.is_connected(node.connection_id)

    def connection_failures(self) -> tuple[ConnectionFailure, ...]:
        """The last failure of each address that is not connected now. May be called from any thread."""
        return self.peers.failures()

    def rest(self, *, is_resting: bool) -> None:
        """Set whether no caller waits for a broker, so that a lost connection is no warning. Any thread may call it."""
        self.peers.is_resting = is_resting

    def least_loaded_node(self, now_ms: int) -> Node | None:
        """The node for a request that any node can answer: an idle ready node, else the ready node with the fewest
        requests in flight, else a node whose connection is being set up, else the node whose last attempt is longest
        ago. None if no node can be used now."""
        nodes = self._updater.nodes()
        offset = self._random.randrange(len(nodes)) if nodes else 0
        ready: Node | None = None
        fewest = FOREVER_MS
        preparing: Node | None = None
        connectable: Node | None = None
        for node in nodes[offset:] + nodes[:offset]:
            node_id = node.connection_id
            if self.can_send_request(node_id, now_ms):
                count = self._in_flight.count(node_id)
                if count == 0:
                    return node
                if count < fewest:
                    ready, fewest = node, count
            elif self.states.is_preparing(node_id):
                preparing = node
            elif self.states.can_connect(node_id, now_ms) and (
                connectable is None
                or self.states.last_attempt_ms(node_id) < self.states.last_attempt_ms(connectable.connection_id)
            ):
                connectable = node
        return ready or preparing or connectable

    def initiate_connect(self, node: Node, now_ms: int) -> None:
        """Start to connect in any state; an immediate failure is handled like a later one."""
        node_id = node.connection_id
        self.peers.connecting(node)
        try:
            address = self.states.connecting(node, now_ms)
            self._log.debug("connecting to %s (%s)", node, address)
            self._selectable.connect(
                node_id, address, self._config.send_buffer_bytes, self._config.receive_buffer_bytes
            )
        except OSError as error:
            self.states.disconnected(node_id, now_ms)
            self.peers.lost(node_id, cause_of(error), was_ready=False)
            self._updater.handle_server_disconnect(now_ms, None)

    def new_request(
        self,
        destination: Node | str,
        api_key: ApiKey,
        build: BodyBuilder,
        now_ms: int,
        *,
        max_version: int | None = None,
        expect_response: bool = True,
        timeout_ms: int | None = None,
        callback: ResponseCallback | None = None,
    ) -> ClientRequest:
        """Create a request; *build* gets the version negotiated with the broker. Nothing is sent yet."""
        correlation_id = self._correlation_id
        self._correlation_id = (correlation_id + 1) % _CORRELATION_IDS
        return ClientRequest(
            destination=destination.connection_id if isinstance(destination, Node) else destination,
            api_key=api_key,
            build=build,
            correlation_id=correlation_id,
            created_ms=now_ms,
            expect_response=expect_response,
            timeout_ms=self._config.request_timeout_ms if timeout_ms is None else timeout_ms,
            max_version=max_version,
            callback=callback,
        )

    def send(self, request: ClientRequest, now_ms: int) -> None:
        """Queue *request*; the following polls write it and return its outcome.

        :raises RuntimeError: if its node is not ready (see :meth:`ready`).
        """
        self._ensure_open()
        if not self.can_send_request(request.destination, now_ms):
            raise RuntimeError(f"attempt to send a request to node {request.destination} which is not ready")
        mismatch = self._dispatch(request, now_ms, is_internal=False)
        if mismatch is not None:
            self._aborted.append(ClientResponse(request, now_ms, version_mismatch=mismatch, cause=str(mismatch)))

    def send_internal(self, node_id: str, api_key: ApiKey, build: BodyBuilder, now_ms: int) -> None:
        """Send an internal request, without the readiness check; ``poll`` does not return its answer."""
        request = self.new_request(node_id, api_key, build, now_ms)
        mismatch = self._dispatch(request, now_ms, is_internal=True)
        if mismatch is not None and api_key is ApiKey.METADATA:
            self._updater.handle_failed_request(now_ms, mismatch)

    def _dispatch(self, request: ClientRequest, now_ms: int, *, is_internal: bool) -> UnsupportedVersionError | None:
        node_id = request.destination
        versions = self.api_versions.get(node_id)
        try:
            if versions is None:
                # Only ApiVersions itself is sent before the versions are known.
                version = allowed_versions(request.api_key, request.max_version).max
            else:
                version = versions.latest_usable_version(request.api_key, request.max_version)
            body = request.build(version)
            segments = encode_request(request.api_key, version, request.correlation_id, self._client_id, body)
        except UnsupportedVersionError as error:
            named = UnsupportedVersionError(f"{self.peers.name(node_id)}: {error}")
            self._log.debug("not sending %s: %s", request, named)
            return named
        # A Sender has sent all that it has before it polls; other callers send the next request after this one.
        is_awaited = request.api_key is not ApiKey.PRODUCE or not request.expect_response
        send = NetworkSend(node_id, segments, ends_poll=is_awaited)
        self._log.debug("sending %s (version %d, %d bytes) to %s", request, version, send.size, node_id)
        self._in_flight.add(InFlightRequest(request, version, is_internal, now_ms))
        self._selectable.send(send)
        return None

    def in_flight_request_count(self, node_id: str | None = None) -> int:
        """The number of requests in flight to one node or to all, internal ones included (any thread)."""
        return self._in_flight.count(node_id)

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        """Write, read, connect and handle time-outs for at most *timeout_ms*. Returns the completed requests after
        their callbacks were called."""
        self._ensure_open()
        if self._aborted:
            # These requests were never sent, so there is no reason to wait for the network.
            aborted, self._aborted = self._aborted, []
            return self._complete(aborted)
        metadata_ms = self._updater.maybe_update(self, now_ms)
        try:
            self._selectable.poll(min(timeout_ms, metadata_ms, self._time_to_next_timeout_ms(now_ms)))
        except OSError:
            self._log.exception("polling the network failed")
        # Time has passed during the poll.
        now_ms = self._clock.monotonic_ms()
        responses: list[ClientResponse] = []
        self._handle_completed_sends(responses, now_ms)
        self._handle_completed_receives(responses, now_ms)
        self._handle_disconnections(responses, now_ms)
        for node_id in self._selectable.connected:
            # Not ready before the broker's API versions are known, which are requested after the handshake.
            self._version_questions.add(node_id)
        self._initiate_api_versions_requests(now_ms)
        for node_id, timeout_ms in self.states.nodes_with_setup_timeout(now_ms):
            cause = f"connection timed out: not established within {timeout_ms} ms"
            self._drop(node_id, cause, responses, now_ms, ChannelState.NOT_CONNECTED)
        self._handle_timed_out_requests(responses, now_ms)
        if self._updater.is_rebootstrap_due(now_ms):
            self._rebootstrap(responses, now_ms)
        return self._complete(responses)

    def _time_to_next_timeout_ms(self, now_ms: int) -> int:
        return min(
            self._config.request_timeout_ms,
            self._in_flight.time_to_next_timeout_ms(now_ms),
            self.states.time_to_setup_timeout_ms(now_ms),
        )

    def wakeup(self) -> None:
        """End the current poll, or the next one if none is running. May be called from any thread."""
        self._selectable.wakeup()

    def close(self) -> None:
        """Close all connections; requests in flight are dropped without a callback. Closing again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._selectable.close()
            self._updater.close()

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called. May be called from any thread."""
        return self._is_closed

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the network client is closed")

    def _complete(self, responses: list[ClientResponse]) -> list[ClientResponse]:
        for response in responses:
            if response.request.callback is not None:
                try:
                    response.request.callback(response)
                except Exception:
                    self._log.exception("the callback of %s failed", response.request)
        return responses

    def _handle_completed_sends(self, responses: list[ClientResponse], now_ms: int) -> None:
        for send in self._selectable.completed_sends:
            if not self._in_flight.count(send.destination):
                # The answer was processed first: TLS data behind the frame kept the send slot occupied.
                continue
            request = self._in_flight.last_sent(send.destination).request
            if not request.expect_response:
                self._in_flight.complete_last_sent(send.destination)
                responses.append(ClientResponse(request, now_ms))

    def _handle_completed_receives(self, responses: list[ClientResponse], now_ms: int) -> None:
        for receive in self._selectable.completed_receives:
            if not self._in_flight.count(receive.source):
                self._drop(receive.source, "the broker sent a response without a request in flight", responses, now_ms)
                continue
            entry = self._in_flight.complete_next(receive.source)
            try:
                body = _decode(entry, receive)
            except ProtocolError as error:
                cause = f"the broker's response cannot be decoded: {error}"
                self._cancel(entry, Disconnect(ChannelState.LOCAL_CLOSE, cause), responses, now_ms)
                self._drop(receive.source, cause, responses, now_ms)
                continue
            pause_ms = throttle_ms(entry.request.api_key, entry.version, body)
            if pause_ms > 0:
                self.states.throttle(receive.source, now_ms + pause_ms)
                self._log.debug("throttled by %s for %d ms", self.peers.name(receive.source), pause_ms)
            if entry.request.api_key is not ApiKey.API_VERSIONS and not self.states.has_answered(receive.source):
                self.states.answered(receive.source)
                self.peers.answered(receive.source)
            if not entry.is_internal:
                responses.append(ClientResponse(entry.request, now_ms, body=body))
            elif isinstance(body, MetadataResponse):
                self._updater.handle_response(body, entry.version, now_ms)
            elif isinstance(body, ApiVersionsResponse):
                self._handle_api_versions(entry, body, responses, now_ms)

    def _handle_api_versions(
        self, entry: InFlightRequest, body: ApiVersionsResponse, responses: list[ClientResponse], now_ms: int
    ) -> None:
        node_id = entry.request.destination
        code = ErrorCode.of(body.error_code)
        if code is ErrorCode.NONE:
            self._version_questions.answered(node_id, body)
            self.api_versions.update(node_id, NodeApiVersions.of(body))
            self.states.ready(node_id)
        elif not self._version_questions.add_again(node_id, entry.version, body):
            self._drop(node_id, f"the broker refused the ApiVersions request: {code.name}", responses, now_ms)

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id, disconnect in list(self._selectable.disconnected.items()):
            if self._is_closed_at_version(node_id, disconnect):
                self._ask_older_version(node_id, now_ms)
            else:
                self._process_disconnection(node_id, disconnect, responses, now_ms)

    def _is_closed_at_version(self, node_id: str, disconnect: Disconnect) -> bool:
        """Whether the peer has closed the connection at a version of ApiVersions, and an older one can be tried."""
        is_asked = self.states.is_checking_api_versions(node_id) and self._in_flight.count(node_id) > 0
        if not is_asked or disconnect.cause not in (CLOSED, RESET):
            return False
        return self._version_questions.closed(node_id, self._in_flight.last_sent(node_id).version)

    def _ask_older_version(self, node_id: str, now_ms: int) -> None:
        """Connect again at once: to callers that wait for the connection, it is still being established."""
        node = self.peers.node(node_id)
        self._log.debug("%s has closed the connection at ApiVersions: asking an older version", node)
        self._in_flight.clear_all(node_id)
        self.states.disconnected(node_id, now_ms)
        self.initiate_connect(node, now_ms)

    def _initiate_api_versions_requests(self, now_ms: int) -> None:
        for node_id, version in self._version_questions.waiting:
            if self._selectable.can_send(node_id) and self._in_flight.can_send_more(node_id):
                self._version_questions.remove(node_id)
                self.states.checking_api_versions(node_id)
                request = self.new_request(
                    node_id, ApiKey.API_VERSIONS, api_versions_request, now_ms, max_version=version
                )
                self._dispatch(request, now_ms, is_internal=True)

    def _handle_timed_out_requests(self, responses: list[ClientResponse], now_ms: int) -> None:
        for node_id, late in self._in_flight.nodes_with_timed_out_requests(now_ms):
            # Answers arrive in order, so no answer after a missing one can be matched.
            cause = f"{late.request} was not answered within {late.request.timeout_ms} ms"
            self._drop(node_id, cause, responses, now_ms)

    def _rebootstrap(self, responses: list[ClientResponse], now_ms: int) -> None:
        """Disconnect from all known brokers: the same id may belong to another broker at another address by now."""
        for node in self._updater.nodes():
            if self.states.is_preparing(node.connection_id) or self.states.is_connected(node.connection_id):
                self._drop(node.connection_id, "closed to start again from bootstrap.servers", responses, now_ms)
        self._updater.rebootstrap(now_ms)

    def _drop(
        self,
        node_id: str,
        cause: str,
        responses: list[ClientResponse],
        now_ms: int,
        state: ChannelState = ChannelState.LOCAL_CLOSE,
    ) -> None:
        """Close a connection locally and handle it as lost."""
        self._selectable.close_connection(node_id)
        self._process_disconnection(node_id, Disconnect(state, cause), responses, now_ms)

    def _process_disconnection(
        self, node_id: str, disconnect: Disconnect, responses: list[ClientResponse], now_ms: int
    ) -> None:
        hint = ""
        is_unanswered = not self.states.has_answered(node_id) and self._in_flight.count(node_id) > 0
        is_refusal = is_unanswered or self.states.is_preparing(node_id)
        if disconnect.cause in (CLOSED, RESET) and is_refusal:
            option, protocol = self._config.option("security.protocol"), self._config.security_protocol
            hint = f" before it answered any request; check that {option}={protocol} is the protocol of that listener"
        self.states.disconnected(node_id, now_ms)
        self.api_versions.remove(node_id)
        self._version_questions.remove(node_id)
        if disconnect.state is not ChannelState.EXPIRED:
            self.peers.lost(node_id, disconnect.cause + hint, was_ready=not is_refusal)
        for entry in self._in_flight.clear_all(node_id):
            self._cancel(entry, disconnect, responses, now_ms)
        self._updater.handle_server_disconnect(now_ms, disconnect.authentication_error)

    def _cancel(
        self, entry: InFlightRequest, disconnect: Disconnect, responses: list[ClientResponse], now_ms: int
    ) -> None:
        if not entry.is_internal:
            cause = f"{self.peers.name(entry.request.destination)}: {disconnect.cause}"
            error = disconnect.authentication_error
            responses.append(
                ClientResponse(entry.request, now_ms, disconnected=True, authentication_error=error, cause=cause)
            )
        elif entry.request.api_key is ApiKey.METADATA:
            self._updater.handle_failed_request(now_ms, None)


def _decode(entry: InFlightRequest, receive: NetworkReceive) -> Struct:
    """The answer to *entry*. :raises ProtocolError: if the frame is not an answer to it."""
    request = entry.request
    correlation_id, body = decode_response(request.api_key, entry.version, receive.payload)
    if correlation_id != request.correlation_id:
        raise ProtocolError(f"the response to {request} has the correlation id {correlation_id}")
    return body
