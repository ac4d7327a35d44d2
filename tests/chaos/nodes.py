"""The network between the nodes of a Kafka cluster, as a proxy that knows both nodes of each connection.

The client id of a connection's first request identifies the node, in plain text: ``raft-client-2``,
``broker-2-fetcher-0``, or ``2``. Faults affect connections between nodes only; clients use other listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from tests.support.asyncio_proxy import ForwardingProxy, reset

_CHUNK_BYTES: Final = 64 * 1024
#: Length, key and version of the API, correlation id, and the length of the client id.
_HEADER: Final = struct.Struct(">ihhih")


class Channel(Enum):
    """The purpose of a connection between nodes."""

    BROKERS = "replication, transactions' markers, and what brokers verify"
    CONTROLLERS = "the quorum, heartbeats, and what brokers learn of the cluster"


class Place(NamedTuple):
    """The destination of the connections of a *channel* to *node*: the port behind the proxy."""

    channel: Channel
    node: int
    port: int


class Way(NamedTuple):
    """One direction between two nodes."""

    channel: Channel
    sender: int
    receiver: int


@dataclass(eq=False)
class _Connection:
    there: Way
    back: Way
    writers: tuple[asyncio.StreamWriter, ...] = ()
    #: Directions in which bytes are missing.
    torn: set[Way] = field(default_factory=set)

    def reset(self) -> None:
        for writer in self.writers:
            reset(writer)


@dataclass
class Toll:
    """The damage of all faults, by channel: connections that were reset or refused, and bytes that were lost."""

    reset: Counter[Channel] = field(default_factory=Counter)
    lost_bytes: Counter[Channel] = field(default_factory=Counter)

    def __str__(self) -> str:
        return "; ".join(
            f"{channel.name.lower()}: {self.reset[channel]:,} connections reset or refused, "
            f"{self.lost_bytes[channel]:,} bytes lost"
            for channel in Channel
        )


class NodeNetwork(ForwardingProxy[Place]):
    """The nodes must advertise the proxy's ports to each other.

    Its faults may begin and end on any thread, and overlap.
    """

    def __init__(self, fronts: Mapping[int, Place]) -> None:
        super().__init__(fronts)
        self._nodes = sorted({place.node for place in fronts.values()})
        self._connections: set[_Connection] = set()
        self._cut: Counter[Way] = Counter()
        self._lost: Counter[Way] = Counter()
        self.toll = Toll()

    @contextlib.contextmanager
    def cut(self, node: int, channel: Channel) -> Iterator[None]:
        """Within, connections of *channel* between *node* and each other node are reset and refused."""
        ways = [Way(channel, *pair) for other in self._others(node) for pair in ((node, other), (other, node))]
        self._cut.update(ways)
        self._loop.call_soon_threadsafe(self._reset_cut)
        try:
            yield
        finally:
            self._cut.subtract(ways)

    @contextlib.contextmanager
    def unheard(self, node: int, channel: Channel) -> Iterator[None]:
        """Within, neither requests nor responses that *node* sends to another node on *channel* arrive, and no
        connection ends. Connections that have lost bytes are reset afterwards."""
        ways = [Way(channel, node, other) for other in self._others(node)]
        self._lost.update(ways)
        try:
            yield
        finally:
            self._lost.subtract(ways)
            self._loop.call_soon_threadsafe(self._reset_torn)

    def _others(self, node: int) -> list[int]:
        return [each for each in self._nodes if each != node]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place) -> None:
        try:
            head = await reader.readexactly(_HEADER.size)
            client_id = await reader.readexactly(max(_HEADER.unpack(head)[-1], 0))
            sender = _node_of(client_id)
            there = Way(place.channel, sender, place.node)
            connection = _Connection(there, Way(place.channel, place.node, sender), (writer,))
            if self._cut[there] > 0:
                self.toll.reset[place.channel] += 1
                connection.reset()
                return
        except (OSError, asyncio.IncompleteReadError):
            reset(writer)
            return

        def pumps(
            behind: asyncio.StreamReader, behind_writer: asyncio.StreamWriter
        ) -> tuple[Coroutine[Any, Any, None], ...]:
            connection.writers = (writer, behind_writer)
            self._connections.add(connection)
            return (
                self._pump(connection, there, reader, behind_writer, head + client_id),
                self._pump(connection, connection.back, behind, writer, b""),
            )

        try:
            await self._forward(writer, place.port, pumps)
        finally:
            self._connections.discard(connection)

    async def _pump(
        self,
        connection: _Connection,
        way: Way,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        data: bytes,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := data or await source.read(_CHUNK_BYTES):
                if self._lost[way] > 0 or way in connection.torn:
                    connection.torn.add(way)
                    self.toll.lost_bytes[way.channel] += len(data)
                else:
                    sink.write(data)
                    await sink.drain()
                data = b""

    def _reset_cut(self) -> None:
        for connection in self._connections:
            if self._cut[connection.there] > 0:
                self.toll.reset[connection.there.channel] += 1
                connection.reset()

    def _reset_torn(self) -> None:
        for connection in self._connections:
            if any(self._lost[way] == 0 for way in connection.torn):
                connection.reset()


def _node_of(client_id: bytes) -> int:
    """The node with this client id; −1 for any other client, which no fault affects."""
    found = re.search(rb"\d+", client_id)
    return int(found[0]) if found else -1
