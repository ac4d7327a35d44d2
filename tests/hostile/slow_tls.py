"""A registry and a token endpoint over TLS whose handshakes and responses are slow, partial, damaged or missing."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from tests.hostile.records import damaged
from tests.hostile.servers import HEAD, OPEN, SECRET, EvilHttp, asked, echo, interrupted_late
from tests.support.certificates import Authority

#: For each exchange; short, since many cases take this long.
_TIMEOUT_MS: Final = 100
#: In records of one byte they take longer than the time-out, although each record arrives in time.
_SPACES: Final = b" " * 5_000
_BODY: Final = _SPACES + b'{"id": 1, "schema": "\\"int\\"", "version": 1, "access_token": "a.b.c", "expires_in": 60}'
_ECHO: Final = json.dumps(dict.fromkeys(("message", "error", "error_description"), f"no {SECRET}")).encode() + _SPACES
_GOOD: Final = HEAD + b"Content-Length: %d\r\n\r\n" % len(_BODY) + _BODY
_REFUSAL: Final = b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(_ECHO) + _ECHO

Result = TypeVar("Result")


@dataclass
class _Way:
    """The response, the size of its TLS records and of its pieces (bytes), and the pause between pieces.

    After *most* bytes the server is silent, or closes the connection. With *damage*, some bytes are damaged. With
    *greets_well*, the handshake is valid.
    """

    answer: bytes = _GOOD
    record: int = 1 << 14
    piece: int = 1 << 16
    pause_s: float = 0.0
    most: int = 1 << 30
    is_closed: bool = False
    damage: random.Random | None = None
    greets_well: bool = False


class _SlowTls(EvilHttp):
    """A server with TLS that behaves as :attr:`way` says."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.way = _Way()
        self.authority = Authority()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "server.pem"
            file.write_text(self.authority.issue("127.0.0.1").pem())
            self.tls.load_cert_chain(file)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            speaker = _Speaker(connection, _Way() if self.way.greets_well else self.way, self.tls)
            speaker.until(speaker.tls.do_handshake)
            head = b""
            while b"\r\n\r\n" not in head:
                head += speaker.until(lambda: speaker.tls.read(65_536))
            speaker.way = self.way
            for at in range(0, len(self.way.answer), self.way.record):
                speaker.until(partial(speaker.tls.write, self.way.answer[at : at + self.way.record]))


class _Speaker:
    """One side of a TLS connection."""

    def __init__(self, connection: socket.socket, way: _Way, tls: ssl.SSLContext) -> None:
        self._connection = connection
        self.way = way
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = tls.wrap_bio(self._received, self._sent, server_side=True)
        self._said = 0

    def until(self, act: Callable[[], Result]) -> Result:
        """Repeat *act* until the other side has sent enough for it, and return its result."""
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                done = act()
                self._say(self._sent.read())
                return done
            self._say(self._sent.read())
            self._received.write(self._heard())

    def _heard(self) -> bytes:
        data = self._connection.recv(65_536)
        if not data:
            raise EOFError
        return data

    def _say(self, data: bytes) -> None:
        way = self.way
        if way.damage is not None and data and way.damage.random() < 0.5:
            data = damaged(way.damage, data)
        for at in range(0, len(data), way.piece):
            if self._said > way.most:
                while not way.is_closed:
                    self._heard()
                raise EOFError
            time.sleep(way.pause_s)
            self._connection.sendall(data[at : at + way.piece])
            self._said += way.piece


@cache
def _server() -> _SlowTls:
    server = _SlowTls()
    OPEN.enter_context(server)
    return server


def slow_tls(rng: random.Random) -> None:
    """A client gets a response or raises its documented error, in time, without secrets."""
    server = _server()
    server.way = _Way(
        answer=rng.choice((_GOOD, _REFUSAL, HEAD + b"\r\n")),
        record=rng.choice((1, 100, 1 << 14)),
        piece=rng.choice((1, 1, 40, 1 << 16)),
        pause_s=rng.choice((0.0, 0.005, 0.02)),
        most=rng.choice((1 << 30, rng.randrange(3_000))),
        is_closed=rng.random() < 0.5,
        damage=rng if rng.random() < 0.3 else None,
        greets_well=rng.random() < 0.5,
    )
    with interrupted_late():
        said = asked(server.port, _TIMEOUT_MS, server.authority.pem)
    assert not any(SECRET in each for each in said), said
