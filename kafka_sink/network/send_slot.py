"""Room for the one frame that a connection is writing.

Owned by a channel, or by the authenticator of one, and the thread of its selector. It alone knows whether a frame has
left: a transport may take the last byte of a frame and keep it (TLS encrypts more than the socket has room for), so
that the frame is used up and the slot still is not free.
"""

from __future__ import annotations

from kafka_sink.network.send import NetworkSend
from kafka_sink.network.transport import TransportLayer


class SendSlot:
    """A slot that writes to *transport*."""

    __slots__ = ("_send", "_transport")

    def __init__(self, transport: TransportLayer) -> None:
        self._transport = transport
        self._send: NetworkSend | None = None

    @property
    def taken(self) -> bool:
        """A frame is in the slot: no other may follow yet."""
        return self._send is not None

    @property
    def untouched(self) -> bool:
        """The frame in the slot has not begun, and nothing before it waits inside the transport."""
        send = self._send
        return send is not None and send.remaining == send.size and not self._transport.has_pending_writes()

    @property
    def used_up(self) -> bool:
        """The transport has every byte of the frame: an answer to it may come, though the slot may still be taken."""
        return self._send is None or self._send.completed

    @property
    def wants_write(self) -> bool:
        """Something has to leave, be it only what the transport has kept."""
        return self._send is not None or self._transport.has_pending_writes()

    def put(self, send: NetworkSend) -> None:
        """Put a frame into the slot, which has to be free."""
        assert self._send is None
        self._send = send

    def write(self) -> NetworkSend | None:
        """Write on, what the transport has kept included; the frame when its last byte is gone: the slot is free."""
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
        """Drop the frame: nothing of it is written any more."""
        self._send = None
