"""Client's and broker's authenticator over a pipe: the order of frames, sessions that end, and refused clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.network.sasl_authenticator import SaslServerAuthenticator
from kafka_sink.client.login.sasl_authenticator import MIN_RESERVED_CORRELATION_ID, SaslClientAuthenticator
from kafka_sink.common.errors import AuthenticationError, ErrorCode, InvalidReceiveError, ProtocolError
from kafka_sink.common.sasl_mechanisms import ScramCredential
from kafka_sink.network.frames import (
    READ_AHEAD_BYTES,
    UNLIMITED,
    UNLIMITED_MEMORY_POOL,
    FrameReader,
    NetworkReceive,
)
from kafka_sink.network.sasl.mechanism import ClientExchange, PlainClient, PlainServer
from kafka_sink.network.sasl.scram import ScramClient, ScramServer
from kafka_sink.network.transport.transport import READ, WRITE
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_header, decode_response, encode_request, encode_response
from kafka_sink.protocol.messages.connection import (
    ApiVersion,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.schema import Struct
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each
from tests.support.messages import request_body

PASSWORDS = {"alice": "secret", "bob": "b"}
KEYS = {"alice": ScramCredential.of("SCRAM-SHA-256", "secret")}
VERSIONS = [ApiVersion(17, 0, 1), ApiVersion(36, 0, 2)]


class End:
    """One end of a pipe, which accepts *room* bytes; it refuses further bytes, or holds them."""

    is_connected = ready = True
    handshake_events = 0
    peer_subject = None

    def __init__(self) -> None:
        self.incoming = bytearray()
        self.other: End
        self.room = 1 << 30
        self.holds = False
        self.held = bytearray()

    def read_into(self, target: memoryview) -> int:
        count = min(len(target), len(self.incoming))
        target[:count] = self.incoming[:count]
        del self.incoming[:count]
        return count

    def write(self, buffers: Sequence[memoryview]) -> int:
        data = b"".join(buffers)
        self.held += data if self.holds else data[: self.room]
        leaves = self.held[: self.room]
        del self.held[: self.room]
        self.room -= len(leaves)
        self.other.incoming += leaves
        return len(data) if self.holds else len(leaves)

    def has_pending_writes(self) -> bool:
        return bool(self.held)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"an authenticator needs no {name}")


class World:
    """Both authenticators of one connection."""

    def __init__(self, begin: ClientExchange | None = None, mechanism: str = "PLAIN", **config: Any) -> None:
        self.clock = FakeClock()
        self.ours, self.theirs = End(), End()
        self.ours.other, self.theirs.other = self.theirs, self.ours
        scratch = memoryview(bytearray(READ_AHEAD_BYTES))
        self.reader = FrameReader("s", UNLIMITED, UNLIMITED_MEMORY_POOL, scratch)
        ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self.client_reader = FrameReader("c", UNLIMITED, UNLIMITED_MEMORY_POOL, ahead)
        self.client = SaslClientAuthenticator(
            mechanism, begin or (lambda: PlainClient("alice", "secret")), self.ours, self.client_reader,
            clock=self.clock, client_id="me"
        )  # fmt: skip
        self.server = SaslServerAuthenticator(
            {"PLAIN": lambda: PlainServer(PASSWORDS), "SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", KEYS.get)},
            self.theirs, self.reader, clock=self.clock, config=BrokerConfig(**config),
            memory_pool=UNLIMITED_MEMORY_POOL,
            answer_versions=lambda body, version: (ApiVersionsResponse(api_keys=VERSIONS), version)
        )  # fmt: skip

    def run(self) -> None:
        for _ in range(10):
            if not self.client.complete:
                self.client.authenticate()
            if not self.server.complete:
                self.server.authenticate()

    def asks(self, key: ApiKey, version: int, *values: Any) -> None:
        frame = b"".join(map(bytes, encode_request(key, version, 7, None, request_body(key, *values))))
        self.theirs.incoming += len(frame).to_bytes(4, "big") + frame

    def answers(self) -> list[bytes]:
        frames = []
        while self.ours.incoming:
            size = int.from_bytes(self.ours.incoming[:4], "big")
            frames.append(bytes(self.ours.incoming[4 : 4 + size]))
            del self.ours.incoming[: 4 + size]
        return frames


def scram(name: str = "alice", password: str = "secret") -> ClientExchange:
    return lambda: ScramClient("SCRAM-SHA-256", name, password)


@with_each(("mechanism", "begin"), [("PLAIN", None), ("SCRAM-SHA-256", scram())])
@with_each("room", [1, 5, 1 << 30])
@with_each("holds", [False, True])
def test_sasl_completes_however_the_bytes_are_split(mechanism: str, begin: Any, room: int, holds: bool) -> None:
    world = World(begin, mechanism)
    world.ours.holds = world.theirs.holds = holds
    assert (world.client.complete, world.server.complete, world.server.principal) == (False, False, "User:ANONYMOUS")
    for _ in range(3000):
        world.ours.room = world.theirs.room = room
        world.run()
    assert (world.client.complete, world.server.complete, world.server.principal) == (True, True, "User:alice")
    assert not world.client.wants_reauthentication
    assert not world.server.session_expired


def test_the_clients_requests_have_ids_of_their_own() -> None:
    world = World()
    ids = []
    for _ in range(4):
        world.client.authenticate()
        if world.theirs.incoming:
            header, _ = decode_request_header(bytes(world.theirs.incoming[4:]))
            ids.append((header.api_key.name, header.api_version, header.correlation_id - MIN_RESERVED_CORRELATION_ID))
        world.server.authenticate()
    assert ids == [("API_VERSIONS", 0, 0), ("SASL_HANDSHAKE", 1, 1), ("SASL_AUTHENTICATE", 2, 2)]


def test_authentication_refusal_is_delayed_and_hides_password() -> None:
    world = World(lambda: PlainClient("alice", "s3cr3t"))
    with pytest.raises(AuthenticationError, match="Invalid username or password"):
        world.run()
    assert not world.ours.incoming
    world.server.send_failure()
    with pytest.raises(
        AuthenticationError, match=r"the broker refused the authentication \(PLAIN\): Authentication failed"
    ) as error:
        world.client.authenticate()
    assert error.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "s3cr3t" not in str(error.value)


def test_disabled_mechanism_is_answered_with_enabled_ones() -> None:
    world = World(mechanism="GSSAPI")
    with pytest.raises(AuthenticationError, match="not one of PLAIN, SCRAM-SHA-256"):
        world.run()
    with pytest.raises(AuthenticationError, match=r"set sasl\.mechanism to one of PLAIN, SCRAM-SHA-256"):
        world.client.authenticate()


@pytest.mark.behaviour("SASL", "Clients that have not authenticated get nowhere")
@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.METADATA, 9, MetadataRequest([])),
        (ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")),
    ],
)
def test_requests_before_authentication_are_refused(key: ApiKey, version: int, body: Struct) -> None:
    world = World()
    world.asks(key, version, body)
    with pytest.raises(AuthenticationError, match=f"unexpected {key.name} request"):
        world.server.authenticate()
    world.server.send_failure()
    assert world.answers() == []


@pytest.mark.behaviour("SASL", "Clients that have not authenticated get nowhere")
def test_no_client_holds_the_thread_by_requests_before_its_login() -> None:
    world = World()
    for _ in range(101):
        world.asks(ApiKey.API_VERSIONS, 0)
    with pytest.raises(AuthenticationError, match="more requests at once than a login has"):
        world.server.authenticate()


def test_a_client_keeps_few_responses_during_its_login() -> None:
    world = World()
    world.client.authenticate()
    world.server.authenticate()
    world.ours.incoming += 101 * b"\0\0\0\4\0\0\0\0"
    with pytest.raises(ProtocolError, match="ends too early"):
        world.client.authenticate()


def test_nothing_but_tokens_follows_the_handshake() -> None:
    world = World()
    world.asks(ApiKey.SASL_HANDSHAKE, 1, "PLAIN")
    world.server.authenticate()
    world.asks(ApiKey.SASL_HANDSHAKE, 1, "PLAIN")
    with pytest.raises(AuthenticationError, match="unexpected SASL_HANDSHAKE"):
        world.server.authenticate()


def test_frame_limit_is_small_until_the_client_has_authenticated() -> None:
    world = World(sasl_server_max_receive_size=1000, socket_request_max_bytes=5000)
    world.theirs.incoming += (1001).to_bytes(4, "big")
    with pytest.raises(InvalidReceiveError, match="1001 bytes is larger than the limit of 1000"):
        world.server.authenticate()
    world = World(sasl_server_max_receive_size=1000, socket_request_max_bytes=5000)
    world.run()
    world.theirs.incoming += (5000).to_bytes(4, "big") + b"x" * 5000
    received = world.reader.read_from(world.theirs.read_into)
    assert received is not None
    assert len(received.payload) == 5000


def test_bare_tokens_follow_a_handshake_of_version_0() -> None:
    world = World()
    world.asks(ApiKey.SASL_HANDSHAKE, 0, "PLAIN")
    token = b"\0alice\0secret"
    world.theirs.incoming += len(token).to_bytes(4, "big") + token
    world.server.authenticate()
    assert (world.server.principal, world.answers()[1:]) == ("User:alice", [b""])


def test_before_login_api_versions_work_and_bad_versions_fail() -> None:
    world = World()
    world.asks(ApiKey.API_VERSIONS, 4, "x", "1")
    world.server.authenticate()
    [answer] = world.answers()
    assert decode_response(ApiKey.API_VERSIONS, 4, answer)[0] == 7
    frame = (17).to_bytes(2, "big") + (9).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\xff\xff\0\5PLAIN"
    world.theirs.incoming += len(frame).to_bytes(4, "big") + frame
    with pytest.raises(ProtocolError, match="no version 9"):
        world.server.authenticate()


# -- sessions


def again(world: World) -> None:
    """Do the work of channel and processor: the client's first frame reaches the broker as a request."""
    assert world.client.begin_reauthentication(None)
    world.client.authenticate()
    size = int.from_bytes(world.theirs.incoming[:4], "big")
    request = NetworkReceive("s", memoryview(bytes(world.theirs.incoming[4 : 4 + size])))
    del world.theirs.incoming[: 4 + size]
    assert world.server.begin_reauthentication(request)
    assert not world.server.complete


