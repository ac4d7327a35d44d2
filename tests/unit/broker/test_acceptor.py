"""Accepting connections: round robin, with quotas, and without ever ending the acceptor."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from kafka_sink.broker.network import socket_server
from kafka_sink.broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from kafka_sink.broker.network.processor import AcceptedConnection
from kafka_sink.broker.network.socket_server import SELECT_TIMEOUT_MS, Acceptor
from tests.fakes.clock import FakeClock


class Listening:
    """A listener whose connections a test supplies."""

    def __init__(self) -> None:
        self.waiting: list[socket.socket | OSError] = []
        self.waits: list[int] = []
        self.closed = False

    def wait(self, timeout_ms: int) -> None:
        self.waits.append(timeout_ms)

    def accept(self) -> socket.socket | None:
        if not self.waiting:
            return None
        item = self.waiting.pop(0)
        if isinstance(item, OSError):
            raise item
        return item

    def wakeup(self) -> None:
        self.waits.append(-1)

    def close(self) -> None:
        self.closed = True


class Queue:
    """A processor with room for *room* connections; with may_block, it always accepts."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.got: list[AcceptedConnection] = []
        self.blocked = 0

    def accept(self, connection: AcceptedConnection, *, may_block: bool) -> bool:
        if len(self.got) >= self.room:
            if not may_block:
                return False
            self.blocked += 1
        self.got.append(connection)
        return True


class Bench:
    def __init__(self, processors: int = 3, room: int = 1000, **limits: object) -> None:
        self.clock = FakeClock()
        self.listener = Listening()
        self.queues = [Queue(room) for _ in range(processors)]
        self.quotas = ConnectionQuotas(ConnectionLimits(**limits), 1, self.clock)  # type: ignore[arg-type]
        self.acceptor = Acceptor("PLAINTEXT", self.listener, self.queues, self.quotas, self.clock)  # type: ignore[arg-type]
        self._server = socket.create_server(("127.0.0.1", 0))
        self.sockets: list[socket.socket] = []

    def client(self) -> socket.socket:
        client = socket.create_connection(self._server.getsockname())
        server, _ = self._server.accept()
        self.sockets += [client, server]
        self.listener.waiting.append(server)
        return server

    def close(self) -> None:
        self._server.close()
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def made() -> Iterator[list[Bench]]:
    benches: list[Bench] = []
    yield benches
    for bench in benches:
        bench.close()


@pytest.mark.behaviour("Acceptor", "Connections are given to the processors in turn")
def test_connections_are_dealt_out_in_turn(made: list[Bench]) -> None:
    made.append(bench := Bench())
    servers = [bench.client() for _ in range(7)]
    bench.acceptor.run_once()
    assert [[servers.index(item.sock) for item in queue.got] for queue in bench.queues] == [[0, 3, 6], [1, 4], [2, 5]]
    assert bench.listener.waits == [SELECT_TIMEOUT_MS]
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 7


@pytest.mark.behaviour("Acceptor", "A full processor is passed over, and the last one blocks")
def test_full_processor_is_skipped_and_the_last_asked_blocks(made: list[Bench]) -> None:
    made.append(bench := Bench(room=1))
    bench.queues[1].room = 0
    for _ in range(4):
        bench.client()
    bench.acceptor.run_once()
    assert sum(len(queue.got) for queue in bench.queues) == 4
    assert sum(queue.blocked for queue in bench.queues) == 2


def test_one_connection_too_many_of_an_address_is_closed(made: list[Bench]) -> None:
    made.append(bench := Bench(per_ip=2))
    servers = [bench.client() for _ in range(3)]
    bench.acceptor.run_once()
    assert [server.fileno() == -1 for server in servers] == [False, False, True]
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 2


@pytest.mark.behaviour("Acceptor", "A throttled connection is closed after its delay, also in the middle of a storm")
def test_a_throttled_connection_is_closed_after_its_delay(made: list[Bench]) -> None:
    made.append(bench := Bench(creation_rate_per_ip=1))
    servers = [bench.client() for _ in range(12)]
    bench.acceptor.run_once()
    last = servers[-1]
    assert last.fileno() != -1, "not closed at once"
    assert all(item.sock is not last for queue in bench.queues for item in queue.got)
    bench.clock.advance(12_000)
    bench.acceptor.run_once()
    assert last.fileno() == -1
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 10


@pytest.mark.behaviour("Acceptor", "A throttled connection is closed after its delay, also in the middle of a storm")
def test_throttled_connections_are_closed_during_a_storm(made: list[Bench]) -> None:
    made.append(bench := Bench(creation_rate_per_ip=1))
    servers = [bench.client() for _ in range(11)]
    bench.acceptor.run_once()
    throttled = servers[-1]
    bench.clock.advance(12_000)
    late = bench.client()
    bench.listener.accept = lambda: late  # type: ignore[method-assign]
    bench.acceptor.run_once()
    assert throttled.fileno() == -1, "there was always one more connection to accept"


@pytest.mark.behaviour(
    "Acceptor", "A system without file descriptors does not make the acceptor spin, and is said once"
)
def test_accept_error_makes_the_acceptor_pause(made: list[Bench], caplog: pytest.LogCaptureFixture) -> None:
    made.append(bench := Bench())
    bench.listener.waiting += [OSError(errno.EMFILE, "too many open files")] * 2
    bench.client()
    bench.acceptor.run_once()
    bench.acceptor.run_once()
    assert bench.clock.waits == [100, 100]
    bench.acceptor.run_once()
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 1
    (said,) = caplog.messages
    assert "cannot accept connections: [Errno 24] too many open files" in said


def test_connection_closed_before_accept_is_not_counted(made: list[Bench]) -> None:
    made.append(bench := Bench())
    bench.client().close()
    bench.client()
    bench.acceptor.run_once()
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 1


@pytest.mark.behaviour("Acceptor", "The acceptor survives every exception, and closes everything at its end")
def test_acceptor_survives_exceptions_and_closes_all_at_its_end(
    made: list[Bench], caplog: pytest.LogCaptureFixture
) -> None:
    made.append(bench := Bench(creation_rate_per_ip=1))
    servers = [bench.client() for _ in range(12)]
    rounds = 0

    def wait(timeout_ms: int) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise KeyError("a mistake")
        if rounds == 3:
            bench.acceptor.stop()

    bench.listener.wait = wait  # type: ignore[method-assign]
    bench.acceptor.run()
    assert "uncaught exception; the acceptor continues" in caplog.text
    assert bench.listener.closed
    assert servers[-1].fileno() == -1, "throttled sockets are closed at the end"


@pytest.mark.behaviour("Acceptor", "The last files that may be open are not used for connections")
def test_connections_leave_files_for_logs(
    made: list[Bench], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made.append(bench := Bench())
    served, *rest = [bench.client() for _ in range(3)]
    descriptors = [sock.fileno() for sock in rest]
    monkeypatch.setattr(socket_server, "is_reserved_for_local", lambda descriptor: descriptor in descriptors)
    bench.acceptor.run_once()
    assert [item.sock for queue in bench.queues for item in queue.got] == [served]
    assert [sock.fileno() for sock in rest] == [-1, -1]
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 1
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "almost all files that this process may open are in use" in said
