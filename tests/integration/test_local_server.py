"""Every port over HTTP that we open has the same bounds: the pages, the metrics, the registry."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

import pytest

from kafka_sink.common.metrics import Metric
from kafka_sink.http import local_server
from kafka_sink.http.local_server import LocalServer, MetricsServer
from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry
from kafka_sink.ui.pages import PageServer

MOST = 4
SERVERS: dict[str, tuple[Callable[[], LocalServer], str]] = {
    "pages": (lambda: PageServer("127.0.0.1:1", 0, timeout_ms=100), "/static/page.css"),
    "metrics": (lambda: MetricsServer("127.0.0.1", 0, list), "/metrics"),
    "registry": (EmbeddedRegistry, "/subjects"),
}
HALF = b"GET /subjects HTTP/1.1\r\nHost: localhost\r\nX: "
#: A request whose body does not come.
NO_BODY = b"POST /subjects/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalServer, str]]:
    monkeypatch.setattr(local_server, "most_local_connections", lambda: MOST)
    create, path = SERVERS[request.param]
    with create() as started:
        yield started, path


def connected(server: LocalServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0), timeout=30)


def status(server: LocalServer, path: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status


@pytest.mark.behaviour(
    "Faults: hostile clients", "Pages, metrics and registry answer beside a thousand connections that ask nothing"
)
def test_who_asks_nothing_holds_nobody_up(server: tuple[LocalServer, str]) -> None:
    asked, path = server
    with ExitStack() as held:
        for number in range(8 * MOST):
            one = held.enter_context(connected(asked))
            with contextlib.suppress(OSError):
                one.sendall((b"", HALF, NO_BODY)[number % 3])
        assert status(asked, path) == 200


def test_more_connections_than_permitted_are_closed(server: tuple[LocalServer, str]) -> None:
    asked, _ = server
    with ExitStack() as held:
        silent = [held.enter_context(connected(asked)) for _ in range(3 * MOST)]
        # Each newer one ends the oldest: only the last ones can be left.
        for one in silent[: 2 * MOST]:
            assert one.recv(1) == b""
        status(asked, "/")


def test_a_request_that_is_too_slow_is_ended(server: tuple[LocalServer, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = server
    monkeypatch.setattr(local_server, "REQUEST_MS", 0)
    with connected(asked) as slow:
        slow.sendall(HALF)
        assert slow.recv(1) == b""


def test_a_head_has_a_limit(server: tuple[LocalServer, str]) -> None:
    asked, path = server
    with connected(asked) as greedy:
        with contextlib.suppress(OSError):
            greedy.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + b"X: " + b"a" * 60_000 + b"\r\n")
            greedy.sendall((b"X: " + b"a" * 60_000 + b"\r\n") * 3)
        with contextlib.suppress(ConnectionResetError):
            answer = greedy.recv(100)
            assert not answer or b" 431 " in answer
    assert status(asked, path) == 200


#: Requests that are refused before a handler is asked, and their statuses.
ODD: Final = {
    b"GET\r\n\r\n": 400,
    b"nonsense\r\n\r\n": 400,
    b"GET /subjects HTTP/x\r\n\r\n": 400,
    b"GET /subjects\r\n\r\n": 403,
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n": 414,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200 + b"\r\n": 431,
    b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n": 501,
    b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n": 505,
    b"GET /subjects HTTP/1.1\r\nHost: elsewhere\r\n\r\n": 403,
    b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n": 404,
}


@pytest.mark.behaviour("Faults: hostile clients", "Every answer of every port over HTTP has a policy for browsers")
def test_every_answer_has_a_policy(server: tuple[LocalServer, str]) -> None:
    asked, path = server
    for request, code in {**ODD, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(): 200}.items():
        with connected(asked) as one:
            one.sendall(request)
            answer = http.client.HTTPResponse(one)
            answer.begin()
            assert answer.status == code, request[:60]
            assert (answer.headers["Content-Security-Policy"] or "").startswith("default-src 'none'"), request[:60]
            assert answer.headers.get_all("X-Content-Type-Options") == ["nosniff"], request[:60]


@pytest.mark.behaviour("Faults: hostile clients", "An accept that fails is said once, and does not spin")
def test_an_accept_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedRegistry() as registry:
        listening, registry.socket = registry.socket, _Full()  # type: ignore[assignment]
        for _ in range(2):
            with pytest.raises(OSError, match="Too many open files"):
                registry.get_request()
        registry.socket = listening
        assert status(registry, "/subjects") == 200
    (said,) = caplog.messages
    assert "cannot accept connections" in said and "Too many open files" in said


class _Full:
    def accept(self) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.behaviour("Faults: hostile clients", "Pages, metrics and registry leave the last files to the logs")
def test_the_last_files_are_left_free(
    server: tuple[LocalServer, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, path = server
    monkeypatch.setattr(local_server, "is_reserved", lambda descriptor: True)
    for _ in range(2):
        with connected(asked) as refused:
            assert refused.recv(1) == b""
    monkeypatch.setattr(local_server, "is_reserved", lambda descriptor: False)
    assert status(asked, path) == 200
    assert len([each for each in caplog.messages if "almost all files" in each]) == 1


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_server, "REQUEST_MS", 200)
    begun, goes_on = threading.Event(), threading.Event()

    def collect() -> list[Metric]:
        begun.set()
        goes_on.wait(30)
        return []

    with MetricsServer("127.0.0.1", 0, collect) as server, connected(server) as patient:
        patient.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(30)
        with connected(server) as silent:
            # It came later and is ended because of its time.
            assert silent.recv(1) == b""
        goes_on.set()
        assert b" 200 " in patient.recv(100)


def test_metrics_for_other_machines_may_be_asked_for_by_any_name() -> None:
    """As Prometheus does, by the name of a container; pages and registry are for names of this machine."""
    with MetricsServer("0.0.0.0", 0, list) as metrics, EmbeddedRegistry("0.0.0.0") as registry:
        for name, code in (("prom.example.com:9100", 200), ("10.0.0.7:9100", 200)):
            assert status(metrics, "/metrics", Host=name) == code
        assert status(metrics, "/metrics", Host="a.example", Origin="http://b.example") == 403
        assert status(registry, "/subjects", Host="prom.example.com") == 403


@pytest.mark.parametrize(
    ("target", "code"),
    [(f"/schemas/ids/{'9' * 5000}", 404), ("http://[::1/subjects", 400), (f"/subjects/a/versions/{'9' * 5000}", 404)],
)
def test_odd_addresses_are_answered(target: str, code: int) -> None:
    with EmbeddedRegistry() as registry:
        assert status(registry, target, Host="localhost") == code
