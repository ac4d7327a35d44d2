"""A TCP proxy that counts the connections that clients make; brokers have to advertise its address."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from tests.support.asyncio_proxy import ForwardingProxy

_CHUNK_BYTES = 64 * 1024


class CountingProxy(ForwardingProxy[int]):
    """From each port of *fronts* to the port behind it."""

    def __init__(self, fronts: Mapping[int, int]) -> None:
        super().__init__(fronts)
        #: Read on any thread.
        self.connections = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: int) -> None:
        self.connections += 1
        await self._forward(
            writer, place, lambda behind, behind_writer: (_pump(reader, behind_writer), _pump(behind, writer))
        )


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
