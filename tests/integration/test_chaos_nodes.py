"""The networks that scripts/chaos.sh cuts: whom a fault concerns, and that it heals."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.network import Network
from tests.chaos.nodes import Channel, NodeNetwork, Place
from tests.support.ports import free_ports
from tests.support.waiting import until

NODES = (1, 2, 3)
LIMIT_S = 60.0


class Cluster:
    """Nodes that send back what they are sent, and the network between them."""

    def __init__(self) -> None:
        self._listening = {
            (channel, node): socket.create_server(("127.0.0.1", 0)) for channel in Channel for node in NODES
        }
        self.fronts = {place: free_ports() for place in self._listening}
        self.network = NodeNetwork(
            {self.fronts[place]: Place(*place, each.getsockname()[1]) for place, each in self._listening.items()}
        )

    def serve(self) -> None:
        for each in self._listening.values():
            threading.Thread(target=_accept, args=(each,), daemon=True).start()

    def close(self) -> None:
        for each in self._listening.values():
            # A thread in accept() is not woken by close() alone.
            each.shutdown(socket.SHUT_RDWR)
            each.close()

    def connect(self, client_id: str, channel: Channel, node: int) -> socket.socket:
        """A connection, and a request on it."""
        return _connect(self.fronts[channel, node], client_id)


def _connect(port: int, client_id: str = "client") -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    name = client_id.encode()
    connected.sendall(struct.pack(">ihhih", 10 + len(name), 18, 3, 0, len(name)) + name)
    return connected


def _accept(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            threading.Thread(target=_echo, args=(listening.accept()[0],), daemon=True).start()


def _echo(accepted: socket.socket) -> None:
    with accepted, contextlib.suppress(OSError):
        while data := accepted.recv(1024):
            accepted.sendall(data)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.serve()
    with made.network:
        yield made
    made.close()


def answers(connection: socket.socket) -> bool:
    """Whether an answer comes; False if the connection ends first."""
    with contextlib.suppress(ConnectionError):
        return bool(connection.recv(1024))
    return False


def is_silent(connection: socket.socket) -> bool:
    """Whether nothing has come so far, and the connection has not ended."""
    connection.settimeout(0.2)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(LIMIT_S)
    return False


def test_node_that_is_cut_off_has_no_connections_to_others(cluster: Cluster) -> None:
    controllers = Channel.CONTROLLERS
    opened = [cluster.connect(name, controllers, to) for name, to in (("raft-client-1", 2), ("2", 1), ("3", 2))]
    assert all(map(answers, opened))
    with cluster.network.cut(1, controllers):
        until("the ends", lambda: cluster.network.toll.reset[controllers] == 2)
        assert [answers(each) for each in opened[:2]] == [False, False]
        assert not answers(cluster.connect("broker-1-fetcher-0", controllers, 3))
        assert not answers(cluster.connect("raft-client-3", controllers, 1))
        opened[2].sendall(b"x")
        assert answers(opened[2])
        # Itself, a client, and the other channel.
        assert answers(cluster.connect("raft-client-1", controllers, 1))
        assert answers(cluster.connect("admin", controllers, 1))
        assert answers(cluster.connect("broker-1-fetcher-0", Channel.BROKERS, 2))
    assert answers(cluster.connect("raft-client-1", controllers, 2))


def test_node_that_is_not_heard_hears_the_others(cluster: Cluster) -> None:
    asked, other = cluster.connect("1", Channel.BROKERS, 2), cluster.connect("2", Channel.BROKERS, 1)
    assert answers(asked) and answers(other)
    with cluster.network.unheard(1, Channel.BROKERS):
        # Its request is lost; the request of another arrives, and its answer is lost.
        asked.sendall(b"xyz")
        other.sendall(b"xyz")
        until("the losses", lambda: cluster.network.toll.lost_bytes[Channel.BROKERS] == 6)
        assert is_silent(asked) and is_silent(other)
        assert answers(cluster.connect("3", Channel.BROKERS, 2))
    # Nothing follows in a stream of which a part is missing.
    assert not answers(asked) and not answers(other)
    assert answers(cluster.connect("1", Channel.BROKERS, 2))


def test_network_before_spark_is_cut_and_heals(cluster: Cluster) -> None:
    front = free_ports()
    with Network({front: cluster.fronts[Channel.BROKERS, 1]}, seed=1) as network:
        opened = _connect(front)
        assert answers(opened)
        with network.cut():
            assert not answers(opened)
            # Either end of a connection may notice first.
            with contextlib.suppress(ConnectionError):
                assert not answers(_connect(front))
        with network.slow():
            assert answers(_connect(front))
