"""A known address that accepts connections and closes them is as unreachable as one that refuses them (KIP-899)."""

from __future__ import annotations

from kafka_sink.client.connection.connection_states import ClusterConnectionStates
from kafka_sink.common.clock import ExponentialBackoff
from kafka_sink.common.model import Node
from kafka_sink.network.transport.resolver import SocketAddress

NODE = Node(1, "a", 9092)


def test_a_peer_that_accepts_and_closes_is_unreachable() -> None:
    states = ClusterConnectionStates(
        ExponentialBackoff(50, 1000, jitter=0),
        ExponentialBackoff(1000, 1000, jitter=0),
        lambda host, port: [SocketAddress(2, host, port)],
    )
    for now_ms in (1000, 2000):
        states.connecting(NODE, now_ms)
        states.checking_api_versions("1")
        states.disconnected("1", now_ms)
    assert states.is_unreachable("1", 0), "else the client never returns to bootstrap.servers"


def test_one_lost_connection_that_worked_is_not_unreachable() -> None:
    states = ClusterConnectionStates(
        ExponentialBackoff(50, 1000, jitter=0),
        ExponentialBackoff(1000, 1000, jitter=0),
        lambda host, port: [SocketAddress(2, host, port)],
    )
    states.connecting(NODE, 1000)
    states.ready("1")
    states.answered("1")
    states.disconnected("1", 2000)
    assert not states.is_unreachable("1", 0)
