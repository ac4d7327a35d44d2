"""The slot for the one frame that a connection is writing.

Owned by a channel, or by the authenticator of one, and used on its selector's thread. Only the slot can determine
whether a frame was written to the socket: a transport may accept the last byte of a frame and buffer it (TLS encrypts
more than the socket accepts), so that the transport has the whole frame while the slot is still taken.
"""

from __future__ import annotations

from kafka_sink.network.frames.send import NetworkSend
from kafka_sink.network.transport.transport import TransportLayer


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
