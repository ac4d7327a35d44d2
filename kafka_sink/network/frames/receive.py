"""Incoming frames.

:class:`FrameReader` belongs to one channel and its selector's thread: it assembles the bytes of the transport into
complete frames, at most one per call. :class:`NetworkReceive` is a complete frame; any thread may use it. A length is
validated before memory is allocated for it, and the buffer grows with the bytes that arrive, so a frame that is only
announced costs next to nothing. The memory pool counts the whole frame as soon as its length is known.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafka_sink.common.errors import InvalidReceiveError
from kafka_sink.network.frames.memory_pool import UNLIMITED_MEMORY_POOL, MemoryPool
from kafka_sink.protocol.framing import SIZE_BYTES

#: No limit on the size of a frame.
UNLIMITED: Final = -1

#: Size of a read that fetches a frame's length together with its payload, if both fit; most responses do.
READ_AHEAD_BYTES: Final = 16 * 1024

#: Initial size of a payload's buffer, and the factor by which it grows as bytes arrive.
FIRST_ROOM_BYTES: Final = 64 * 1024
_GROWTH: Final = 4

_NOTHING: Final = memoryview(b"")


class ScatterReader(Protocol):
    """The read methods of a transport."""

    def read_into(self, target: memoryview) -> int:
        """Read into *target*; returns fewer bytes than its length only if no more are available now (possibly 0).

        :raises EOFError: if the peer has closed the connection and all its bytes were read.
        """


class NetworkReceive:
    """A complete frame from *source*: *payload* is the part after the length."""

    __slots__ = ("_granted", "payload", "source")

    def __init__(self, source: str, payload: memoryview, pool: MemoryPool = UNLIMITED_MEMORY_POOL) -> None:
        self.source = source
        self.payload = payload
        # The first thread that takes the entry releases it.
        self._granted = [pool]

    def release(self) -> None:
        """Release the payload's memory to the pool after the payload was processed.

        A second call does nothing; two threads may call it at the same time.
        """
        try:
            pool = self._granted.pop()
        except IndexError:
            return
        pool.release(self.payload.nbytes)


class FrameReader:
    """Splits the bytes of one connection into frames of at most *max_bytes* (:data:`UNLIMITED` for any size).

    *scratch* has at least :data:`READ_AHEAD_BYTES` bytes and may be shared by all readers of a thread, because it is
    not used between calls.
    """

    __slots__ = (
        "_ahead",
        "_drained",
        "_filled",
        "_max_bytes",
        "_payload",
        "_payload_pool",
        "_pool",
        "_scratch",
        "_size",
        "_source",
        "awaits_memory",
    )

    def __init__(self, source: str, max_bytes: int, pool: MemoryPool, scratch: memoryview) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._pool = pool
        self._scratch = scratch
        self._ahead = _NOTHING
        self._payload: memoryview | None = None
        self._payload_pool = pool
        self._size = 0
        self._filled = 0
        self._drained = False
        #: Whether the next frame's length is known but the pool has no memory for it.
        self.awaits_memory = False

    @property
    def has_bytes_buffered(self) -> bool:
        """Whether another call can continue without new bytes from the transport."""
        return len(self._ahead) >= SIZE_BYTES

    def read_from(self, transport: ScatterReader) -> NetworkReceive | None:
        """Continue to read; returns a frame when it is complete, None while bytes or memory from the pool are missing.

        :raises InvalidReceiveError: if the announced length is negative or exceeds the limit.
        :raises EOFError: if the peer has closed the connection, between two frames or within a frame.
        """
        self._drained = False
        if self._payload is None and not self._begin(transport):
            return None
        payload = self._payload
        assert payload is not None
        while self._filled < self._size:
            if self._drained:
                # The last read was short, so another read would return nothing now.
                return None
            if self._filled == len(payload):
                payload = self._payload = _larger(payload, self._size)
            self._filled += transport.read_into(payload[self._filled :])
            self._drained = self._filled < len(payload)
        self._payload = None
        return NetworkReceive(self._source, payload, self._payload_pool)

    def discard(self) -> None:
        """Discard a partly read frame and release its memory."""
        if self._payload is not None:
            self._payload_pool.release(self._size)
            self._payload = None

    @property
    def max_bytes(self) -> int:
        """The limit on the size of a frame, or :data:`UNLIMITED`."""
        return self._max_bytes

    def limit(self, max_bytes: int, pool: MemoryPool) -> None:
        """From the next frame on, limit frames to *max_bytes* and reserve memory from *pool*."""
        self._max_bytes = max_bytes
        self._pool = pool

    def _begin(self, transport: ScatterReader) -> bool:
        """Read the next length and allocate the payload's buffer; False if bytes or memory are missing."""
        data = self._ahead
        if len(data) < SIZE_BYTES:
            data = self._read_more(transport)
            if len(data) < SIZE_BYTES:
                self._ahead = memoryview(bytes(data))
                return False
        size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
        self._check(size)
        self.awaits_memory = not self._pool.try_reserve(size)
        if self.awaits_memory:
            self._ahead = data if data is self._ahead else memoryview(bytes(data))
            return False
        self._payload_pool, self._size = self._pool, size
        end = SIZE_BYTES + size
        if len(data) >= end:
            self._payload = memoryview(bytes(data[SIZE_BYTES:end]))
            self._filled = size
            rest = data[end:]
            # The scratch buffer is reused, so its bytes are copied; bytes that are already read ahead need no second
            # copy.
            self._ahead = rest if data is self._ahead else memoryview(bytes(rest))
            return True
        self._payload = memoryview(bytearray(min(size, FIRST_ROOM_BYTES)))
        self._filled = len(data) - SIZE_BYTES
        self._payload[: self._filled] = data[SIZE_BYTES:]
        self._ahead = _NOTHING
        return True

    def _read_more(self, transport: ScatterReader) -> memoryview:
        kept = len(self._ahead)
        self._scratch[:kept] = self._ahead
        end = kept + transport.read_into(self._scratch[kept:])
        self._drained = end < len(self._scratch)
        return self._scratch[:end]

    def _check(self, size: int) -> None:
        if size < 0:
            raise InvalidReceiveError(
                f"frame of negative length {size}; the other side does not speak Kafka's protocol"
            )
        if self._max_bytes != UNLIMITED and size > self._max_bytes:
            raise InvalidReceiveError(
                f"frame of {size} bytes is larger than the limit of {self._max_bytes} bytes{_other_language(size)}"
            )


def _other_language(size: int) -> str:
    """Describes a protocol other than Kafka's, if the bytes that were read as a length look like one."""
    first = size.to_bytes(4, "big")
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "; the other side speaks TLS: set security.protocol to the protocol of the listener"
    # Some web servers answer what is no request with a page alone.
    is_http = first == b"HTTP" or (first[:1] == b"<" and first[1:].strip(b"!").isalpha())
    return "; the other side speaks HTTP: an HTTP server answers there" if is_http else ""


def _larger(payload: memoryview, size: int) -> memoryview:
    """A larger buffer for a payload of *size* bytes, with the bytes received so far."""
    grown = memoryview(bytearray(min(size, _GROWTH * len(payload))))
    grown[: len(payload)] = payload
    return grown
