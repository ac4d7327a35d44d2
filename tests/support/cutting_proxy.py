"""A TCP proxy that resets connections after so many bytes, whatever they mean: it works under TLS, too.

Brokers have to advertise its address. One thread runs all of it; a test holds it as a context manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping

from tests.support.asyncio_proxy import AsyncioProxy, reset

_CHUNK_BYTES = 16 * 1024
_SEED = 11


class CuttingProxy(AsyncioProxy):
    """Listens on each port of *fronts* for the port behind it; both directions of a connection count."""

    def __init__(self, fronts: Mapping[int, int], least_bytes: int, most_bytes: int) -> None:
        super().__init__()
        self._fronts = fronts
        self._bounds = (least_bytes, most_bytes)
        self._random = random.Random(_SEED)
        #: Connections that were reset; read on any thread.
        self.cuts = 0

    async def _start(self) -> None:
        for front, behind in self._fronts.items():

            async def connected(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: int = behind
            ) -> None:
                await self._serve(reader, writer, behind)

            self._servers.append(await asyncio.start_server(connected, "127.0.0.1", front))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: int) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", behind)
        except OSError:
            reset(writer)
            return
        budget = _Budget(self._random.randint(*self._bounds))
        pumps = [
            self.spawn(_pump(source, sink, budget))
            for source, sink in ((reader, broker_writer), (broker_reader, writer))
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            self.cuts += budget.bytes <= 0
        finally:
            for pump in pumps:
                pump.cancel()
            reset(writer)
            reset(broker_writer)


class _Budget:
    """What a connection may still carry."""

    def __init__(self, size: int) -> None:
        self.bytes = size


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, budget: _Budget) -> None:
    with contextlib.suppress(ConnectionError):
        while budget.bytes > 0:
            data = await source.read(_CHUNK_BYTES)
            if not data:
                return
            # The last piece goes in half: a connection ends in the middle of a frame and of a TLS record.
            budget.bytes -= len(data)
            sink.write(data if budget.bytes > 0 else data[: len(data) // 2])
            await sink.drain()
