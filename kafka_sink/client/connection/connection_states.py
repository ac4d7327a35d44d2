"""The state of the connection to each broker, the time from which the next attempt to connect is allowed, and the cause
of the last failure.

Owned by one NetworkClient and used on its thread, which reports events with their times; other threads may only call
:meth:`Peers.failures`. It never opens a connection and never reads a clock. The only blocking call is the resolver, at
the first connection to a node or when its addresses are looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_sink.common.clock import FOREVER_MS, ExponentialBackoff
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.network.transport.resolver import SocketAddress

Resolver = Callable[[str, int], Sequence[SocketAddress]]


class ConnectionState(Enum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking API versions"
    READY = "ready"


_CONNECTED: Final = frozenset({ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY})
_PREPARING: Final = frozenset({ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS})


@dataclass(slots=True, eq=False)
class _NodeState:
    """The connection to one node."""

    node: Node
    setup_timeout_ms: int
    reconnect_backoff_ms: int
    state: ConnectionState = ConnectionState.DISCONNECTED
    last_attempt_ms: int = -FOREVER_MS
    failed_attempts: int = 0
    failed_setups: int = 0
    has_answered: bool = False
    throttled_until_ms: int = 0
    addresses: Sequence[SocketAddress] = ()
    address_index: int = 0
    last_address: SocketAddress | None = None


class ClusterConnectionStates:
    """State, backoff, set-up time-out, throttling and addresses of every node (by connection id).

    Waits grow by powers of two with a jitter of 20 %: *reconnect_backoff* with every failure until a request is
    answered, *setup_timeout* with every attempt for which no connection was established.
    """

    def __init__(
        self, reconnect_backoff: ExponentialBackoff, setup_timeout: ExponentialBackoff, resolver: Resolver
    ) -> None:
        self._reconnect_backoff = reconnect_backoff
        self._setup_timeout = setup_timeout
        self._resolver = resolver
        self._nodes: dict[str, _NodeState] = {}
        # The nodes in state CONNECTING: they are few, and are checked in every poll.
        self._connecting: set[str] = set()

    def state(self, node_id: str) -> ConnectionState | None:
        peer = self._nodes.get(node_id)
        return None if peer is None else peer.state

    def can_connect(self, node_id: str, now_ms: int) -> bool:
        """Whether the node is disconnected and its backoff is over."""
        peer = self._nodes.get(node_id)
        if peer is None:
            return True
        is_over = now_ms - peer.last_attempt_ms >= peer.reconnect_backoff_ms
        return peer.state is ConnectionState.DISCONNECTED and is_over

    def is_ready(self, node_id: str, now_ms: int) -> bool:
        """Whether the connection is established, its API versions are known, and it is not throttled."""
        peer = self._nodes.get(node_id)
        return peer is not None and peer.state is ConnectionState.READY and now_ms >= peer.throttled_until_ms

    def is_connected(self, node_id: str) -> bool:
        return self.state(node_id) in _CONNECTED

    def is_preparing(self, node_id: str) -> bool:
        """Whether the connection is being set up."""
        return self.state(node_id) in _PREPARING

    def is_checking_api_versions(self, node_id: str) -> bool:
        """Whether the connection is established, and ApiVersions was sent and not answered."""
        return self.state(node_id) is ConnectionState.CHECKING_API_VERSIONS

    @property
    def is_any_connecting(self) -> bool:
        return bool(self._connecting)

    def is_disconnected(self, node_id: str) -> bool:
        """Whether the node was connected, or a connection was attempted, and it is not connected any more."""
        return self.state(node_id) is ConnectionState.DISCONNECTED

    def is_unreachable(self, node_id: str, since_ms: int) -> bool:
        """Whether the last attempt ended at or after *since_ms*, without a connection or again without an answer."""
        peer = self._nodes.get(node_id)
        return (
            peer is not None
            and peer.state is ConnectionState.DISCONNECTED
            and (peer.failed_setups > 0 or peer.failed_attempts > 1)
            and peer.last_attempt_ms >= since_ms
        )

    def last_attempt_ms(self, node_id: str) -> int:
        peer = self._nodes.get(node_id)
        return -FOREVER_MS if peer is None else peer.last_attempt_ms

    def poll_delay_ms(self, node_id: str, now_ms: int) -> int:
        """How long to wait for the node unless the network reports an event."""
        peer = self._nodes.get(node_id)
        if peer is None:
            return 0
        if peer.state is ConnectionState.CONNECTING:
            return peer.setup_timeout_ms
        if peer.state is ConnectionState.DISCONNECTED:
            return max(peer.last_attempt_ms + peer.reconnect_backoff_ms - now_ms, 0)
        return peer.throttled_until_ms - now_ms if peer.throttled_until_ms > now_ms else FOREVER_MS

    def nodes_with_setup_timeout(self, now_ms: int) -> list[tuple[str, int]]:
        """The nodes whose connection set-up has timed out, each with the time-out in ms."""
        states = ((node_id, self._nodes[node_id]) for node_id in self._connecting)
        return [
            (node_id, s.setup_timeout_ms) for node_id, s in states if now_ms - s.last_attempt_ms > s.setup_timeout_ms
        ]

    def time_to_setup_timeout_ms(self, now_ms: int) -> int:
        """The time until :meth:`nodes_with_setup_timeout` may return a node."""
        states = [self._nodes[node_id] for node_id in self._connecting]
        return max(min((s.last_attempt_ms + s.setup_timeout_ms + 1 for s in states), default=FOREVER_MS) - now_ms, 0)

    def connecting(self, node: Node, now_ms: int) -> SocketAddress:
        """Begin an attempt and return the address to connect to: the addresses of the host in turn, which are then
        looked up again. Of several, the one of the last attempt is never the next (apache/kafka KAFKA-15817).

        :raises OSError: if the name cannot be resolved; the attempt counts nevertheless.
        """
        node_id = node.connection_id
        peer = self._nodes.get(node_id)
        if peer is None or (peer.node.host, peer.node.port) != (node.host, node.port):
            peer = _NodeState(node, self._setup_timeout.backoff_ms(0), self._reconnect_backoff.backoff_ms(0))
            self._nodes[node_id] = peer
        peer.last_attempt_ms = now_ms
        peer.state = ConnectionState.CONNECTING
        self._connecting.add(node_id)
        peer.address_index += 1
        if peer.address_index >= len(peer.addresses):
            peer.addresses = ()
            peer.addresses = self._resolver(node.host, node.port)
            # The load balancer at this address may be gone, and the attempt would wait for the whole set-up time-out.
            peer.address_index = int(len(peer.addresses) > 1 and peer.addresses[0] == peer.last_address)
        peer.last_address = peer.addresses[peer.address_index]
        return peer.last_address

    def checking_api_versions(self, node_id: str) -> None:
        """The connection is established, and the API versions of the broker are requested."""
        peer = self._nodes[node_id]
        peer.state = ConnectionState.CHECKING_API_VERSIONS
        self._connecting.discard(node_id)
        self._reset_setup_timeout(peer)

    def ready(self, node_id: str) -> None:
        peer = self._nodes[node_id]
        peer.state = ConnectionState.READY
        self._connecting.discard(node_id)
        self._reset_setup_timeout(peer)

    def has_answered(self, node_id: str) -> bool:
        """Whether the broker has answered a request on this connection; ApiVersions does not count."""
        return self._nodes[node_id].has_answered

    def answered(self, node_id: str) -> None:
        """The broker has answered a request other than ApiVersions. Only then the backoff begins again at its first
        value: a listener that wants another security.protocol may answer ApiVersions and then close the connection."""
        peer = self._nodes[node_id]
        peer.has_answered = True
        peer.failed_attempts = 0
        peer.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(0)

    def disconnected(self, node_id: str, now_ms: int) -> None:
        """The connection was lost or was never established."""
        peer = self._nodes[node_id]
        peer.has_answered = False
        peer.last_attempt_ms = now_ms
        peer.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(peer.failed_attempts)
        peer.failed_attempts += 1
        if peer.state is ConnectionState.CONNECTING:
            peer.failed_setups += 1
            peer.setup_timeout_ms = self._setup_timeout.backoff_ms(peer.failed_setups)
        else:
            self._reset_setup_timeout(peer)
            # The connection worked until now, so the host may have moved: look its name up again.
            peer.addresses = ()
        self._connecting.discard(node_id)
        peer.state = ConnectionState.DISCONNECTED

    def throttle(self, node_id: str, until_ms: int) -> None:
        """Send no request to the node before *until_ms*; an earlier time does not shorten the current throttling."""
        peer = self._nodes.get(node_id)
        if peer is not None and peer.throttled_until_ms < until_ms:
            peer.throttled_until_ms = until_ms

    def _reset_setup_timeout(self, peer: _NodeState) -> None:
        peer.failed_setups = 0
        peer.setup_timeout_ms = self._setup_timeout.backoff_ms(0)


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """An address and its last failure."""

    host: str
    port: int
    cause: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}: {self.cause}"


class Peers:
    """The node of each connection: its name in messages, and the reason why it cannot be reached. It records events of
    the connections in *states* and never opens or closes one."""

    def __init__(self, states: ClusterConnectionStates, log: ContextLogger) -> None:
        self._states = states
        self._log = log
        # The dict is replaced and never modified, so readers need no lock.
        self._failures: dict[tuple[str, int], ConnectionFailure] = {}
        #: No caller waits for a broker, so the loss of a connection is only logged at debug level. Set by any thread.
        self.is_resting = False
        #: By connection id.
        self._nodes: dict[str, Node] = {}

    def name(self, node_id: str) -> str:
        node = self._nodes.get(node_id)
        return f"node {node_id}" if node is None else str(node)

    def node(self, node_id: str) -> Node:
        """The node that was connected to last under this id."""
        return self._nodes[node_id]

    def connecting(self, node: Node) -> None:
        self._nodes[node.connection_id] = node

    def answered(self, node_id: str) -> None:
        """The address of the node can be reached: it has answered the first request."""
        node = self._nodes[node_id]
        if (address := (node.host, node.port)) in self._failures:
            self._failures = {key: failure for key, failure in self._failures.items() if key != address}
        self._log.debug("%s has answered", node)

    def lost(self, node_id: str, cause: str, *, was_ready: bool) -> None:
        """The connection was lost or was never established.

        A failed connection attempt is also recorded while another connection to that address is open: that connection
        may have been established before a certificate or password became invalid.
        """
        node = self._nodes[node_id]
        if was_ready and self._is_connected_otherwise(node):
            return
        is_news = self.failed(node.host, node.port, cause)
        # An unavailable broker is tried repeatedly; a repeated failure is only logged at debug level.
        (self._log.warning if is_news and not self.is_resting else self._log.debug)("%s: %s", node, cause)

    def failed(self, host: str, port: int, cause: str) -> bool:
        """The address cannot be reached, or its name not resolved. True if the last *cause* was another one."""
        failure = ConnectionFailure(host, port, cause)
        if self._failures.get((host, port)) == failure:
            return False
        self._failures = {**self._failures, (host, port): failure}
        return True

    def failures(self) -> tuple[ConnectionFailure, ...]:
        """The last failure of each address that is not connected now. May be called from any thread."""
        return tuple(self._failures.values())

    def failure(self, node: Node) -> ConnectionFailure | None:
        """The failure of *node*'s address; None if it can be reached or was not tried."""
        return self._failures.get((node.host, node.port))

    def _is_connected_otherwise(self, node: Node) -> bool:
        """Whether another connection to the same address is open. A bootstrap address is often also the address of a
        broker, so the loss of one connection does not mean that the broker is lost."""
        return any(
            other.host == node.host and other.port == node.port and self._states.is_connected(node_id)
            for node_id, other in self._nodes.items()
            if node_id != node.connection_id
        )
