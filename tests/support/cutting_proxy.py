"""A TCP proxy that resets each connection after a number of bytes; it does not parse them, so it works with TLS, too.

Brokers must advertise its address. It is a context manager, and runs all connections on one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping

from tests.support.asyncio_proxy import ForwardingProxy

_CHUNK_BYTES = 16 * 1024
_SEED = 11


class CuttingProxy(ForwardingProxy[int]):
    """Counts the bytes of both directions of a connection."""

    def __init__(self, fronts: Mapping[int, int], least_bytes: int, most_bytes: int) -> None:
        super().__init__(fronts)
        self._bounds = (least_bytes, most_bytes)
        self._random = random.Random(_SEED)
        #: Connections that were reset; read on any thread.
        self.cuts = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: int) -> None:
        budget = _Budget(self._random.randint(*self._bounds))
        await self._forward(
            writer,
            place,
            lambda behind, behind_writer: (_pump(reader, behind_writer, budget), _pump(behind, writer, budget)),
        )
        self.cuts += budget.bytes <= 0


class _Budget:
    """The bytes that a connection may still forward."""

    def __init__(self, size: int) -> None:
        self.bytes = size


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, budget: _Budget) -> None:
    with contextlib.suppress(ConnectionError):
        while budget.bytes > 0:
            data = await source.read(_CHUNK_BYTES)
            if not data:
                return
            # Half of the last piece is sent, so a connection ends within a frame and within a TLS record.
            budget.bytes -= len(data)
            sink.write(data if budget.bytes > 0 else data[: len(data) // 2])
            await sink.drain()
