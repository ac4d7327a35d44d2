"""The network between Spark and Kafka, as a proxy that forwards bytes and therefore works with TLS, too."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

from tests.support.asyncio_proxy import ForwardingProxy, reset

_CHUNK_BYTES = 64 * 1024
_SLOW_S = 0.1
#: The fraction of responses that :meth:`Network.losing_answers` loses, and the time until the connection then ends.
_LOST_SHARE = 0.03
_DEAF_S = 1.0


class Network(ForwardingProxy[int]):
    """Its faults may begin and end on any thread, and overlap."""

    def __init__(self, fronts: Mapping[int, int], seed: int) -> None:
        super().__init__(fronts)
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
        """Within, some responses of brokers are lost; a second later the connection ends."""
        self._loses_answers = True
        try:
            yield
        finally:
            self._loses_answers = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: int) -> None:
        def pumps(
            behind: asyncio.StreamReader, behind_writer: asyncio.StreamWriter
        ) -> tuple[Coroutine[Any, Any, None], ...]:
            own.add(behind_writer)
            self._writers.add(behind_writer)
            return (
                self._pump(reader, behind_writer, are_answers=False),
                self._pump(behind, writer, are_answers=True),
            )

        own = {writer}
        self._writers.add(writer)
        try:
            await self._forward(writer, place, pumps)
        finally:
            self._writers -= own

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
