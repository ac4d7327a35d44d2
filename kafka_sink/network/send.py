"""One frame on its way out.

Made by whoever has something to send, written by the selector's thread in as many pieces as the socket takes. The
segments are gathered into the transport as they are: they are never joined, never copied, and must not change until
:attr:`NetworkSend.completed`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Protocol

from kafka_sink.common.buffers import Buffer
from kafka_sink.protocol.framing import frame

#: Buffers one gather write may carry; the system refuses more.
MAX_GATHERED_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16


class GatherWriter(Protocol):
    """The writing half of a transport."""

    def write(self, buffers: Sequence[memoryview]) -> int:
        """Take as many leading bytes of *buffers* as fit now; 0 when none do."""
        ...


class NetworkSend:
    """A frame to *destination*: *segments* with their total length in front."""

    __slots__ = ("_next", "_views", "destination", "remaining", "size")

    def __init__(self, destination: str, segments: Sequence[Buffer], *, framed: bool = True) -> None:
        """*framed*: with their total length in front; otherwise they leave as they are."""
        self.destination = destination
        self._views = [_as_bytes(segment) for segment in (frame(segments) if framed else segments)]
        self._next = 0
        #: Bytes on the wire, the length in front included.
        self.size = sum(view.nbytes for view in self._views)
        self.remaining = self.size

    @property
    def completed(self) -> bool:
        """The transport has taken the last byte. Whether that byte has left, only the connection's slot knows."""
        return self.remaining == 0

    def write_to(self, transport: GatherWriter) -> int:
        """Write on from where the last call stopped until the transport takes no more; returns the bytes taken."""
        before = self.remaining
        while self.remaining:
            views = self._views[self._next : self._next + MAX_GATHERED_BUFFERS]
            offered = self.remaining if len(views) < MAX_GATHERED_BUFFERS else sum(view.nbytes for view in views)
            taken = transport.write(views)
            self._advance(taken)
            if taken < offered:
                break
        if self.remaining == 0:
            # Whoever lent the segments may now reuse them: a live view would keep a bytearray from being resized.
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
