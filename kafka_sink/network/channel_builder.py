"""Puts a channel together for one security protocol.

Chosen once per selector by the configuration, called by the selector's thread for every connection. It never connects.
"""

from __future__ import annotations

from typing import Protocol

from kafka_sink.network.authenticator import PlaintextAuthenticator
from kafka_sink.network.channel import KafkaChannel
from kafka_sink.network.receive import FrameReader
from kafka_sink.network.transport import PlaintextTransport, Socket


class ChannelBuilder(Protocol):
    """Makes the channels of one security protocol."""

    def build_channel(self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader) -> KafkaChannel:
        """A channel over *sock*; *connected* is False while its connect is under way.

        :raises OSError: the transport cannot be set up.
        """
        ...


class PlaintextChannelBuilder:
    """``security.protocol=PLAINTEXT``: bytes as they are, nobody is asked who they are."""

    def build_channel(self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader) -> KafkaChannel:
        transport = PlaintextTransport(sock, connected=connected)
        return KafkaChannel(connection_id, transport, PlaintextAuthenticator(), reader)
