"""Hostile servers: a registry and token endpoint, and a broker with damaged responses."""

from __future__ import annotations

import _thread
import asyncio
import base64
import contextlib
import io
import json
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from typing import Final, Self, TypeVar

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import parse
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.http.oauth.token_endpoint import ClientCredentials, TokenEndpoint
from kafka_sink.network.sasl.bearer_token import EndpointLimits
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from tests.hostile.records import damaged
from tests.support.asyncio_proxy import AsyncioProxy

SECRET: Final = "S3cr3t/pass word+"
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

Answer = Callable[[socket.socket, bytes], None]


class Listener:
    """Listens on :attr:`port` of loopback while it is entered, and serves each connection on a thread of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # This wakes a thread in accept(), which close() does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        raise NotImplementedError


class EvilHttp(Listener):
    """Responds to each request with :attr:`answer`, which gets the connection and the request's head."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            head = b""
            while b"\r\n\r\n" not in head:
                received = connection.recv(65_536)
                if not received:
                    return
                head += received
            self.answer(connection, head)


def registry_at(port: int, timeout_ms: int = 2_000, trusted: str = "") -> RegistryClient:
    """Return a client with a secret for the registry on *port*; with the certificates *trusted*, over TLS."""
    options = {
        "schema.registry.url": f"{'https' if trusted else 'http'}://127.0.0.1:{port}",
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": f"alice:{SECRET}",
    }
    if trusted:
        options["schema.registry.ssl.truststore.certificates"] = trusted
    return RegistryClient(*registry_configs(options), timeout_ms=timeout_ms, rounds=1)


def endpoint_at(port: int, timeout_ms: int = 2_000, trusted: str = "") -> TokenEndpoint:
    times = {"connect_timeout_ms": timeout_ms, "read_timeout_ms": timeout_ms}
    limits = replace(EndpointLimits(), **times, retry_backoff_ms=1, retry_backoff_max_ms=1)
    url = f"{'https' if trusted else 'http'}://127.0.0.1:{port}/token"
    tls = parse(SslConfig, {"ssl.truststore.certificates": trusted} if trusted else {})
    return TokenEndpoint("opt", url, tls, limits, SYSTEM_CLOCK)


def asked(port: int, timeout_ms: int = 2_000, trusted: str = "") -> list[str]:
    """Send a request to the registry and to the token endpoint on *port*; return "ok" or the error's text for each.

    Errors that are not documented for users propagate.
    """
    said = []
    for ask in (
        lambda: registry_at(port, timeout_ms, trusted).latest("s"),
        lambda: endpoint_at(port, timeout_ms, trusted).fetch(ClientCredentials("cid", SECRET)),
    ):
        try:
            ask()
            said.append("ok")
        except KafkaError as error:
            said.append(str(error))
    return said


def echo(connection: socket.socket, head: bytes) -> None:
    """Respond with an error that repeats the request and its credentials, as sent and decoded."""
    sent = head.partition(b"Authorization: ")[2].partition(b"\r\n")[0]
    pair = base64.b64decode(sent.partition(b" ")[2])
    text = " ".join(each.decode("latin-1") for each in (head, sent, pair, base64.b64encode(pair.partition(b":")[2])))
    body = json.dumps({"message": text, "error": text, "error_description": text}).encode()
    connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


#: The servers that attacks share, until a caller closes the stack.
OPEN: Final = contextlib.ExitStack()


@cache
def shared_server() -> EvilHttp:
    """Return the shared server, whose responses each attack sets."""
    return OPEN.enter_context(EvilHttp(echo))


