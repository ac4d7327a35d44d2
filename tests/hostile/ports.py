"""Hostile clients of our HTTP ports, and large hostile requests to the broker."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Final

from kafka_sink.common.errors import ProtocolError
from kafka_sink.http.local_server import LocalServer, MetricsServer
from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry
from kafka_sink.ui.pages import PageServer
from tests.fakes.broker_node import BrokerNode
from tests.hostile.records import damaged
from tests.hostile.servers import OPEN
from tests.support.request_items import arrays, frame_of

_PATHS: Final = {"pages": "/static/page.css", "metrics": "/metrics", "registry": "/subjects"}
_LINES: Final = (
    *(b"GET /topics HTTP/1.1", b"POST /subjects/a/versions HTTP/1.1", b"PUT /config HTTP/1.0", b"GET //[x HTTP/1.1"),
    *(b"GET http://[::1/ HTTP/1.1", b"GET /schemas/ids/" + b"9" * 5000 + b" HTTP/1.1", b"\x16\x03\x01", b"", b"GET /"),
    *(b"GET /streams?file=..%2f..%2fetc HTTP/1.1", b"OPTIONS * HTTP/1.1", b"GET / HTTP/9.9", b"\0" * 100),
)
_HEADERS: Final = (
    *(b"Host: localhost", b"Host: evil.example", b"Origin: http://evil.example", b"X: " + b"a" * 70_000),
    *(b"Content-Length: 9", b"Content-Length: 100"),
    *(
        b"Content-Length: -1",
        b"Content-Length: 99999999999",
        b"Content-Length: \xd9\xa1",
        b"Transfer-Encoding: chunked",
    ),
    *(b"Expect: 100-continue", b"Connection: keep-alive", b": ", b"no colon", b"Host: localhost\r\nHost: localhost"),
)
_BODIES: Final = (b"", b"{", b'{"schema": "\\"int\\""}', b"[" * 100_000, b'{"schema": "\\ud800"}', b"\xff" * 10)


@cache
def _server(name: str) -> LocalServer:
    create: dict[str, Callable[[], LocalServer]] = {
        "pages": lambda: PageServer("127.0.0.1:1", 0, timeout_ms=50),
        "metrics": lambda: MetricsServer("127.0.0.1", 0, list),
        "registry": EmbeddedRegistry,
    }
    return OPEN.enter_context(create[name]())


def http_requests(rng: random.Random) -> None:
    """The next request is served, whatever other clients send and whether they wait for a response."""
    name = rng.choice(list(_PATHS))
    server = _server(name)
    with contextlib.ExitStack() as held:
        for _ in range(rng.choice((1, 1, 3, 80))):
            client = held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            lines = [rng.choice(_LINES), *rng.choices(_HEADERS, k=rng.randrange(5))]
            sent = b"\r\n".join(lines) + rng.choice((b"\r\n\r\n", b"\r\n", b"")) + rng.choice(_BODIES)
            with contextlib.suppress(OSError):
                client.sendall(damaged(rng, sent) if rng.random() < 0.3 else sent)
                if rng.random() < 0.1:
                    client.shutdown(socket.SHUT_RDWR)
        asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        with contextlib.closing(asked):
            asked.request("GET", _PATHS[name])
            assert asked.getresponse().status == 200


def broker_requests(rng: random.Random) -> None:
    """The broker responds to requests with many, equal or no items, or closes the connection, within bounds."""
    key, field = rng.choice(list(arrays()))
    count = rng.choice((0, 1, 50, 400))
    numbers = [rng.randrange(max(count, 1)) for _ in range(count)]
    try:
        frame = frame_of(key, field, numbers)
    except ValueError:
        return
    if rng.random() < 0.5:
        frame = frame[:14] + damaged(rng, frame[14:])
    node = BrokerNode()
    node.cluster.create_topic("n0", 2)
    tracemalloc.start()
    try:
        with contextlib.suppress(ProtocolError):
            node.handle_frame(frame)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 64 << 20, (key, taken)
