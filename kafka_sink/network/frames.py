"""Frames: one that is sent, those that are received, and the memory for them.

:class:`FrameReader` belongs to one channel and its selector's thread: it assembles the bytes of the transport into
complete frames, at most one per call. :class:`NetworkReceive` is a complete frame; any thread may use it. A length is
validated before memory is allocated for it, and the buffer grows with the bytes that arrive, so a frame that is only
announced costs next to nothing. A pool counts the whole frame as soon as its length is known, until the thread that has
processed the frame releases it; it never blocks, and a failed reservation is retried later.

Any thread may create a :class:`NetworkSend`; the selector's thread writes it in as many parts as the socket accepts.
The segments are passed to the transport as they are: they are never joined or copied, and must not change until
:attr:`NetworkSend.completed`. A slot is owned by a channel, or by the authenticator of one. Only the slot can determine
whether a frame was written to the socket: a transport may accept the last byte of a frame and buffer it (TLS encrypts
more than the socket accepts), so that the transport has the whole frame while the slot is still taken.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import InvalidReceiveError
from kafka_sink.network.transport.transport import TransportLayer
from kafka_sink.protocol.framing import SIZE_BYTES, frame

#: Maximum number of buffers of one gathering write; the system rejects more.
MAX_GATHERED_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16


class NetworkSend:
    """A frame to *destination*: *segments*, preceded by their total length."""

    __slots__ = ("_next", "_views", "destination", "ends_poll", "remaining", "size")

    def __init__(
        self, destination: str, segments: Sequence[Buffer], *, framed: bool = True, ends_poll: bool = True
    ) -> None:
        """
        :param framed: write the total length before the segments; otherwise only the segments are written.
        :param ends_poll: a poll returns when the frame is sent; False if no caller waits for it."""
        self.destination = destination
        self.ends_poll = ends_poll
        self._views = [_as_bytes(segment) for segment in (frame(segments) if framed else segments)]
        self._next = 0
        #: Bytes on the wire, including the length.
        self.size = sum(map(len, self._views))
        self.remaining = self.size

    @property
    def completed(self) -> bool:
        """Whether the transport has accepted all bytes. Only :class:`SendSlot` can tell whether they were sent."""
        return self.remaining == 0

    def write_to(self, write: Callable[[Sequence[memoryview]], int]) -> int:
        """Continue to *write* (:meth:`TransportLayer.write`) while it accepts more; returns the bytes accepted."""
        before = self.remaining
        while self.remaining:
            views = self._views[self._next : self._next + MAX_GATHERED_BUFFERS]
            offered = self.remaining if len(views) < MAX_GATHERED_BUFFERS else sum(view.nbytes for view in views)
            taken = write(views)
            self._advance(taken)
            if taken < offered:
                break
        if self.remaining == 0:
            # The owner of the segments may reuse them now; a remaining view would keep a bytearray at its size.
            self._views = []
        return before - self.remaining

    def _advance(self, taken: int) -> None:
        self.remaining -= taken
        if not self.remaining:
            return
        while taken:
            view = self._views[self._next]
            if taken < view.nbytes:
                self._views[self._next] = view[taken:]
                return
            taken -= view.nbytes
            self._next += 1


def _as_bytes(segment: Buffer) -> memoryview:
    view = memoryview(segment)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class SendSlot:
    """A slot that writes to *transport*."""

    __slots__ = ("_send", "_transport")

    def __init__(self, transport: TransportLayer) -> None:
        self._transport = transport
        self._send: NetworkSend | None = None

    @property
    def taken(self) -> bool:
        """Whether the slot holds a frame, so that no other can follow yet."""
        return self._send is not None

    @property
    def untouched(self) -> bool:
        """Whether no byte of the frame was written and the transport has no buffered bytes of earlier frames."""
        send = self._send
        return send is not None and send.remaining == send.size and not self._transport.has_pending_writes()

    @property
    def used_up(self) -> bool:
        """Whether the transport has the whole frame: a response may arrive, though the slot may still be taken."""
        return self._send is None or self._send.completed

    @property
    def wants_write(self) -> bool:
        """Whether there is anything to write, which may only be bytes buffered in the transport."""
        return self._send is not None or self._transport.has_pending_writes()

    def put(self, send: NetworkSend) -> None:
        """Put a frame into the slot, which must be free."""
        assert self._send is None
        self._send = send

    def write(self) -> NetworkSend | None:
        """Continue to write, including the transport's buffer; returns the frame once it is sent and the slot free."""
        send = self._send
        if send is not None and not send.completed:
            send.write_to(self._transport.write)
        elif self._transport.has_pending_writes():
            self._transport.write(())
        if send is None or not send.completed or self._transport.has_pending_writes():
            return None
        self._send = None
        return send

    def clear(self) -> None:
        """Discard the frame; no more of it is written."""
        self._send = None


