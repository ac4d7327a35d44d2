"""Sockets and transports that accept bytes and send them later, any number at a time, as a seed determines.

They wrap real sockets, so that a real selector waits for real events.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kafka_sink.common.tls_config import SslConfig
from kafka_sink.network.channel.authenticator import Authenticator, PlaintextAuthenticator
from kafka_sink.network.channel.channel import AuthenticatorFactory, ChannelBuilder, KafkaChannel
from kafka_sink.network.frames import FrameReader
from kafka_sink.network.transport.transport import WRITE, PlaintextTransport, Socket
from kafka_sink.trust.tls_context import TlsContexts
from tests.support.certificates import Authority

#: The most bytes that a call moves: of a few, of a frame's size, of more than the system takes.
SIZES = (1, 500, 20_000, 2**20)


class HesitantSocket:
    """A socket that moves any number of bytes a call, or none."""

    def __init__(self, sock: Socket, rng: random.Random, *, refuses: float = 0.3) -> None:
        self._socket = sock
        self._rng = rng
        self._refuses = refuses

    def _size(self, most: int) -> int:
        if self._rng.random() < self._refuses:
            raise BlockingIOError
        return self._rng.randint(1, max(min(most, self._rng.choice(SIZES)), 1))

    def send(self, data: bytes | memoryview) -> int:
        return self._socket.send(memoryview(data)[: self._size(len(data))])

    def sendmsg(self, buffers: Sequence[memoryview]) -> int:
        return self._socket.send(_gather(buffers, self._size(sum(buffer.nbytes for buffer in buffers))))

    def recv(self, size: int) -> bytes:
        return self._socket.recv(self._size(size))

    def recv_into(self, target: memoryview) -> int:
        return self._socket.recv_into(target[: self._size(len(target))])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def _gather(buffers: Sequence[memoryview], size: int) -> bytes:
    """The first *size* bytes of *buffers*."""
    gathered = bytearray()
    for buffer in buffers:
        gathered += buffer[: size - len(gathered)]
        if len(gathered) == size:
            break
    return bytes(gathered)


_DATA, _ASK, _ANSWER = b"D", b"?", b"!"
_HEAD_BYTES = 4


def record(payload: bytes, kind: bytes = _DATA) -> bytes:
    """One record of :class:`HoldingTransport`: its kind, its length, what it carries."""
    return kind + len(payload).to_bytes(_HEAD_BYTES - 1, "big") + payload


def payload_of_records(data: bytes) -> bytes:
    """Return the joined payloads of complete records."""
    carried = b""
    while data:
        end = _HEAD_BYTES + int.from_bytes(data[1:_HEAD_BYTES], "big")
        carried += data[_HEAD_BYTES:end]
        data = data[end:]
    return carried


class HoldingTransport:
    """Wraps written bytes in records of its own and sends them later: the worst case of TLS.

    An end that *asks* requests a new key at times, and accepts no more bytes until it has read the response (want-read
    on write); the other end opens no further record until it has sent its response (want-write on read). Only one end
    may ask, and not a broker, which reads nothing from a connection until its response is sent.
    """

    peer_subject = None

    def __init__(self, under: PlaintextTransport, rng: random.Random, *, asks: bool) -> None:
        self._under = under
        self._rng = rng
        self._asks = asks
        self._is_waiting = False
        self._owes_answer = False
        self._held = bytearray()
        self._sealed = bytearray()
        self._opened = bytearray()
        self._has_ended = False
        #: How often a new key was requested.
        self.asked = 0

    @property
    def is_connected(self) -> bool:
        return self._under.is_connected

    @property
    def ready(self) -> bool:
        return self._under.ready

    @property
    def handshake_events(self) -> int:
        return WRITE

    def fileno(self) -> int:
        return self._under.fileno()

    def finish_connect(self) -> None:
        self._under.finish_connect()

    def handshake(self) -> None:
        """It needs none."""

    def read_into(self, target: memoryview) -> int:
        self._fetch()
        while not self._owes_answer and self._has_whole_record:
            self._open_one()
        if self._has_ended and not self._opened and not self._has_whole_record:
            raise EOFError("closed by the other side")
        size = min(len(target), len(self._opened))
        target[:size] = self._opened[:size]
        del self._opened[:size]
        return size

    def _fetch(self) -> None:
        room = memoryview(bytearray(self._rng.choice(SIZES)))
        try:
            self._sealed += room[: self._under.read_into(room)]
        except EOFError:
            self._has_ended = True

    @property
    def _has_whole_record(self) -> bool:
        size = int.from_bytes(self._sealed[1:_HEAD_BYTES], "big")
        return len(self._sealed) >= _HEAD_BYTES + size

    def _open_one(self) -> None:
        size = int.from_bytes(self._sealed[1:_HEAD_BYTES], "big")
        kind, payload = bytes(self._sealed[:1]), self._sealed[_HEAD_BYTES : _HEAD_BYTES + size]
        del self._sealed[: _HEAD_BYTES + size]
        if kind == _ASK:
            self._held += record(b"", _ANSWER)
            self._owes_answer = True
        elif kind == _ANSWER:
            self._is_waiting = False
        else:
            self._opened += payload

    def write(self, buffers: Sequence[memoryview]) -> int:
        self._send_some()
        if self._held or self._is_waiting:
            return 0
        data = _gather(buffers, self._rng.randint(0, self._rng.choice(SIZES)))
        if data:
            self._held += record(data)
        if data and self._asks and self._rng.random() < 0.3:
            self._held += record(b"", _ASK)
            self._is_waiting = True
            self.asked += 1
        self._send_some()
        return len(data)

    def _send_some(self) -> None:
        if self._held and self._rng.random() < 0.7:
            some = bytes(self._held[: self._rng.choice(SIZES)])
            del self._held[: self._under.write([memoryview(some)])]
            self._owes_answer = self._owes_answer and bool(self._held)

    def has_bytes_buffered(self) -> bool:
        return bool(self._opened) or (self._has_whole_record and not self._owes_answer)

    def has_pending_writes(self) -> bool:
        return bool(self._held)

    def close(self) -> None:
        self._under.close()


class HoldingChannelBuilder(ChannelBuilder):
    """Builds channels over :class:`HoldingTransport` and :class:`HesitantSocket`."""

    def __init__(self, authenticators: AuthenticatorFactory | None, rng: random.Random, *, asks: bool) -> None:
        super().__init__(authenticators=authenticators)
        self._rng = rng
        self._asks = asks

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        hesitant: Any = HesitantSocket(sock, self._rng, refuses=0.1)
        transport = HoldingTransport(PlaintextTransport(hesitant, connected=connected), self._rng, asks=self._asks)
        authenticator: Authenticator = PlaintextAuthenticator(transport)
        if self._authenticators is not None:
            authenticator = self._authenticators(connection_id, transport, reader, peer_host)
        return KafkaChannel(connection_id, transport, authenticator, reader)


class HesitantChannelBuilder(ChannelBuilder):
    """Builds the channels of *inner* over :class:`HesitantSocket`."""

    def __init__(self, inner: ChannelBuilder, rng: random.Random) -> None:
        super().__init__()
        self._inner = inner
        self._rng = rng

    def build_channel(
        self, connection_id: str, sock: Socket, *, connected: bool, reader: FrameReader, peer_host: str
    ) -> KafkaChannel:
        hesitant: Any = HesitantSocket(sock, self._rng)
        return self._inner.build_channel(
            connection_id, hesitant, connected=connected, reader=reader, peer_host=peer_host
        )


AUTHORITY = Authority()
_IDENTITY = AUTHORITY.issue("127.0.0.1")
_CONTEXTS = {
    False: TlsContexts(SslConfig(ssl_truststore_certificates=AUTHORITY.pem), server=False),
    True: TlsContexts(
        SslConfig(ssl_keystore_key=_IDENTITY.key_pem(), ssl_keystore_certificate_chain=_IDENTITY.certificate_pem),
        server=True,
    ),
}

#: Transports between a client and a broker at 127.0.0.1; all but "plaintext" use hesitant sockets.
WAYS = ("plaintext", "hesitant", "holding", "TLS")


def channel_builder(
    way: str, rng: random.Random, *, server: bool, authenticators: AuthenticatorFactory | None = None
) -> ChannelBuilder:
    """Return the channel builder of one end, for one of :data:`WAYS`."""
    if way == "holding":
        return HoldingChannelBuilder(authenticators, rng, asks=not server)
    contexts = _CONTEXTS[server] if way == "TLS" else None
    builder = ChannelBuilder(contexts=contexts, authenticators=authenticators)
    return builder if way == "plaintext" else HesitantChannelBuilder(builder, rng)
