"""A TCP proxy between a client and its brokers that injects faults of networks and servers into chosen exchanges.

It parses frames, so that a fault affects a whole request or response of one API, and rewrites the brokers' advertised
addresses, so that no connection bypasses it. It is a context manager, and runs all connections on one thread.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader, decode_request_header, decode_response, encode_response
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import FindCoordinatorResponse, MetadataResponse
from kafka_sink.protocol.messages.produce import ProduceResponse
from tests.support.asyncio_proxy import AsyncioProxy, reset

_LOST_PACKET_S = 0.2


class Fault(Enum):
    """A fault of a request or of its response."""

    RESET_BEFORE = "the connection is reset before the broker sees the request"
    WITHHOLD = "neither this request nor any later one of the connection reaches the broker"
    RESET_AFTER = "the broker has worked the request off, then the connection is reset"
    SILENCE = "neither this answer nor any later one of the connection arrives"
    SWALLOW = "this answer is left out, later ones arrive"
    TWICE = "the answer arrives twice"
    HALF = "half of the answer arrives, then nothing more"
    HALF_THEN_CLOSE = "half of the answer arrives, then the end"


@dataclass(frozen=True)
class Delay:
    """The response, and all that follow it, arrive *seconds* late."""

    seconds: float


@dataclass(frozen=True)
class Drip:
    """The response arrives byte by byte, one every *seconds*."""

    seconds: float


@dataclass(frozen=True)
class Shape:
    """The properties of both directions of every connection: a loss delays data by a retransmission, as in TCP."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    bytes_per_s: float = float("inf")


#: Returns the fault of the n-th request (from 1) of an API; None for no fault.
Plan = Callable[[ApiKey, int], Fault | Delay | Drip | None]


def every(n: int, fault: Fault | Delay | Drip, api_key: ApiKey = ApiKey.PRODUCE) -> Plan:
    """Return a plan in which every *n*-th request of *api_key* has *fault*."""
    return lambda key, number: fault if key is api_key and number % n == 0 else None


def only(numbers: set[int], fault: Fault | Delay | Drip, api_key: ApiKey = ApiKey.PRODUCE) -> Plan:
    """Return a plan in which the requests of *api_key* with these numbers have *fault*."""
    return lambda key, number: fault if key is api_key and number in numbers else None


class FaultProxy(AsyncioProxy):
    """A proxy of all brokers of *bootstrap_servers*; :attr:`plan` may be changed at any time."""

    def __init__(
        self, bootstrap_servers: str, plan: Plan = lambda key, number: None, shape: Shape | None = None
    ) -> None:
        super().__init__()
        self._upstream = [_address(entry) for entry in bootstrap_servers.split(",")]
        self.plan = plan
        self._shape = shape
        self._fronts: dict[tuple[str, int], int] = {}
        self._random = random.Random(7)
        self.requests: collections.Counter[ApiKey] = collections.Counter()
        self.faults = 0
        #: The APIs that it advertises in place of those of the brokers, each with its first and last version.
        self.told_versions: Mapping[ApiKey, tuple[int, int]] | None = None

    async def _start(self) -> None:
        for address in self._upstream:
            await self.front(address)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self._fronts[address]}" for address in self._upstream)

    async def front(self, address: tuple[str, int]) -> int:
        """Return the proxy's port for *address*."""
        if address not in self._fronts:

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self.spawn(_Connection(self, reader, writer).run(address))

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            self._fronts[address] = server.sockets[0].getsockname()[1]
        return self._fronts[address]

    def judge(self, header: RequestHeader, frame: bytes, body_at: int) -> Fault | Delay | Drip | None:
        """Return the fault of this request, whose body begins at *body_at* of *frame*; None for no fault."""
        api_key = ApiKey(header.api_key)
        self.requests[api_key] += 1
        fault = self.plan(api_key, self.requests[api_key])
        self.faults += fault is not None
        return fault

    def pass_time(self, size: int) -> tuple[float, float]:
        """Return (latency, time of transmission of *size* bytes), in seconds."""
        shape = self._shape
        if shape is None:
            return 0.0, 0.0
        late = _LOST_PACKET_S if self._random.random() < shape.loss else 0.0
        way = max(shape.latency_s + self._random.uniform(-shape.jitter_s, shape.jitter_s), 0.0) + late
        return way, size / shape.bytes_per_s


@dataclass
class _Pending:
    api_key: ApiKey
    version: int
    fault: Fault | Delay | Drip | None