@pytest.mark.behaviour("SASL", "A session is renewed before it ends")
@pytest.mark.parametrize(("mechanism", "begin"), [("PLAIN", None), ("SCRAM-SHA-256", scram())])
def test_a_session_is_renewed_before_it_ends(mechanism: str, begin: Any) -> None:
    world = World(begin, mechanism, connections_max_reauth_ms=10_000)
    world.run()
    world.clock.advance(8_499)
    assert not world.client.wants_reauthentication
    world.clock.advance(1_001)
    assert (world.client.wants_reauthentication, world.server.session_expired) == (True, False)
    # The response to an earlier request arrives first, and goes to its sender.
    world.ours.incoming += b"\0\0\0\5\0\0\0\x07x"
    again(world)
    world.run()
    assert (world.client.complete, world.server.complete) == (True, True)
    received = world.client.take_received()
    assert received is not None
    assert (bytes(received.payload), world.client.take_received()) == (b"\0\0\0\x07x", None)
    world.clock.advance(9_999)
    assert not world.server.session_expired
    world.clock.advance(2)
    assert world.server.session_expired


@pytest.mark.behaviour(
    "Slow transports", "A server takes authentication frames while its own handshake bytes cannot leave"
)
@pytest.mark.parametrize("holds", [False, True])
def test_answers_are_taken_while_the_handshake_cannot_leave(holds: bool) -> None:
    world = World(connections_max_reauth_ms=10_000)
    world.run()
    world.ours.room, world.ours.holds = 3, holds
    assert world.client.begin_reauthentication(None)
    world.client.authenticate()
    assert world.client.wanted_events == READ | WRITE
    world.ours.incoming += b"\0\0\0\5\0\0\0\x07x"
    world.client.authenticate()
    received = world.client.take_received()
    assert received is not None
    assert bytes(received.payload) == b"\0\0\0\x07x"
    world.ours.room = 1 << 30
    world.client.authenticate()
    assert (world.client.wanted_events, world.ours.held) == (READ, b"")


