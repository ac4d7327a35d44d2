"""The seven steps of a network thread, over a selectable without sockets."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from kafka_sink.broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from kafka_sink.broker.network.processor import (
    CONNECTION_QUEUE_SIZE,
    AcceptedConnection,
    ClientConnection,
    Processor,
)
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    EndThrottlingResponse,
    NoOpResponse,
    Request,
    RequestChannel,
    Response,
    SendResponse,
    StartThrottlingResponse,
)
from kafka_sink.common.threads import start_thread
from kafka_sink.network.frames import MemoryPool, NetworkSend
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_request
from kafka_sink.protocol.messages.connection import SaslHandshakeRequest
from kafka_sink.protocol.messages.metadata import MetadataRequest
from tests.fakes.clock import FakeClock
from tests.fakes.server_selectable import FakeServerSelectable

#: Reasons for which a connection is muted: its request has no response yet, or its client is throttled.
NOTHING, UNANSWERED, THROTTLED = (False, False), (True, False), (False, True)

STEPS = [
    "_configure_new_connections",
    "_process_new_responses",
    "_poll",
    "_process_completed_receives",
    "_process_completed_sends",
    "_process_disconnected",
    "_close_excess_connections",
]


def frame(correlation_id: int = 1) -> bytes:
    return b"".join(map(bytes, encode_request(ApiKey.METADATA, 1, correlation_id, "me", MetadataRequest(None))))


class Bench:
    """A processor with all of its dependencies."""

    def __init__(self, **limits: int) -> None:
        self.selectable = FakeServerSelectable()
        self.channel = RequestChannel(100)
        self.quotas = ConnectionQuotas(ConnectionLimits(**limits), 1, FakeClock())  # type: ignore[arg-type]
        self.processor = Processor(0, "PLAINTEXT", self.selectable, self.channel, self.quotas, FakeClock())
        self.sockets: list[socket.socket] = []

    def accepted(self) -> AcceptedConnection:
        listener = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        listener.close()
        self.sockets += [client, server]
        self.quotas.inc("PLAINTEXT", "127.0.0.1")
        return AcceptedConnection(server, "127.0.0.1")

    def connect(self) -> str:
        before = set(self.connection_ids)
        assert self.processor.accept(self.accepted(), may_block=False)
        self.processor.run_once()
        (new,) = set(self.connection_ids) - before
        return new

    def respond(self, response: Response) -> None:
        self.channel.send_response(response)
        self.processor.run_once()

    def arrive(self, connection_id: str, data: bytes, pool: MemoryPool | None = None) -> None:
        self.selectable.arrive(connection_id, data, *([pool] if pool else ()))
        self.processor.run_once()

    def leave(self, connection_id: str) -> None:
        self.selectable.leave(connection_id)
        self.processor.run_once()

    def request(self, connection_id: str, correlation_id: int = 1) -> Request:
        self.arrive(connection_id, frame(correlation_id))
        request = self.channel.receive_request()
        assert request is not None and request.context.header.correlation_id == correlation_id
        return request

    @property
    def connection_ids(self) -> tuple[str, ...]:
        """The ids of the open connections, in numerical order; the processor has the same number."""
        found = sorted(self.selectable.open, key=lambda one: int(one.rpartition("-")[2]))
        assert len(found) == len(self._connections())
        return tuple(found)

    def held_by(self, connection_id: str) -> tuple[bool, bool]:
        """Whether its request has no response yet, and whether its client is throttled."""
        connection = self._connections()[connection_id]
        return connection.unanswered, connection.throttled

    def _connections(self) -> dict[str, ClientConnection]:
        # Private: the public interface shows only that a connection is muted, and not the events that it waits for.
        return self.processor._connections


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for sock in made.sockets:
        sock.close()


@pytest.mark.behaviour("Processor", "A processor takes its steps in Kafka's order")
def test_the_steps_come_in_kafkas_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    for step in STEPS:
        monkeypatch.setattr(Processor, step, lambda _, step=step: ran.append(step))
    bench.processor.run_once()
    assert ran == STEPS


@pytest.mark.behaviour("Processor", "A connection id names both ends and a number")
def test_connection_ids_name_both_ends_and_are_unique(bench: Bench) -> None:
    first, second = bench.connect(), bench.connect()
    local, remote, index = first.split("-")
    assert local.startswith("127.0.0.1:") and remote.startswith("127.0.0.1:") and index == "0"
    assert second.endswith("-1")


@pytest.mark.behaviour("Processor", "A poll waits for 300 ms, or not at all while connections are queued")
def test_polling_waits_unless_connections_are_queued(bench: Bench) -> None:
    bench.processor.run_once()
    for _ in range(CONNECTION_QUEUE_SIZE):
        bench.processor.accept(bench.accepted(), may_block=False)
    bench.processor.run_once()
    polls = [timeout for call, timeout in bench.selectable.calls if call == "poll"]
    assert polls == [300, 300]


def test_polling_does_not_wait_for_a_connection_of_its_round(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is accepted between the first step and the third, while a response unmutes another connection."""
    request = bench.request(bench.connect())
    monkeypatch.setattr(
        bench.selectable, "unmute", lambda connection_id: bench.processor.accept(bench.accepted(), may_block=False)
    )
    bench.processor.enqueue_response(NoOpResponse(request))
    bench.processor.run_once()
    assert bench.selectable.calls[-1] == ("poll", 0)