class _Line:
    """One direction, which delivers bytes in order, after the shape's delay."""

    def __init__(self, proxy: FaultProxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._busy_until = 0.0

    def put(self, data: bytes) -> None:
        now = asyncio.get_running_loop().time()
        way, busy = self._proxy.pass_time(len(data))
        self._busy_until = max(self._busy_until, now) + busy
        self._queue.put_nowait((self._busy_until + way, data))

    async def run(self) -> None:
        while True:
            due, data = await self._queue.get()
            wait = due - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._writer.write(data)
            await self._writer.drain()


class _Connection:
    """A client's connection and the one behind it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._pending: collections.deque[_Pending] = collections.deque()
        self._is_silent = False
        self._is_withheld = False

    async def run(self, address: tuple[str, int]) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*address)
        except OSError:
            reset(self._writer)
            return
        up, down = _Line(self._proxy, broker_writer), _Line(self._proxy, self._writer)
        tasks = [
            self._proxy.spawn(work)
            for work in (self._requests(up), self._answers(broker_reader, down), up.run(), down.run())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.exception()
        finally:
            for task in tasks:
                task.cancel()
            broker_writer.close()
            self._writer.close()

    async def _requests(self, up: _Line) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await _read_frame(self._reader)
                header, body_at = decode_request_header(frame)
                fault = self._proxy.judge(header, frame, body_at)
                if fault is Fault.RESET_BEFORE:
                    reset(self._writer)
                    return
                self._is_withheld = self._is_withheld or fault is Fault.WITHHOLD
                if self._is_withheld:
                    continue
                self._pending.append(_Pending(ApiKey(header.api_key), header.api_version, fault))
                up.put(struct.pack(">i", len(frame)) + frame)

    async def _answers(self, broker: asyncio.StreamReader, down: _Line) -> None:
        try:
            while True:
                frame = await _read_frame(broker)
                pending = self._pending.popleft()
                frame = await self._rewrite(pending, frame)
                if not await self._deliver(struct.pack(">i", len(frame)) + frame, pending.fault, down):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            if self._is_silent:
                # Clients cannot distinguish a dead broker from a silent one.
                await asyncio.sleep(3600)

    async def _deliver(self, data: bytes, fault: Fault | Delay | Drip | None, down: _Line) -> bool:
        """Deliver one response with *fault*; return False if this ends the connection."""
        if self._is_silent or fault is Fault.SWALLOW:
            return True
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        elif isinstance(fault, Drip):
            for byte in data:
                self._writer.write(bytes([byte]))
                await self._writer.drain()
                await asyncio.sleep(fault.seconds)
            return True
        elif fault is Fault.RESET_AFTER:
            reset(self._writer)
            return False
        elif fault is Fault.SILENCE:
            self._is_silent = True
            return True
        elif fault in (Fault.HALF, Fault.HALF_THEN_CLOSE):
            self._writer.write(data[: len(data) // 2])
            await self._writer.drain()
            self._is_silent = True
            return fault is Fault.HALF
        down.put(data * 2 if fault is Fault.TWICE else data)
        return True

    async def _rewrite(self, pending: _Pending, frame: bytes) -> bytes:
        """Replace the brokers' addresses by those of the proxy, and their API versions by :attr:`told_versions`."""
        if pending.api_key is ApiKey.API_VERSIONS and self._proxy.told_versions is not None:
            correlation_id, versions = decode_response(pending.api_key, pending.version, frame)
            assert isinstance(versions, ApiVersionsResponse)
            versions.api_keys = [
                ApiVersion(api_key=key, min_version=oldest, max_version=newest)
                for key, (oldest, newest) in self._proxy.told_versions.items()
            ]
            versions.supported_features, versions.finalized_features = [], []
            return b"".join(encode_response(pending.api_key, pending.version, correlation_id, versions))
        if pending.api_key not in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FIND_COORDINATOR):
            return frame
        correlation_id, body = decode_response(pending.api_key, pending.version, frame)
        told: Sequence[Any]
        if isinstance(body, MetadataResponse):
            told = body.brokers
        elif isinstance(body, FindCoordinatorResponse):
            named: Sequence[Any] = body.coordinators or [body]
            told = [node for node in named if node.error_code == 0]
        else:
            assert isinstance(body, ProduceResponse)
            told = body.node_endpoints
        if not told:
            return frame
        for node in told:
            node.port = await self._proxy.front((node.host, node.port))
            node.host = "127.0.0.1"
        return b"".join(encode_response(pending.api_key, pending.version, correlation_id, body))


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    return await reader.readexactly(size)


def _address(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    return host, int(port)