def test_an_answer_before_its_request_has_left_is_refused() -> None:
    world = World(connections_max_reauth_ms=10_000)
    world.run()
    world.ours.room = 3
    assert world.client.begin_reauthentication(None)
    world.client.authenticate()
    asked = MIN_RESERVED_CORRELATION_ID + 3
    segments = encode_response(ApiKey.SASL_HANDSHAKE, 1, asked, SaslHandshakeResponse(mechanisms=["PLAIN"]))
    answer = b"".join(map(bytes, segments))
    world.ours.incoming += len(answer).to_bytes(4, "big") + answer
    with pytest.raises(ProtocolError, match="arrived before its request was sent"):
        world.client.authenticate()


def test_a_broker_that_cannot_answer_reads_nothing_more() -> None:
    world = World()
    world.theirs.room = 3
    world.asks(ApiKey.API_VERSIONS, 0)
    world.server.authenticate()
    assert world.server.wanted_events == WRITE
    world.asks(ApiKey.SASL_HANDSHAKE, 1, "PLAIN")
    waiting = len(world.theirs.incoming)
    world.server.authenticate()
    assert len(world.theirs.incoming) == waiting
    world.theirs.room = 1 << 30
    world.server.authenticate()
    assert (world.server.wanted_events, len(world.answers())) == (READ, 2)


