"""The network between Spark and Kafka, as a proxy that works on bytes and therefore under TLS, too."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Mapping

from tests.support.asyncio_proxy import AsyncioProxy, reset

_CHUNK_BYTES = 64 * 1024
_SLOW_S = 0.1
#: The share of answers that are lost while answers are lost, and how long their clients wait until the connection ends.
_LOST_SHARE = 0.03
_DEAF_S = 1.0


class Network(AsyncioProxy):
    """Listens on each port of *fronts* for the port behind it; brokers have to advertise the former.

    Its faults may be begun and ended on any thread, and at the same time.
    """

    def __init__(self, fronts: Mapping[int, int], seed: int) -> None:
        super().__init__()
        self._fronts = fronts
        self._random = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = self._is_slow = self._loses_answers = False

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Within, connections are reset and refused."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._reset_all)
        try:
            yield
        finally:
            self._is_cut = False

    @contextlib.contextmanager
    def slow(self) -> Iterator[None]:
        """Within, everything arrives a tenth of a second late, at most 640 kB a second."""
        self._is_slow = True
        try:
            yield
        finally:
            self._is_slow = False

    @contextlib.contextmanager
    def losing_answers(self) -> Iterator[None]:
        """Within, answers of brokers are lost now and then; a second later the connection ends."""
        self._loses_answers = True
        try:
            yield
        finally:
            self._loses_answers = False

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
        both = {writer, broker_writer}
        self._writers |= both
        pumps = [
            self.spawn(self._pump(reader, broker_writer, are_answers=False)),
            self.spawn(self._pump(broker_reader, writer, are_answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._writers -= both
            for each in both:
                reset(each)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, are_answers: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_CHUNK_BYTES):
                if self._is_cut:
                    return
                if self._is_slow:
                    await asyncio.sleep(_SLOW_S)
                if are_answers and self._loses_answers and self._random.random() < _LOST_SHARE:
                    await asyncio.sleep(_DEAF_S)
                    return
                sink.write(data)
                await sink.drain()

    def _reset_all(self) -> None:
        for writer in self._writers:
            reset(writer)
