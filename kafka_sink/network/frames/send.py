"""One outgoing frame, and the slot for the one that a connection is writing.

Any thread may create a frame; the selector's thread writes it in as many parts as the socket accepts. The segments are
passed to the transport as they are: they are never joined or copied, and must not change until
:attr:`NetworkSend.completed`. A slot is owned by a channel, or by the authenticator of one. Only the slot can determine
whether a frame was written to the socket: a transport may accept the last byte of a frame and buffer it (TLS encrypts
more than the socket accepts), so that the transport has the whole frame while the slot is still taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, Protocol

from kafka_sink.common.buffers import Buffer
from kafka_sink.network.transport.transport import TransportLayer
from kafka_sink.protocol.framing import frame

#: Maximum number of buffers of one gathering write; the system rejects more.
MAX_GATHERED_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16


class GatherWriter(Protocol):
    """The write method of a transport."""

    def write(self, buffers: Sequence[memoryview]) -> int:
        """Write as many leading bytes of *buffers* as possible without blocking; 0 if none."""


class NetworkSend:
    """A frame to *destination*: *segments*, preceded by their total length."""

    __slots__ = ("_next", "_views", "destination", "remaining", "size")

    def __init__(self, destination: str, segments: Sequence[Buffer], *, framed: bool = True) -> None:
        """*framed*: write the total length before the segments; otherwise only the segments are written."""
        self.destination = destination
        self._views = [_as_bytes(segment) for segment in (frame(segments) if framed else segments)]
        self._next = 0
        #: Bytes on the wire, including the length.
        self.size = sum(view.nbytes for view in self._views)
        self.remaining = self.size

    @property
    def completed(self) -> bool:
        """Whether the transport has accepted all bytes. Only :class:`SendSlot` can tell whether they were sent."""
        return self.remaining == 0

    def write_to(self, transport: GatherWriter) -> int:
        """Continue to write until the transport accepts no more; returns the number of bytes accepted."""
        before = self.remaining
        while self.remaining:
            views = self._views[self._next : self._next + MAX_GATHERED_BUFFERS]
            offered = self.remaining if len(views) < MAX_GATHERED_BUFFERS else sum(view.nbytes for view in views)
            taken = transport.write(views)
            self._advance(taken)
            if taken < offered:
                break
        if self.remaining == 0:
            # The owner of the segments may reuse them now; a remaining view would prevent a bytearray from being
            # resized.
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
            send.write_to(self._transport)
        elif self._transport.has_pending_writes():
            self._transport.write(())
        if send is None or not send.completed or self._transport.has_pending_writes():
            return None
        self._send = None
        return send

    def clear(self) -> None:
        """Discard the frame; no more of it is written."""
        self._send = None
