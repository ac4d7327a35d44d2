"""A TCP proxy that resets connections after so many bytes, whatever they mean: it works under TLS, too.

Brokers have to advertise its address. One thread runs all of it; a test holds it as a context manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Mapping

_CHUNK_BYTES = 16 * 1024
_SEED = 11


class CuttingProxy:
    """Listens on each port of *fronts* for the port behind it; both directions of a connection count."""

    def __init__(self, fronts: Mapping[int, int], least_bytes: int, most_bytes: int) -> None:
        self._fronts = fronts
        self._bounds = (least_bytes, most_bytes)
        self._random = random.Random(_SEED)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: Connections that were reset; read on any thread.
        self.cuts = 0

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        for front, behind in self._fronts.items():

            async def connected(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: int = behind
            ) -> None:
                await self._serve(reader, writer, behind)

            self._servers.append(await asyncio.start_server(connected, "127.0.0.1", front))

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, behind: int) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", behind)
        except OSError:
            _reset(writer)
            return
        budget = _Budget(self._random.randint(*self._bounds))
        pumps = [
            self._loop.create_task(_pump(source, sink, budget))
            for source, sink in ((reader, broker_writer), (broker_reader, writer))
        ]
        self._tasks.update(pumps)
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            self.cuts += budget.bytes <= 0
        finally:
            for pump in pumps:
                pump.cancel()
                self._tasks.discard(pump)
            _reset(writer)
            _reset(broker_writer)


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


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
