"""The node behind each connection: its name in messages, and why it cannot be reached.

Owned by one NetworkClient and its thread; only :meth:`Peers.failures` may be called from others. It hears what became
of connections and never opens or ends one.
"""

from __future__ import annotations

from kafka_sink.client.connection_states import ClusterConnectionStates, ConnectionFailure, ConnectionFailures
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node


class Peers:
    """See the module; *states* tells which connections there are now."""

    def __init__(self, states: ClusterConnectionStates, log: ContextLogger) -> None:
        self._states = states
        self._log = log
        self._failures = ConnectionFailures()
        #: By connection id.
        self._nodes: dict[str, Node] = {}

    def name(self, node_id: str) -> str:
        """What to call the node in messages."""
        node = self._nodes.get(node_id)
        return f"node {node_id}" if node is None else str(node)

    def connecting(self, node: Node) -> None:
        self._nodes[node.connection_id] = node

    def ready(self, node_id: str) -> None:
        """Its address can be reached."""
        node = self._nodes[node_id]
        self._failures.clear(node.host, node.port)
        self._log.debug("%s is ready", node)

    def lost(self, node_id: str, cause: str, *, was_ready: bool) -> None:
        """The connection is gone, or was never made.

        A failure to make one is news also while another one to that address lives on: that may be from before a
        certificate or a password went wrong.
        """
        node = self._nodes[node_id]
        if was_ready and self._is_connected_otherwise(node):
            return
        is_news = self._failures.record(node.host, node.port, cause)
        # A broker that stays away is tried again and again; once is enough to say so aloud.
        (self._log.warning if is_news else self._log.debug)("%s: %s", node, cause)

    def unresolved(self, host: str, port: int, cause: str) -> None:
        """There is nothing to connect to at that name."""
        self._failures.record(host, port, cause)

    def failures(self) -> tuple[ConnectionFailure, ...]:
        """The last cause per address that is not connected now. Any thread."""
        return self._failures.report()

    def failure(self, node: Node) -> ConnectionFailure | None:
        """Why *node*'s address cannot be reached; None when it can, or was not tried."""
        return next((f for f in self._failures.report() if (f.host, f.port) == (node.host, node.port)), None)

    def _is_connected_otherwise(self, node: Node) -> bool:
        """A bootstrap address and a broker's own are often one: losing the one connection does not lose the broker."""
        return any(
            other.host == node.host and other.port == node.port and self._states.is_connected(node_id)
            for node_id, other in self._nodes.items()
            if other.id != node.id
        )
