"""Base classes of proxies between clients and brokers: context managers, each of which runs all connections on one
thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, Self, TypeVar

#: The type of the destination behind a port.
P = TypeVar("P")

_LIMIT_S = 60


class AsyncioProxy:
    """A subclass opens its servers in :meth:`_start`, and adds them to ``_servers``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_LIMIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT_S)
        self._loop.close()

    async def _start(self) -> None:
        raise NotImplementedError

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *work* until it ends, or until the proxy does."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class ForwardingProxy(AsyncioProxy, Generic[P]):
    """Listens on each port of *fronts* for the destination behind it, and forwards bytes, so that it works with TLS,
    too. Brokers must advertise these ports. A subclass serves each connection in :meth:`_serve`."""

    def __init__(self, fronts: Mapping[int, P]) -> None:
        super().__init__()
        self._fronts = fronts

    async def _start(self) -> None:
        for front, place in self._fronts.items():

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: P = place) -> None:
                await self._serve(reader, writer, place)

            self._servers.append(await asyncio.start_server(connected, "127.0.0.1", front))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: P) -> None:
        raise NotImplementedError

    async def _forward(
        self,
        writer: asyncio.StreamWriter,
        port: int,
        pumps: Callable[[asyncio.StreamReader, asyncio.StreamWriter], tuple[Coroutine[Any, Any, None], ...]],
    ) -> None:
        """Open a connection to *port* for that of *writer*, and run *pumps* in both directions until the first of them
        ends; then reset both connections."""
        try:
            behind, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            reset(writer)
            return
        running = [self.spawn(pump) for pump in pumps(behind, behind_writer)]
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in running:
                pump.cancel()
            reset(writer)
            reset(behind_writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