class MemoryPool:
    """A limit of *size_bytes* on the memory of a selector's incoming frames, as Kafka's SimpleMemoryPool in non-strict
    mode.

    A reservation succeeds if any byte is available, so one frame may exceed the limit; otherwise a frame larger than
    the limit could never be read. Thread-safe.
    """

    def __init__(self, size_bytes: int) -> None:
        if size_bytes <= 0:
            raise ValueError(f"a memory pool needs a size above zero, not {size_bytes}")
        self._size_bytes = size_bytes
        self._lock = threading.Lock()
        self._available_bytes = size_bytes

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve *size_bytes*; False if there is no memory available now."""
        with self._lock:
            if self._available_bytes <= 0:
                return False
            self._available_bytes -= size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Release *size_bytes*, which :meth:`try_reserve` has reserved."""
        with self._lock:
            if self._available_bytes + size_bytes > self._size_bytes:
                raise RuntimeError(f"{size_bytes} bytes released to a memory pool that did not grant them")
            self._available_bytes += size_bytes

    @property
    def available_bytes(self) -> int:
        """Bytes that are available; negative if the last reservation exceeded the limit."""
        return self._available_bytes

    @property
    def is_out_of_memory(self) -> bool:
        """Whether nothing can be reserved until something is released."""
        return self._available_bytes <= 0

    @property
    def low_memory_threshold_bytes(self) -> int:
        """Below this, connections are processed in random order so that none starves."""
        return self._size_bytes // 10


class LoginMemoryPool(MemoryPool):
    """A limit of *size_bytes* on incoming frames of unauthenticated peers. Frames of up to *free_bytes* are always
    granted, so that other peers can log in while the pool is exhausted."""

    def __init__(self, size_bytes: int, free_bytes: int) -> None:
        super().__init__(size_bytes)
        self._free_bytes = free_bytes

    def try_reserve(self, size_bytes: int) -> bool:
        return size_bytes <= self._free_bytes or super().try_reserve(size_bytes)

    def release(self, size_bytes: int) -> None:
        if size_bytes > self._free_bytes:
            super().release(size_bytes)


class _UnlimitedMemoryPool(MemoryPool):
    """No limit: every reservation succeeds and nothing is counted."""

    def try_reserve(self, size_bytes: int) -> bool:
        return True

    def release(self, size_bytes: int) -> None:
        return None


UNLIMITED_MEMORY_POOL: Final[MemoryPool] = _UnlimitedMemoryPool(2**62)


#: No limit on the size of a frame.
UNLIMITED: Final = -1

#: Size of a read that fetches a frame's length together with its payload, if both fit; most responses do.
READ_AHEAD_BYTES: Final = 16 * 1024

#: Initial size of a payload's buffer, and the factor by which it grows as bytes arrive.
FIRST_ROOM_BYTES: Final = 64 * 1024
_GROWTH: Final = 4

_NOTHING: Final = memoryview(b"")


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

    def read_from(self, read_into: Callable[[memoryview], int]) -> NetworkReceive | None:
        """Continue to read by *read_into* (:meth:`TransportLayer.read_into`); returns a frame when it is complete, None
        while bytes or memory from the pool are missing.

        :raises InvalidReceiveError: if the announced length is negative or exceeds the limit.
        :raises EOFError: if the peer has closed the connection, between two frames or within a frame.
        """
        self._drained = False
        if self._payload is None and not self._begin(read_into):
            return None
        payload = self._payload
        assert payload is not None
        while self._filled < self._size:
            if self._drained:
                # The last read was short, so another read would return nothing now.
                return None
            if self._filled == len(payload):
                # A larger buffer, with the bytes received so far.
                larger = memoryview(bytearray(min(self._size, _GROWTH * len(payload))))
                larger[: len(payload)] = payload
                payload = self._payload = larger
            self._filled += read_into(payload[self._filled :])
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

    def _begin(self, read_into: Callable[[memoryview], int]) -> bool:
        """Read the next length and allocate the payload's buffer; False if bytes or memory are missing."""
        data = self._ahead
        if len(data) < SIZE_BYTES:
            data = self._read_more(read_into)
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
            # The scratch buffer is reused, so its bytes are copied; those read ahead are copied already.
            self._ahead = rest if data is self._ahead else memoryview(bytes(rest))
            return True
        self._payload = memoryview(bytearray(min(size, FIRST_ROOM_BYTES)))
        self._filled = len(data) - SIZE_BYTES
        self._payload[: self._filled] = data[SIZE_BYTES:]
        self._ahead = _NOTHING
        return True

    def _read_more(self, read_into: Callable[[memoryview], int]) -> memoryview:
        kept = len(self._ahead)
        self._scratch[:kept] = self._ahead
        end = kept + read_into(self._scratch[kept:])
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
    # Some web servers answer an invalid request with a page, without a status line.
    is_http = first == b"HTTP" or (first[:1] == b"<" and first[1:].strip(b"!").isalpha())
    return "; the other side speaks HTTP: an HTTP server answers there" if is_http else ""
