"""The node of each connection: its name in messages, and the reason why it cannot be reached.

Owned by one NetworkClient and used on its thread; other threads may only call :meth:`Peers.failures`. It records
connection events and never opens or closes a connection.
"""

from __future__ import annotations

from kafka_sink.client.connection.connection_states import (
    ClusterConnectionStates,
    ConnectionFailure,
    ConnectionFailures,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node


class Peers:
    """See the module; *states* contains the current connections."""

    def __init__(self, states: ClusterConnectionStates, log: ContextLogger) -> None:
        self._states = states
        self._log = log
        self._failures = ConnectionFailures()
        #: Nobody waits for a broker: the loss of a connection is no news. Set by any thread.
        self.is_resting = False
        #: By connection id.
        self._nodes: dict[str, Node] = {}

    def name(self, node_id: str) -> str:
        """The name of the node in messages."""
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
        self._failures.clear(node.host, node.port)
        self._log.debug("%s has answered", node)

    def lost(self, node_id: str, cause: str, *, was_ready: bool) -> None:
        """The connection was lost or was never established.

        A failed connection attempt is also recorded while another connection to that address is open: that connection
        may have been established before a certificate or password became invalid.
        """
        node = self._nodes[node_id]
        if was_ready and self._is_connected_otherwise(node):
            return
        is_news = self._failures.record(node.host, node.port, cause)
        # An unavailable broker is tried repeatedly; a repeated failure is only logged at debug level.
        (self._log.warning if is_news and not self.is_resting else self._log.debug)("%s: %s", node, cause)

    def unresolved(self, host: str, port: int, cause: str) -> None:
        """The name has no address to connect to."""
        self._failures.record(host, port, cause)

    def failures(self) -> tuple[ConnectionFailure, ...]:
        """The last failure of each address that is not connected now. May be called from any thread."""
        return self._failures.report()

    def failure(self, node: Node) -> ConnectionFailure | None:
        """The failure of *node*'s address; None if it can be reached or was not tried."""
        return next((f for f in self._failures.report() if (f.host, f.port) == (node.host, node.port)), None)

    def _is_connected_otherwise(self, node: Node) -> bool:
        """Whether another connection to the same address is open. A bootstrap address is often also the address of a
        broker, so the loss of one connection does not mean that the broker is lost."""
        return any(
            other.host == node.host and other.port == node.port and self._states.is_connected(node_id)
            for node_id, other in self._nodes.items()
            if node_id != node.connection_id
        )
