"""Frames on their way in.

:class:`FrameReader` belongs to one channel and its selector's thread: it turns whatever the transport yields into whole
frames, at most one per call. :class:`NetworkReceive` is such a frame; it may travel to any thread. A length is checked
before a byte is allocated for it, and room for the frame grows with what arrives of it, so a frame that is only
announced costs next to nothing. The memory pool counts the whole frame from its length on.
"""

from __future__ import annotations

from typing import Final, Protocol

from kafka_sink.common.errors import InvalidReceiveError
from kafka_sink.network.memory_pool import UNLIMITED_MEMORY_POOL, MemoryPool
from kafka_sink.protocol.framing import SIZE_BYTES

#: No limit on the size of a frame.
UNLIMITED: Final = -1

#: One read fetches a frame's length together with its payload when the whole fits in here: most answers do.
READ_AHEAD_BYTES: Final = 16 * 1024

#: Room for a payload grows from this, by this factor, as its bytes arrive.
_FIRST_ROOM_BYTES: Final = 64 * 1024
_GROWTH: Final = 4

_NOTHING: Final = memoryview(b"")


class ScatterReader(Protocol):
    """The reading half of a transport."""

    def read_into(self, target: memoryview) -> int:
        """Fill *target* from the front; less than its length only when nothing more is at hand now (then maybe 0).

        :raises EOFError: the other side has closed and everything it sent has been read.
        """
        ...


class NetworkReceive:
    """A whole frame from *source*: *payload* is what followed the length."""

    __slots__ = ("_granted", "payload", "source")

    def __init__(self, source: str, payload: memoryview, pool: MemoryPool = UNLIMITED_MEMORY_POOL) -> None:
        self.source = source
        self.payload = payload
        # Emptied by the first thread that takes from it.
        self._granted = [pool]

    def release(self) -> None:
        """The payload is worked off: give its share of the memory pool back.

        Calling it again does nothing; two threads may call it at once.
        """
        try:
            pool = self._granted.pop()
        except IndexError:
            return
        pool.release(self.payload.nbytes)


class FrameReader:
    """Cuts the byte stream of one connection into frames of at most *max_bytes* (:data:`UNLIMITED` for any size).

    *scratch* is at least :data:`READ_AHEAD_BYTES` long and may be shared by all readers of a thread: nothing is left in
    it between calls.
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
        #: The next frame's length is known but the pool had no room for it.
        self.awaits_memory = False

    @property
    def has_bytes_buffered(self) -> bool:
        """A further call gets on without anything new from the transport."""
        return len(self._ahead) >= SIZE_BYTES

    def read_from(self, transport: ScatterReader) -> NetworkReceive | None:
        """Read on; a frame when one is whole, None when more has to arrive (or memory has to be released) first.

        :raises InvalidReceiveError: the announced length is negative or over the limit.
        :raises EOFError: the other side has closed, between two frames or in the middle of one.
        """
        self._drained = False
        if self._payload is None and not self._begin(transport):
            return None
        payload = self._payload
        assert payload is not None
        while self._filled < self._size:
            if self._drained:
                # The last read came back short, so another one now would only be refused.
                return None
            if self._filled == len(payload):
                payload = self._payload = _larger(payload, self._size)
            self._filled += transport.read_into(payload[self._filled :])
            self._drained = self._filled < len(payload)
        self._payload = None
        return NetworkReceive(self._source, payload, self._payload_pool)

    def discard(self) -> None:
        """Drop a frame that will never be whole and give its memory back."""
        if self._payload is not None:
            self._payload_pool.release(self._size)
            self._payload = None

    def limit(self, max_bytes: int, pool: MemoryPool) -> None:
        """From the next frame on, allow *max_bytes* and take the memory from *pool*."""
        self._max_bytes = max_bytes
        self._pool = pool

    def _begin(self, transport: ScatterReader) -> bool:
        """Find the next length and make room for the payload; False when that has to wait."""
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
            # The scratch is not ours to keep; what lies ahead already is and needs no second copy.
            self._ahead = rest if data is self._ahead else memoryview(bytes(rest))
            return True
        self._payload = memoryview(bytearray(min(size, _FIRST_ROOM_BYTES)))
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
    """What the first bytes look like that were taken for a length."""
    first = size.to_bytes(4, "big")
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "; the other side speaks TLS: security.protocol has to be that of the listener"
    return "; the other side speaks HTTP" if first == b"HTTP" else ""


def _larger(payload: memoryview, size: int) -> memoryview:
    """Room for more of a payload that will be *size* bytes long, with what is there of it."""
    grown = memoryview(bytearray(min(size, _GROWTH * len(payload))))
    grown[: len(payload)] = payload
    return grown