@pytest.mark.behaviour("Processor", "A request is queued, its connection muted, and the event noted")
def test_a_request_is_queued_then_muted_then_noted(bench: Bench) -> None:
    connection = bench.connect()
    order: list[str] = []
    bench.channel.send_request = lambda request: order.append("queue")  # type: ignore[method-assign]
    bench.selectable.mute = lambda connection_id: order.append("mute")  # type: ignore[method-assign]
    bench.arrive(connection, frame())
    assert order == ["queue", "mute"]
    assert bench.held_by(connection) == UNANSWERED


@pytest.mark.behaviour("Processor", "One request of a connection is in process at a time, and answers leave in order")
def test_one_request_of_a_connection_is_in_process_at_a_time(bench: Bench) -> None:
    connection = bench.connect()
    first = bench.request(connection, 1)
    bench.arrive(connection, frame(2))
    assert bench.channel.queued == 0, "the second one waits for the first one's answer"
    bench.respond(SendResponse(first, [b"answer"]))
    assert ("unmute", connection) in bench.selectable.calls
    bench.processor.run_once()
    second = bench.channel.receive_request()
    assert second is not None and second.context.header.correlation_id == 2


@pytest.mark.behaviour("Processor", "Requests of other connections are not held up")
def test_requests_of_other_connections_are_not_held_up(bench: Bench) -> None:
    one, two = bench.connect(), bench.connect()
    bench.request(one)
    bench.request(two)