def http_answers(rng: random.Random) -> None:
    """Damaged responses are used, or rejected with the client's documented error without secrets."""
    body = json.dumps({"id": 1, "schema": '"int"', "access_token": "a.b.c", "expires_in": 60}).encode()
    if rng.random() < 0.5:
        size = rng.choice([b"%x" % len(body), b"-1", b"-5", b"1e9", b"ffffffffffffffff", b"5;x=y", b"", b"0x10", b" 7"])
        whole = CHUNKED + size + b"\r\n" + body + b"\r\n0\r\n" + rng.choice([b"\r\n", b"T: x\r\n" * 50 + b"\r\n"])
    else:
        whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if rng.random() < 0.7:
        whole = damaged(rng, whole)

    def answer(connection: socket.socket, head: bytes) -> None:
        connection.sendall(whole)
        connection.shutdown(socket.SHUT_WR)

    server = shared_server()
    server.answer = answer
    assert all(SECRET not in each for each in asked(server.port, 300))


class LyingProxy(AsyncioProxy):
    """A proxy of a broker, which advertises its own address in place of the broker's and damages some responses."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self.rng = random.Random(0)
        self.lies = 0.0

    @property
    def address(self) -> str:
        host, port = self._servers[0].sockets[0].getsockname()
        return f"{host}:{port}"

    async def _start(self) -> None:
        self._servers.append(await asyncio.start_server(self._serve, "127.0.0.1", 0))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker = await asyncio.open_connection(self._host, self._port)
        forward = self.spawn(self._forward(reader, broker))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await broker_reader.readexactly(4))
                frame = await broker_reader.readexactly(size)
                # Clients connect to this proxy again, not to the broker.
                frame = frame.replace(struct.pack(">i", self._port), struct.pack(">i", self._own_port))
                frame = await self.changed(frame)
                writer.write(struct.pack(">i", len(frame)) + frame)
                await writer.drain()
        forward.cancel()
        for each in (writer, broker):
            each.close()

    async def changed(self, frame: bytes) -> bytes:
        """Return the response to send in place of *frame*."""
        return damaged(self.rng, frame) if self.rng.random() < self.lies else frame

    @property
    def _own_port(self) -> int:
        return int(self.address.rpartition(":")[2])

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()


P = TypeVar("P", bound=LyingProxy)

#: Clients with a time-out of 0.8 s for each exchange end within this time, even on a slow machine.
MOST_S: Final = 20.0


@contextlib.contextmanager
def interrupted_late() -> Iterator[None]:
    """Within, interrupt the main thread after :data:`MOST_S`, since an endless call is a finding, too."""
    limit = threading.Timer(MOST_S, _thread.interrupt_main)
    limit.start()
    try:
        yield
    except KeyboardInterrupt:
        raise AssertionError(f"no end within {MOST_S:g} s") from None
    finally:
        limit.cancel()


COMMANDS: Final = (
    ("topics", "list"),
    ("topics", "describe"),
    ("groups", "list"),
    ("groups", "describe", "g"),
    ("txn", "list"),
    ("txn", "abort", "--prefix", "x"),
    ("txn", "hanging", "t", "0"),
    ("check", "t"),
    ("consume", "t"),
)


@contextlib.contextmanager
def lying_broker(kind: type[P]) -> Iterator[P]:
    """Within, an embedded broker with a topic ``t`` runs behind a proxy of this *kind*."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(ProducerRecord("t", b"x"))
            producer.commit_transaction()
        with kind(cluster.bootstrap_servers) as proxy:
            yield proxy


@cache
def _broker() -> LyingProxy:
    return OPEN.enter_context(lying_broker(LyingProxy))


def command_lines(rng: random.Random) -> None:
    """Commands end with one of their exit codes and one line, for any response of the broker."""
    proxy = _broker()
    proxy.rng, proxy.lies = rng, rng.choice([0.05, 0.3])
    command = rng.choice(COMMANDS)
    errors, output = io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    # The exit code shows whether a command was interrupted.
    with interrupted_late(), redirect_stderr(errors), redirect_stdout(output):
        code = run([*command, "--bootstrap-server", proxy.address, "--timeout", "0.8"])
    said = errors.getvalue()
    assert code in (0, 1, 2, 3), (command, code)
    assert "unexpected" not in said.replace("unexpected API", ""), (command, said)
    assert "Traceback" not in said, (command, said)
    assert not any(char in said for char in "\x1b\x9b\u202e"), (command, said)
