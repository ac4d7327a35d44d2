"""A client's NetworkClient and a broker's Processor, each over its own selector, while one seed decides how bytes move.

Requests and responses have various sizes; responses come whole, in pieces or not at all (acks=0), some throttled; with
SASL the client re-authenticates in the middle. A connection that was ready refuses no request, none fails, and each is
answered once, with its own response, in the order of the requests.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from kafka_sink.broker.network.processor import AcceptedConnection, Processor
from kafka_sink.broker.network.request_channel import (
    EndThrottlingResponse,
    NoOpResponse,
    Request,
    RequestChannel,
    SendResponse,
    StartThrottlingResponse,
)
from kafka_sink.broker.network.sasl_authenticator import SaslServerAuthenticator
from kafka_sink.client.connection.client_request import ClientResponse
from kafka_sink.client.connection.metadata_updater import MetadataUpdater
from kafka_sink.client.connection.network_client import NetworkClient
from kafka_sink.client.login.sasl_authenticator import SaslClientAuthenticator
from kafka_sink.client.metadata.metadata import Metadata
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.model import Node
from kafka_sink.common.sasl_mechanisms import ScramCredential
from kafka_sink.network.channel.authenticator import Authenticator
from kafka_sink.network.frames import UNLIMITED_MEMORY_POOL, FrameReader, NetworkReceive
from kafka_sink.network.polling.selector import KSelector
from kafka_sink.network.sasl.scram import ScramClient, ScramServer
from kafka_sink.network.transport.listener import Listener
from kafka_sink.network.transport.transport import TransportLayer
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.framing import frame
from kafka_sink.protocol.header import decode_request_body, encode_response
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsResponse
from kafka_sink.protocol.messages.group_members import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import Struct
from tests.fakes.clock import FakeClock
from tests.fakes.hesitant import WAYS, channel_builder
from tests.fakes.metadata_answers import answer
from tests.support.amounts import examples

SIZES = (0, 100, 16_300, 70_000)
REQUESTS = 26
PATIENCE = 100_000
SESSION_MS = 10_000
MECHANISM = "SCRAM-SHA-256"
KEYS = {"alice": ScramCredential.of(MECHANISM, "secret")}
KNOWN = (ApiKey.API_VERSIONS, ApiKey.SYNC_GROUP, ApiKey.PRODUCE, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=key, min_version=api(key).versions.min, max_version=api(key).versions.max) for key in KNOWN
    ]
)


class CountingSelector(KSelector):
    """Counts the re-authentications of a client."""

    authenticated_again = 0

    def begin_reauthentication(self, connection_id: str, request: NetworkReceive) -> bool:
        began = super().begin_reauthentication(connection_id, request)
        self.authenticated_again += began
        return began


class Broker:
    """A processor, and handlers that take some time."""

    def __init__(self, rng: random.Random, clock: FakeClock, way: str, sasl: bool) -> None:
        self.rng = rng
        self.listener = Listener("127.0.0.1", 0)
        builder = channel_builder(way, rng, server=True, authenticators=self._authenticator if sasl else None)
        self._clock = clock
        self.selector = CountingSelector(builder, clock)
        self.channel = RequestChannel(100)
        quotas = ConnectionQuotas(ConnectionLimits(), 1, clock)
        quotas.inc("L", "127.0.0.1")
        self.processor = Processor(0, "L", self.selector, self.channel, quotas, clock)
        self._pending: deque[Request] = deque()

    def _authenticator(
        self, connection_id: str, transport: TransportLayer, reader: FrameReader, peer_host: str
    ) -> Authenticator:
        return SaslServerAuthenticator(
            {MECHANISM: lambda: ScramServer(MECHANISM, KEYS.get)},
            transport,
            reader,
            clock=self._clock,
            config=BrokerConfig(connections_max_reauth_ms=SESSION_MS),
            memory_pool=UNLIMITED_MEMORY_POOL,
            answer_versions=lambda body, version: (VERSIONS, version),
        )

    def accept(self) -> None:
        self.listener.wait(10_000)
        accepted = self.listener.accept()
        assert accepted is not None
        self.processor.accept(AcceptedConnection(accepted, "127.0.0.1"), may_block=False)

    def step(self) -> None:
        # The next poll must not wait.
        self.selector.wakeup()
        self.processor.run_once()
        while self.channel.queued:
            request = self.channel.receive_request()
            assert request is not None
            self._pending.append(request)
        while self._pending and self.rng.random() < 0.7:
            self._answer(self._pending.popleft())

    def _answer(self, request: Request) -> None:
        header = request.context.header
        if header.api_key is ApiKey.PRODUCE:
            self.channel.send_response(NoOpResponse(request))
            return
        throttled = self.rng.random() < 0.2
        if throttled:
            self.channel.send_response(StartThrottlingResponse(request))
        body: Struct = VERSIONS
        if header.api_key is ApiKey.SYNC_GROUP:
            asked = decode_request_body(header, request.payload, request.body_offset)
            assert isinstance(asked, SyncGroupRequest)
            body = SyncGroupResponse(assignment=answer_to(asked))
        segments = encode_response(header.api_key, header.api_version, header.correlation_id, body)
        if self.rng.random() < 0.3:
            request.release()
            self._send_pieces(request, b"".join(map(bytes, frame(segments))))
        else:
            self.channel.send_response(SendResponse(request, segments))
        if throttled:
            self.channel.send_response(EndThrottlingResponse(request))

    def _send_pieces(self, request: Request, data: bytes) -> None:
        end = self.rng.randint(0, len(data))
        then = partial(self._send_pieces, request, data[end:]) if data[end:] else partial(self._end, request)
        self.channel.send_response(SendResponse(request, [data[:end]], then, is_whole=False))

    def _end(self, request: Request) -> None:
        self.channel.send_response(NoOpResponse(request))

    def close(self) -> None:
        self.selector.close()
        self.listener.close()


def answer_to(asked: SyncGroupRequest) -> bytes:
    """Return a response of a random size that is unlike any other."""
    number = asked.generation_id
    return bytes(asked.assignments[0].assignment[:8]) + bytes(SIZES[number % len(SIZES)])


class Client:
    """Sends requests whenever the connection allows it, and records their outcomes."""

    def __init__(self, rng: random.Random, clock: FakeClock, way: str, sasl: bool, broker: Broker) -> None:
        self.rng = rng
        self.clock = clock
        self.node = Node(1, "127.0.0.1", broker.listener.address.port)
        builder = channel_builder(way, rng, server=False, authenticators=self._authenticator if sasl else None)
        config = ClientConfig(
            bootstrap_servers=("127.0.0.1:1",), request_timeout_ms=2**31 - 1, metadata_recovery_strategy="none"
        )
        metadata = Metadata(clock, 100, 2**40, 2**40)
        metadata.bootstrap([("127.0.0.1", self.node.port)])
        metadata.update(
            answer(nodes=(self.node,)), metadata.next_request(clock.now_ms), version=12, now_ms=clock.now_ms
        )
        updater = MetadataUpdater(metadata, config, allow_auto_topic_creation=False)
        self.client = NetworkClient(
            config, selectable=KSelector(builder, clock), metadata_updater=updater, clock=clock, client_id="me"
        )
        self.sent: list[tuple[int, bytes | None]] = []
        self.ended: list[tuple[int, bytes | None]] = []

    def _authenticator(
        self, connection_id: str, transport: TransportLayer, reader: FrameReader, peer_host: str
    ) -> Authenticator:
        begin = partial(ScramClient, MECHANISM, "alice", "secret")
        return SaslClientAuthenticator(MECHANISM, begin, transport, reader, clock=self.clock, client_id="me")

    def send(self) -> bool:
        """Send a request if one may be sent."""
        if not self.client.ready(self.node, self.clock.now_ms):
            return False
        number = len(self.sent)
        asked = SyncGroupRequest(
            group_id="g", generation_id=number, member_id="m",
            assignments=[SyncGroupRequestAssignment(assignment=self.rng.randbytes(8) + bytes(self.rng.choice(SIZES)))]
        )  # fmt: skip
        expects = self.rng.random() < 0.8
        request = self.client.new_request(
            self.node,
            ApiKey.SYNC_GROUP if expects else ApiKey.PRODUCE,
            lambda version: asked if expects else ProduceRequest(acks=0),
            self.clock.now_ms,
            expect_response=expects,
            callback=partial(self._take, number),
        )
        self.sent.append((number, answer_to(asked) if expects else None))
        self.client.send(request, self.clock.now_ms)
        return True

    def _take(self, number: int, response: ClientResponse) -> None:
        assert (response.disconnected, response.version_mismatch, response.cause) == (False, None, "")
        body = response.body
        self.ended.append((number, bytes(body.assignment) if isinstance(body, SyncGroupResponse) else None))

    def poll(self) -> None:
        self.client.poll(0, self.clock.now_ms)


@pytest.mark.behaviour(
    "Slow transports", "Each request is answered once by its own answer, over transports that move any number of bytes"
)
@pytest.mark.parametrize("sasl", [False, True], ids=["open", "SASL"])
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(24), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_request_is_answered_once_by_its_own_answer(way: str, sasl: bool, seed: int) -> None:
    rng, clock = random.Random(seed), FakeClock()
    with contextlib.ExitStack() as stack:
        broker = Broker(rng, clock, way, sasl)
        stack.callback(broker.close)
        client = Client(rng, clock, way, sasl, broker)
        stack.callback(client.client.close)
        client.send()
        broker.accept()
        sessions = 1
        for _ in range(PATIENCE):
            if len(client.sent) < REQUESTS and rng.random() < 0.5:
                client.send()
            if sasl and len(client.sent) > 8 * sessions and broker.selector.authenticated_again == sessions - 1:
                # The session is about to end.
                clock.advance(SESSION_MS * 96 // 100)
                sessions += 1
            rng.choice((client.poll, broker.step))()
            if len(client.ended) == REQUESTS:
                break
        answers = [entry for entry in client.sent if entry[1] is not None]
        assert [entry for entry in client.ended if entry[1] is not None] == answers
        assert sorted(number for number, _ in client.ended) == list(range(REQUESTS))
        assert broker.selector.authenticated_again == (3 if sasl else 0)