@pytest.mark.behaviour("Processor", "Only a response that is in flight may complete")
def test_send_response_fills_the_slot_until_the_send_completes(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    bench.selectable.hold_sends = True
    bench.respond(SendResponse(request, [b"he", b"llo"]))
    assert [(send.destination, send.size) for send in bench.selectable.sent] == [(connection, 4 + 5)]
    assert bench.held_by(connection) == UNANSWERED
    bench.selectable.hold_sends = False
    bench.processor.run_once()
    assert bench.held_by(connection) == NOTHING
    assert connection not in bench.selectable.muted


@pytest.mark.behaviour("Processor", "The handler hears once that its answer has left or never will")
@pytest.mark.behaviour("Processor", "The answer in flight of a connection that is lost is over")
@pytest.mark.parametrize("end", ["sent", "disconnected", "closed", "gone before"])
def test_handler_is_told_once_that_answer_left_or_never_will(bench: Bench, end: str) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    completed: list[str] = []
    bench.selectable.hold_sends = end != "sent"
    if end == "gone before":
        bench.leave(connection)
    bench.channel.send_response(SendResponse(request, [b"x"], lambda: completed.append(end)))
    if end == "disconnected":
        bench.selectable.leave(connection)
    bench.processor.run_once()
    if end == "closed":
        assert completed == []
        bench.channel.send_response(CloseConnectionResponse(request))
    bench.processor.run_once()
    assert completed == [end]


ANSWERS: dict[str, Callable[[Request], Response]] = {
    "an answer": lambda request: SendResponse(request, [b"x"]),
    "nothing": NoOpResponse,
    "the end": CloseConnectionResponse,
}


@pytest.mark.behaviour("Processor", "The answer gives the memory of its request back")
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_memory_of_a_request_goes_back_with_its_answer(bench: Bench, answer: str) -> None:
    connection, pool = bench.connect(), MemoryPool(1000)
    bench.arrive(connection, frame(), pool)
    request = bench.channel.receive_request()
    assert request is not None and pool.available_bytes == 1000 - len(frame())
    bench.respond(ANSWERS[answer](request))
    assert pool.available_bytes == 1000


@pytest.mark.behaviour("Processor", "A response for a connection that is closing fails at once")
def test_answer_refused_by_a_taken_slot_still_completes(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    completed: list[int] = []
    bench.selectable.hold_sends = True
    for number in range(2):
        bench.channel.send_response(SendResponse(request, [b"x"], lambda number=number: completed.append(number)))  # type: ignore[misc]
    bench.processor.run_once()
    assert sorted(completed) == [0, 1], "the slot was taken: that is a mistake, and costs the connection"
    assert bench.connection_ids == ()


@pytest.mark.behaviour("RequestChannel", "A response for a processor that is gone is dropped")
@pytest.mark.behaviour("SocketServer", "A handler hears that its answer will not be sent any more")
def test_answers_after_the_processor_stopped_still_complete(bench: Bench) -> None:
    request = bench.request(bench.connect())
    completed: list[str] = []
    bench.channel.send_response(SendResponse(request, [b"x"], lambda: completed.append("queued")))
    bench.processor.stop()
    bench.processor.run()
    bench.channel.send_response(SendResponse(request, [b"x"], lambda: completed.append("late")))
    assert completed == ["queued", "late"]


def test_every_ended_request_is_counted_in_the_metrics(bench: Bench) -> None:
    for respond in (lambda request: SendResponse(request, [b"x"]), NoOpResponse, CloseConnectionResponse):
        request = bench.request(bench.connect())
        bench.respond(respond(request))
    gone = bench.connect()
    request = bench.request(gone)
    bench.leave(gone)
    bench.respond(SendResponse(request, [b"x"]))
    assert bench.processor.request_metrics.by_api[ApiKey.METADATA].count == 4


@pytest.mark.behaviour("Processor", "A no-op response reads on without sending")
def test_a_no_op_response_reads_on_without_sending(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    bench.respond(NoOpResponse(request))
    assert connection not in bench.selectable.muted
    assert not any(call == "send" for call, _ in bench.selectable.calls)


@pytest.mark.behaviour("Processor", "A close response closes the connection")
def test_a_close_response_closes_and_counts_out(bench: Bench) -> None:
    connection = bench.connect()
    bench.respond(CloseConnectionResponse(bench.request(connection)))
    assert bench.connection_ids == ()
    assert ("close", connection) in bench.selectable.calls
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0


@pytest.mark.behaviour(
    "Throttling and quotas", "A throttled connection is read again when the answer has left and the time has passed"
)
@pytest.mark.parametrize("end_first", [True, False])
def test_throttled_connection_resumes_after_send_and_time(bench: Bench, end_first: bool) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    bench.channel.send_response(StartThrottlingResponse(request))
    bench.selectable.hold_sends = end_first
    bench.respond(SendResponse(request, [b"x"]))
    if end_first:
        bench.respond(EndThrottlingResponse(request))
        assert bench.held_by(connection) == UNANSWERED
        bench.selectable.hold_sends = False
    else:
        assert bench.held_by(connection) == THROTTLED
        bench.channel.send_response(EndThrottlingResponse(request))
    assert connection in bench.selectable.muted
    bench.processor.run_once()
    assert bench.held_by(connection) == NOTHING
    assert connection not in bench.selectable.muted


@pytest.mark.behaviour("Processor", "A response of an unknown kind closes the connection")
def test_an_unknown_kind_of_response_closes_its_connection(bench: Bench) -> None:
    bad, good = bench.connect(), bench.connect()
    request = bench.request(bad)

    class Strange:
        def __init__(self) -> None:
            self.request = request

    bench.processor.enqueue_response(Strange())  # type: ignore[arg-type]
    bench.processor.run_once()
    assert bench.connection_ids == (good,)


@pytest.mark.behaviour("Processor", "A response out of turn closes the connection")
def test_a_response_out_of_turn_closes_its_connection(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    bench.channel.send_response(NoOpResponse(request))
    bench.respond(NoOpResponse(request))
    assert bench.connection_ids == ()


@pytest.mark.behaviour("Processor", "A response for a connection that is gone is dropped")
def test_a_response_for_a_connection_that_is_gone_is_dropped(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    bench.leave(connection)
    for response in (
        SendResponse(request, [b"x"]),
        NoOpResponse(request),
        EndThrottlingResponse(request),
        CloseConnectionResponse(request),
    ):
        bench.channel.send_response(response)
    bench.processor.run_once()
    assert bench.selectable.sent == []
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0


@pytest.mark.behaviour("Processor", "A frame that is no request closes its connection and no other")
@pytest.mark.parametrize("garbage", [b"", b"\0", b"\xff" * 30, b"GET / HTTP/1.1\r\n\r\n", frame()[:9]])
def test_a_frame_that_is_no_request_costs_only_its_connection(bench: Bench, garbage: bytes) -> None:
    bad, good = bench.connect(), bench.connect()
    pool = MemoryPool(1000)
    bench.selectable.arrive(bad, garbage, pool)
    bench.arrive(good, frame(5))
    assert bench.connection_ids == (good,)
    assert pool.available_bytes == 1000
    request = bench.channel.receive_request()
    assert request is not None and request.context.connection_id == good


@pytest.mark.behaviour("Processor", "A request of a connection that is unknown or closed is refused")
def test_request_of_an_unknown_connection_is_refused(bench: Bench) -> None:
    bench.arrive("unknown", frame())
    assert bench.channel.queued == 0
    assert ("close", "unknown") in bench.selectable.calls


@pytest.mark.behaviour("Processor", "A request of a connection that is unknown or closed is refused")
def test_request_of_connection_closed_meanwhile_is_dropped(bench: Bench) -> None:
    connection = bench.connect()
    bench.selectable.arrive(connection, frame())
    bench.selectable.during_poll = lambda: bench.selectable.close_connection(connection)
    bench.processor.run_once()
    assert bench.channel.queued == 0 and bench.connection_ids == ()
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0


@pytest.mark.behaviour("Processor", "Only a response that is in flight may complete")
def test_completed_send_not_in_flight_closes_the_connection(bench: Bench) -> None:
    connection = bench.connect()
    bench.request(connection)
    bench.selectable.during_poll = lambda: bench.selectable.completed_sends.append(NetworkSend(connection, [b"?"]))
    bench.processor.run_once()
    assert bench.connection_ids == ()


@pytest.mark.behaviour("Processor", "A client that did not authenticate again in time is closed and counted")
def test_client_late_to_reauthenticate_is_closed_and_counted(bench: Bench) -> None:
    connection = bench.connect()
    bench.selectable.expired.add(connection)
    bench.arrive(connection, frame())
    assert bench.connection_ids == () and bench.channel.queued == 0
    assert bench.processor.expired_sessions == 1


@pytest.mark.behaviour("Processor", "A handshake that begins a new authentication is no request")
@pytest.mark.parametrize("begins", [True, False])
def test_reauthentication_handshake_is_no_request(bench: Bench, begins: bool) -> None:
    connection = bench.connect()
    bench.selectable.reauthenticates = begins
    # A client with an expired session may send this handshake and nothing else.
    bench.selectable.expired.update([connection] if begins else [])
    handshake = encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, None, SaslHandshakeRequest("PLAIN"))
    bench.arrive(connection, b"".join(map(bytes, handshake)))
    assert bench.connection_ids == (connection,)
    assert bench.channel.queued == (0 if begins else 1)
    assert bench.held_by(connection) == (NOTHING if begins else UNANSWERED)


@pytest.mark.behaviour("Processor", "A socket that died before it was registered is counted out")
@pytest.mark.parametrize("error", [OSError("it is gone"), ValueError("a mistake")], ids=repr)
def test_socket_dead_before_registration_is_counted_out(bench: Bench, error: Exception) -> None:
    bench.selectable.register_error = error
    bench.processor.accept(bench.accepted(), may_block=False)
    bench.processor.run_once()
    assert bench.connection_ids == ()
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0


@pytest.mark.behaviour("Processor", "Results of a poll that failed are processed")
def test_results_of_a_poll_that_failed_are_processed(bench: Bench) -> None:
    connection = bench.connect()
    bench.selectable.poll_error = OSError("select failed")
    bench.arrive(connection, frame())
    assert bench.channel.queued == 1


@pytest.mark.behaviour("Processor", "A connection that is lost is counted out")
def test_disconnected_connections_are_counted_out(bench: Bench) -> None:
    connection = bench.connect()
    bench.leave(connection)
    assert bench.connection_ids == ()
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0


@pytest.mark.behaviour("Processor", "One excess connection is closed per pass")
def test_one_excess_connection_is_closed_per_loop() -> None:
    bench = Bench()
    try:
        connections = [bench.connect() for _ in range(3)]
        bench.quotas.update(ConnectionLimits(total=1))
        bench.processor.run_once()
        assert len(bench.connection_ids) == 2
        bench.processor.run_once()
        bench.processor.run_once()
        assert bench.connection_ids == (max(connections),)
    finally:
        for sock in bench.sockets:
            sock.close()


@pytest.mark.behaviour("Processor", "The queue of new connections has 20 places, and refuses or blocks beyond")
def test_a_full_queue_refuses_or_blocks_until_there_is_room(bench: Bench) -> None:
    for _ in range(CONNECTION_QUEUE_SIZE):
        assert bench.processor.accept(bench.accepted(), may_block=False)
    extra = bench.accepted()
    assert not bench.processor.accept(extra, may_block=False)
    blocked = start_thread("acceptor", lambda: bench.processor.accept(extra, may_block=True))
    bench.processor.run_once()
    blocked.join(60)
    assert not blocked.is_alive()
    bench.processor.run_once()
    assert len(bench.connection_ids) == CONNECTION_QUEUE_SIZE + 1


@pytest.mark.behaviour("Processor", "No exception ends a processor")
def test_processor_survives_exceptions_and_closes_all_at_its_end(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = bench.accepted()
    bench.connect()
    polls = 0

    def fail_once_then_stop() -> None:
        nonlocal polls
        polls += 1
        if polls == 1:
            raise KeyError("a mistake")
        bench.processor.accept(waiting, may_block=False)
        bench.processor.stop()

    bench.selectable.during_poll = fail_once_then_stop
    bench.processor.run()
    assert polls == 2
    assert "uncaught exception; the processor continues" in caplog.text
    assert bench.selectable.closed and bench.connection_ids == ()
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0
    # A connection that is accepted after the end is closed too.
    late = bench.accepted()
    assert bench.processor.accept(late, may_block=True)
    assert late.sock.fileno() == -1
    assert bench.quotas.counts().get("PLAINTEXT", 0) == 0


@pytest.mark.behaviour("Processor", "Every connection and every response wakes the poll")
def test_responses_and_connections_wake_the_poll(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    before = bench.selectable.wakeups
    bench.channel.send_response(NoOpResponse(request))
    assert bench.selectable.wakeups == before + 1


def handshake() -> bytes:
    return b"".join(map(bytes, encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, None, SaslHandshakeRequest("PLAIN"))))


def test_handshake_is_a_request_unless_reauthentication_is_due(bench: Bench) -> None:
    connection = bench.connect()
    bench.selectable.reauthenticates = True
    bench.arrive(connection, handshake())
    assert (bench.channel.queued, connection in bench.selectable.muted) == (0, False)
    bench.selectable.reauthenticates = False
    bench.arrive(connection, handshake())
    assert (bench.channel.queued, connection in bench.selectable.muted) == (1, True)


def test_requests_carry_principal_and_expired_session_closes(bench: Bench) -> None:
    late, good = bench.connect(), bench.connect()
    assert bench.request(late).context.principal == f"User:{late}"
    bench.processor.enqueue_response(NoOpResponse(bench.request(good)))
    bench.selectable.muted.clear()
    bench.selectable.expired.add(late)
    bench.arrive(late, frame(2))
    assert (bench.connection_ids, bench.channel.queued) == ((good,), 0)


@pytest.mark.behaviour("Faults on demand", "Half of an answer leaves, and then the connection closes")
def test_piece_response_is_unframed_and_leaves_request_pending(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    told: list[str] = []
    bench.selectable.hold_sends = True
    bench.respond(SendResponse(request, [b"half"], lambda: told.append("piece"), is_whole=False))
    assert [send.size for send in bench.selectable.sent] == [len(b"half")] and told == []
    bench.selectable.hold_sends = False
    bench.processor.run_once()
    assert told == ["piece"]
    assert bench.held_by(connection) == UNANSWERED
    bench.respond(NoOpResponse(request))
    assert bench.held_by(connection) == NOTHING
    assert told == ["piece"]


def test_piece_response_completes_when_its_connection_is_gone(bench: Bench) -> None:
    connection = bench.connect()
    request = bench.request(connection)
    told: list[str] = []
    bench.leave(connection)
    bench.respond(SendResponse(request, [b"half"], lambda: told.append("first"), is_whole=False))
    assert told == ["first"]
    bench.processor.stop()
    bench.processor.run()
    bench.channel.send_response(SendResponse(request, [b"more"], lambda: told.append("second"), is_whole=False))
    assert told == ["first", "second"]