def test_a_refusal_that_is_partly_written_goes_on() -> None:
    world = World()
    world.theirs.room, world.theirs.holds = 3, True
    world.asks(ApiKey.SASL_HANDSHAKE, 1, "GSSAPI")
    with pytest.raises(AuthenticationError, match="not one of PLAIN"):
        world.server.authenticate()
    world.theirs.room = 1 << 30
    world.server.send_failure()
    [answer] = world.answers()
    assert decode_response(ApiKey.SASL_HANDSHAKE, 1, answer)[0] == 7


@pytest.mark.behaviour("SASL", "A client that authenticates again keeps its principal")
def test_reauthentication_may_not_change_the_principal() -> None:
    credentials = iter([("alice", "secret"), ("bob", "b")])
    world = World(lambda: PlainClient(*next(credentials)), connections_max_reauth_ms=10_000)
    world.run()
    again(world)
    with pytest.raises(AuthenticationError, match="must not change the principal"):
        world.run()
    assert world.server.principal == "User:alice"


def test_reauthentication_may_not_change_the_mechanism() -> None:
    world = World(connections_max_reauth_ms=10_000)
    world.run()
    request = b"".join(
        map(bytes, encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, None, SaslHandshakeRequest(mechanism="SCRAM-SHA-256")))
    )
    assert world.server.begin_reauthentication(NetworkReceive("s", memoryview(request)))
    world.asks(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"))
    with pytest.raises(AuthenticationError, match="must use PLAIN again"):
        world.server.authenticate()


def test_reauthentication_must_be_needed_and_not_too_frequent() -> None:
    world = World()
    world.run()
    assert not world.server.begin_reauthentication(NetworkReceive("s", memoryview(b"")))
    world = World(connections_max_reauth_ms=10_000)
    world.run()
    again(world)
    world.run()
    world.clock.advance(999)
    assert not world.server.begin_reauthentication(NetworkReceive("s", memoryview(b"")))
    world.clock.advance(1)
    again(world)


@pytest.mark.behaviour(
    "SASL", "However short a session is, a client authenticates again after a second at the earliest"
)
def test_a_client_does_not_authenticate_again_within_a_second() -> None:
    world = World(connections_max_reauth_ms=1)
    world.run()
    world.clock.advance(999)
    assert not world.client.wants_reauthentication
    world.clock.advance(1)
    assert world.client.wants_reauthentication


@pytest.mark.behaviour("Faults: hostile servers", "A broker gets memory for large responses only once it is known")
def test_large_responses_are_read_only_after_authentication() -> None:
    world = World()
    world.client.authenticate()
    world.ours.incoming += (512 * 1024 + 1).to_bytes(4, "big")
    with pytest.raises(InvalidReceiveError, match="524289 bytes is larger than the limit of 524288"):
        world.client.authenticate()
    known = World()
    known.run()
    assert known.client.complete
    known.ours.incoming += (512 * 1024 + 1).to_bytes(4, "big") + bytes(512 * 1024 + 1)
    assert known.client_reader.read_from(known.ours.read_into) is not None
