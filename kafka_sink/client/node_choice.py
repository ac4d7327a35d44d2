"""The choice of a node for a request that any node can answer.

Called by the NetworkClient, on its thread. A pure function without side effects.

Source: apache/kafka ``NetworkClient.leastLoadedNode``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_sink.client.connection_states import ClusterConnectionStates
from kafka_sink.client.in_flight_requests import InFlightRequests
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.model import Node


def least_loaded_node(
    nodes: Iterable[Node],
    now_ms: int,
    *,
    can_send_request: Callable[[str, int], bool],
    states: ClusterConnectionStates,
    in_flight: InFlightRequests,
) -> Node | None:
    """The first idle ready node of *nodes*, else the ready node with the fewest requests in flight, else a node whose
    connection is being set up, else the node whose last attempt is longest ago. None if no node can be used now."""
    ready: Node | None = None
    fewest = FOREVER_MS
    preparing: Node | None = None
    connectable: Node | None = None
    for node in nodes:
        node_id = node.connection_id
        if can_send_request(node_id, now_ms):
            count = in_flight.count(node_id)
            if count == 0:
                return node
            if count < fewest:
                ready, fewest = node, count
        elif states.is_preparing(node_id):
            preparing = node
        elif states.can_connect(node_id, now_ms) and (
            connectable is None or states.last_attempt_ms(node_id) < states.last_attempt_ms(connectable.connection_id)
        ):
            connectable = node
    return ready or preparing or connectable
