"""NetworkClient against brokers that the test simulates."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.client.connection.client_request import ClientRequest, ClientResponse
from kafka_sink.client.connection.connection_states import ConnectionFailure
from kafka_sink.client.connection.metadata_updater import MetadataUpdater
from kafka_sink.client.connection.network_client import NetworkClient
from kafka_sink.client.metadata.metadata import Metadata
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import AuthenticationError, ErrorCode
from kafka_sink.common.model import Node
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader, encode_response
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.log_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_sink.protocol.messages.produce import ProduceRequest, ProduceResponse
from kafka_sink.protocol.registry import APIS, api
from kafka_sink.protocol.schema import Struct
from tests.fakes.clock import FakeClock
from tests.fakes.metadata_answers import answer, partition, topic
from tests.fakes.selectable import FakeSelectable

BOOTSTRAP = Node(-1, "boot", 9092)
ONE, TWO = Node(1, "one", 9092), Node(2, "two", 9092)
LATEST = api(ApiKey.LIST_OFFSETS).versions.max


def all_versions(overrides: dict[ApiKey, tuple[int, int] | None] | None = None) -> ApiVersionsResponse:
    ranges = {key: (api.versions.min, api.versions.max) for key, api in APIS.items()} | (overrides or {})
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=limits[0], max_version=limits[1])
            for key, limits in ranges.items()
            if limits is not None
        ]
    )


class World:
    """A client, its fake network, and shortcuts for the actions of a broker."""

    def __init__(self, *, bootstrap: tuple[tuple[str, int], ...] = (("boot", 9092),), **config: object) -> None:
        self.clock = FakeClock()
        self.network = FakeSelectable(self.clock)
        self.config = ClientConfig(bootstrap_servers=("boot:9092",), **config)  # type: ignore[arg-type]
        self.metadata = Metadata(self.clock, 100, 300_000, 300_000)
        self.metadata.bootstrap(bootstrap)
        self.client = NetworkClient(
            self.config,
            selectable=self.network,
            metadata_updater=MetadataUpdater(self.metadata, self.config, allow_auto_topic_creation=True),
            clock=self.clock,
            client_id="me",
            resolver=lambda host, port: [SocketAddress(2, f"{host}-ip", port)],
        )
        self.answered: list[ClientResponse] = []

    @property
    def now(self) -> int:
        return self.clock.now_ms

    def poll(self, timeout_ms: int = 0, times: int = 1) -> list[ClientResponse]:
        """Return the responses of the last of *times* polls."""
        return [self.client.poll(timeout_ms, self.now) for _ in range(times)][-1]

    def begin(self, node: Node = ONE, polls: int = 1) -> None:
        """Connect; the second poll sends ApiVersions."""
        self.client.ready(node, self.now)
        self.poll(times=polls)

    def want_metadata(self, polls: int = 0) -> None:
        self.clock.advance(200)
        self.metadata.request_update()
        for _ in range(polls):
            self.poll()

    def sent(self, node: Node = ONE, **options: Any) -> ClientRequest:
        request = self.send(node, **options)
        self.poll()
        return request

    def reply(self, body: Struct, node: str = "1") -> list[ClientResponse]:
        self.network.reply(node, body)
        return self.poll()

    def lose(self, node: str, cause: str = "closed by the other side", **options: Any) -> list[ClientResponse]:
        self.network.lose(node, cause, **options)
        return self.poll()

    def request(
        self, node: Node = ONE, *, build: Callable[[int], Struct] | None = None, **options: Any
    ) -> ClientRequest:
        return self.client.new_request(
            node,
            ApiKey.LIST_OFFSETS,
            build or (lambda version: ListOffsetsRequest()),
            self.now,
            callback=self.answered.append,
            **options,
        )

    def send(self, node: Node = ONE, **options: Any) -> ClientRequest:
        request = self.request(node, **options)
        self.client.send(request, self.now)
        return request

    def skip_metadata(self) -> None:
        """Make the client believe that it has just received metadata with brokers 1 and 2."""
        self.metadata.update(
            answer(nodes=(ONE, TWO)), self.metadata.next_request(self.now), version=12, now_ms=self.now
        )

    def make_ready(self, node: Node = ONE, versions: ApiVersionsResponse | None = None) -> None:
        """Connect and negotiate versions."""
        self.client.ready(node, self.now)
        node_id = node.connection_id
        self.poll()
        assert self.network.connections[node_id].outgoing is not None
        self.poll()
        self.network.reply(node_id, versions or all_versions())
        self.poll()
        assert self.client.is_ready(node, self.now)

    def exchange(self) -> None:
        """Let broker 1 answer a request."""
        self.send()
        self.poll()
        self.network.reply("1", ListOffsetsResponse())
        self.poll()


@pytest.fixture
def world() -> World:
    """Metadata is fresh, nothing is connected."""
    world = World()
    world.skip_metadata()
    return world


def ready_world(**config: object) -> World:
    """Metadata is fresh, broker 1 is connected."""
    world = World(**config)  # type: ignore[arg-type]
    world.skip_metadata()
    world.make_ready()
    return world


# -- connecting


@pytest.mark.behaviour("NetworkClient", "ready() starts a connection and does not wait")
def test_ready_begins_to_connect_and_does_not_wait(world: World) -> None:
    assert not world.client.ready(ONE, world.now)
    assert not world.client.ready(ONE, world.now)
    assert world.network.connects == [("1", SocketAddress(2, "one-ip", 9092))]


def test_node_without_an_address_is_refused(world: World) -> None:
    with pytest.raises(ValueError, match="no address"):
        world.client.ready(Node(1, "", -1), world.now)


@pytest.mark.behaviour("ApiVersions", "ApiVersions is the first request on a connection, and callers do not see it")
def test_api_versions_is_the_first_request_and_stays_internal(world: World) -> None:
    world.begin()
    assert not world.client.is_ready(ONE, world.now)
    world.poll()
    [(header, body)] = world.network.requests("1")
    assert header.api_key is ApiKey.API_VERSIONS
    assert header.client_id == "me"
    assert isinstance(body, ApiVersionsRequest)
    assert (body.client_software_name, bool(body.client_software_version)) == ("kafkalite", True)
    assert world.client.api_versions.get("1") is None
    world.network.reply("1", all_versions())
    assert world.poll() == []
    assert world.client.ready(ONE, world.now)
    assert world.client.api_versions.get("1") is not None


def test_api_versions_wait_for_handshake_and_authentication(world: World) -> None:
    world.network.auto_ready = False
    world.begin(polls=2)
    assert world.network.connections["1"].frames == []
    world.network.connections["1"].ready = True
    world.poll(times=2)
    assert len(world.network.connections["1"].frames) == 1


@pytest.mark.behaviour("ApiVersions", "ApiVersions is asked again in a version that the broker has")
@pytest.mark.parametrize(("listed", "expected"), [(None, 0), (2, 2), (99, 3), (-2, 0)])
def test_api_versions_is_retried_in_a_version_the_broker_has(world: World, listed: int | None, expected: int) -> None:
    newest = APIS[ApiKey.API_VERSIONS].versions.max
    world.begin(polls=2)
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if listed is not None:
        refusal.api_keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=listed)]
    assert world.network.requests("1")[0][0].api_version == newest
    world.network.connections["1"].unanswered[0] = (
        RequestHeader(ApiKey.API_VERSIONS, 0, world.network.requests("1")[0][0].correlation_id, "me"),
        ApiVersionsRequest(),
    )
    world.reply(refusal)
    world.poll()
    assert world.network.requests("1")[0][0].api_version == min(expected, newest - 1)
    world.reply(all_versions())
    assert world.client.is_ready(ONE, world.now)


def test_a_broker_that_refuses_to_tell_its_versions_is_left(world: World) -> None:
    world.begin(polls=2)
    world.reply(ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert world.network.closed == ["1"]
    assert world.client.connection_failed(ONE)
    assert "CLUSTER_AUTHORIZATION_FAILED" in world.client.connection_failures()[0].cause


def test_connect_that_fails_at_once_is_retried_after_backoff(world: World) -> None:
    world.network.refusals["1"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    assert not world.client.ready(ONE, world.now)
    assert world.client.connection_failures() == (ConnectionFailure("one", 9092, "connection refused"),)
    delay_ms = world.client.poll_delay_ms(ONE, world.now)
    assert 40 <= delay_ms <= 60
    world.client.ready(ONE, world.now)
    assert len(world.network.connects) == 1
    world.clock.advance(delay_ms)
    world.skip_metadata()
    world.network.refusals.clear()
    world.make_ready()
    world.exchange()
    assert world.client.connection_failures() == ()
    assert world.client.peers.failure(ONE) is None


def test_a_connection_that_takes_too_long_is_given_up(world: World) -> None:
    world.network.auto_connect = False
    world.client.ready(ONE, world.now)
    timeout_ms = world.client.poll_delay_ms(ONE, world.now)
    assert 8_000 <= timeout_ms <= 12_000
    world.poll(FOREVER_MS)
    # The poll ends as soon as the timeout has passed.
    assert world.network.poll_timeouts[-1] == timeout_ms + 1
    assert world.network.closed == ["1"]
    [failure] = world.client.connection_failures()
    assert failure.cause == f"connection timed out: not established within {timeout_ms} ms"
    assert world.client.states.is_unreachable("1", 0)


def test_a_broker_that_stays_away_is_reported_aloud_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        world.client.ready(ONE, world.now)
        world.lose("1", "connection refused", state=ChannelState.NOT_CONNECTED)
        world.clock.advance(2_000)
    assert [record.getMessage() for record in caplog.records] == [
        "[client.id=me] broker 1 at one:9092: connection refused"
    ]


# -- sending and receiving


def test_a_request_and_its_answer(world: World) -> None:
    world.make_ready()
    request = world.send()
    assert world.client.in_flight_request_count() == world.client.in_flight_request_count("1") == 1
    world.poll()
    [(header, _)] = world.network.requests("1")
    assert (header.api_key, header.correlation_id) == (ApiKey.LIST_OFFSETS, request.correlation_id)
    world.clock.advance(7)
    [response] = world.reply(ListOffsetsResponse())
    assert world.answered == [response]
    assert (response.request, response.latency_ms, response.received_ms) == (request, 7, world.now)
    assert isinstance(response.body, ListOffsetsResponse)
    assert (response.disconnected, response.version_mismatch, response.cause) == (False, None, "")
    assert world.client.in_flight_request_count() == 0


@pytest.mark.behaviour("NetworkClient", "A node that is not ready is sent nothing")
def test_a_node_that_is_not_ready_is_sent_nothing(world: World) -> None:
    with pytest.raises(RuntimeError, match="node 1 which is not ready"):
        world.send()


@pytest.mark.behaviour("KafkaChannel", "A frame that the transport still holds keeps the node busy")
def test_a_frame_held_by_the_transport_keeps_the_node_busy(world: World) -> None:
    world.make_ready()
    world.network.lagging.add("1")
    world.sent()
    outgoing = world.network.connections["1"].outgoing
    assert outgoing is not None
    assert outgoing.completed
    assert not world.client.is_ready(ONE, world.now)
    with pytest.raises(RuntimeError, match="not ready"):
        world.send()
    world.network.lagging.clear()
    world.poll()
    assert world.client.is_ready(ONE, world.now)


def test_nothing_more_is_sent_while_a_frame_is_being_written(world: World) -> None:
    world.make_ready()
    world.network.held.add("1")
    world.sent()
    assert not world.client.ready(ONE, world.now)
    with pytest.raises(RuntimeError, match="not ready"):
        world.send()
    world.network.held.clear()
    world.poll()
    assert world.client.ready(ONE, world.now)


@pytest.mark.behaviour("KafkaChannel", "An answer may come before the slot is free")
def test_an_answer_may_come_before_the_slot_is_free(world: World) -> None:
    world.make_ready()
    world.network.lagging.add("1")
    request = world.sent()
    segments = encode_response(ApiKey.LIST_OFFSETS, LATEST, request.correlation_id, ListOffsetsResponse())
    world.network.receive("1", b"".join(map(bytes, segments)))
    [response] = world.poll()
    assert isinstance(response.body, ListOffsetsResponse)
    world.network.lagging.clear()
    assert world.poll() == []
    assert world.client.is_ready(ONE, world.now)


@pytest.mark.behaviour("InFlightRequests", "No more than max.in.flight.requests.per.connection requests are in flight")
def test_at_most_so_many_requests_are_in_flight() -> None:
    world = ready_world(max_in_flight_requests_per_connection=2)
    first = world.sent()
    second = world.sent()
    assert not world.client.ready(ONE, world.now)
    world.reply(ListOffsetsResponse())
    assert world.client.ready(ONE, world.now)
    world.reply(ListOffsetsResponse())
    assert [response.request for response in world.answered] == [first, second]


def test_request_uses_highest_common_version_up_to_its_maximum(world: World) -> None:
    world.make_ready(versions=all_versions({ApiKey.LIST_OFFSETS: (0, 7)}))
    built = []

    def build(version: int) -> Struct:
        built.append(version)
        return ListOffsetsRequest()

    world.sent(build=build)
    world.sent(build=build, max_version=4)
    assert [header.api_version for header, _ in world.network.requests("1")] == built == [7, 4]


def test_an_unknown_api_is_answered_without_the_network(world: World) -> None:
    world.make_ready(versions=all_versions({ApiKey.LIST_OFFSETS: None}))
    request = world.send()
    assert world.client.in_flight_request_count() == 0
    polls = len(world.network.poll_timeouts)
    [response] = world.poll(FOREVER_MS)
    assert len(world.network.poll_timeouts) == polls
    assert (response.request, response.body, response.disconnected) == (request, None, False)
    assert str(response.version_mismatch) == (
        "broker 1 at one:9092: the broker does not support LIST_OFFSETS; upgrade it to Apache Kafka 3.3 or newer"
    )
    assert world.answered == [response]
    assert world.client.ready(ONE, world.now)


def test_unencodable_body_is_answered_without_the_network(world: World) -> None:
    world.make_ready(versions=all_versions({ApiKey.LIST_OFFSETS: (1, 1)}))
    world.send(build=lambda version: ListOffsetsRequest(isolation_level=1))
    [response] = world.poll()
    assert response.version_mismatch is not None


@pytest.mark.behaviour("Protocol", "A request with acks=0 is done when it is written")
def test_request_without_response_completes_when_written(world: World) -> None:
    world.make_ready()
    world.network.held.add("1")
    request = world.client.new_request(
        "1", ApiKey.PRODUCE, lambda version: ProduceRequest(), world.now, expect_response=False
    )
    world.client.send(request, world.now)
    assert world.poll() == []
    world.network.held.clear()
    [response] = world.poll()
    assert (response.request, response.body, response.disconnected) == (request, None, False)


@pytest.mark.parametrize(
    ("key", "build", "is_answered", "ends_poll"),
    [
        (ApiKey.LIST_OFFSETS, ListOffsetsRequest, True, True),
        (ApiKey.PRODUCE, ProduceRequest, True, False),
        (ApiKey.PRODUCE, ProduceRequest, False, True),
    ],
)
def test_a_poll_ends_when_a_request_that_others_follow_is_sent(
    world: World, key: ApiKey, build: Callable[[], Struct], is_answered: bool, ends_poll: bool
) -> None:
    """A Sender has sent all its batches before it polls; other callers wait to send the next request."""
    world.make_ready()
    world.network.held.add("1")
    request = world.client.new_request("1", key, lambda version: build(), world.now, expect_response=is_answered)
    world.client.send(request, world.now)
    outgoing = world.network.connections["1"].outgoing
    assert outgoing is not None
    assert outgoing.ends_poll is ends_poll


@pytest.mark.behaviour("NetworkClient", "Callbacks run in order, and one that fails does not stop the others")
def test_callbacks_run_in_order_and_one_that_fails_stops_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.make_ready()
    world.make_ready(TWO)
    called: list[str] = []

    def fail(response: ClientResponse) -> None:
        called.append(response.request.destination)
        raise ZeroDivisionError

    for node in (ONE, TWO):
        request = world.client.new_request(
            node, ApiKey.LIST_OFFSETS, lambda version: ListOffsetsRequest(), world.now, callback=fail
        )
        world.client.send(request, world.now)
    world.poll()
    world.network.reply("1", ListOffsetsResponse())
    world.network.reply("2", ListOffsetsResponse())
    assert len(world.poll()) == 2
    assert called == ["1", "2"]
    assert sum("callback" in record.getMessage() for record in caplog.records) == 2


def test_throttling_holds_requests_back(world: World) -> None:
    world.make_ready()
    world.sent()
    world.reply(ListOffsetsResponse(throttle_time_ms=500))
    assert not world.client.ready(ONE, world.now)
    assert world.client.poll_delay_ms(ONE, world.now) == 500
    world.clock.advance(500)
    assert world.client.ready(ONE, world.now)


# -- losing connections


def test_lost_connection_fails_requests_oldest_first_with_cause(world: World) -> None:
    world.make_ready()
    requests = [world.send()]
    world.poll()
    requests.append(world.send())
    world.poll()
    responses = world.lose("1", "connection reset by the other side")
    assert [response.request for response in responses] == requests
    for response in responses:
        assert (response.disconnected, response.body) == (True, None)
        assert response.cause == "broker 1 at one:9092: connection reset by the other side"
    assert world.client.connection_failed(ONE)
    assert world.client.api_versions.get("1") is None
    assert world.metadata.time_to_next_update_ms(world.now) <= 120


def test_answers_received_before_a_disconnect_count(world: World) -> None:
    world.make_ready()
    answered = world.sent()
    lost = world.sent()
    [first] = world.reply(ListOffsetsResponse())
    [second] = world.lose("1")
    assert (first.request, first.disconnected, second.request, second.disconnected) == (answered, False, lost, True)


@pytest.mark.behaviour("NetworkClient", "A request without an answer closes its connection after request.timeout.ms")
def test_a_request_nobody_answers_ends_its_connection() -> None:
    world = ready_world(request_timeout_ms=1_000)
    late = world.sent()
    world.clock.advance(400)
    following = world.sent()
    [first, second] = world.poll(FOREVER_MS)
    assert world.network.poll_timeouts[-1] == 601
    assert [first.request, second.request] == [late, following]
    assert first.cause == f"broker 1 at one:9092: {late} was not answered within 1000 ms"
    assert world.network.closed == ["1"]


def test_a_request_may_have_its_own_timeout(world: World) -> None:
    world.make_ready()
    world.sent(timeout_ms=50)
    [response] = world.poll(FOREVER_MS)
    assert response.disconnected
    assert world.network.poll_timeouts[-1] == 51


@pytest.mark.parametrize(
    ("payload", "cause"),
    [(b"\0\0\0\x63" + bytes(5) + b"\1\0", "has the correlation id 99"), (b"\0\0", "response cannot be decoded")],
)
def test_an_answer_that_makes_no_sense_ends_the_connection(world: World, payload: bytes, cause: str) -> None:
    world.make_ready()
    world.sent()
    world.network.receive("1", payload)
    [response] = world.poll()
    assert response.disconnected
    assert cause in response.cause
    assert world.network.closed == ["1"]
    assert world.client.in_flight_request_count() == 0


def test_an_answer_nobody_asked_for_ends_the_connection(world: World) -> None:
    world.make_ready()
    world.network.receive("1", b"hello")
    assert world.poll() == []
    assert world.network.closed == ["1"]
    assert "sent a response without a request in flight" in world.client.connection_failures()[0].cause


def test_a_refusal_reaches_requests_waiters_and_the_report(world: World) -> None:
    world.begin()
    error = AuthenticationError("wrong password")
    world.lose("1", disconnect=Disconnect(ChannelState.AUTHENTICATION_FAILED, "wrong password", error))
    with pytest.raises(AuthenticationError, match="wrong password"):
        world.metadata.raise_if_fatal()
    assert world.client.connection_failures() == (ConnectionFailure("one", 9092, "wrong password"),)


def test_a_connection_that_expired_is_no_failure(world: World) -> None:
    world.make_ready()
    world.lose("1", "idle for more than 5 ms", state=ChannelState.EXPIRED)
    assert world.client.connection_failures() == ()


def test_losing_a_twin_of_a_working_connection_is_no_failure(world: World) -> None:
    twin = Node(-1, ONE.host, ONE.port)
    world.make_ready(ONE)
    world.make_ready(twin)
    world.lose("-1")
    assert world.client.connection_failures() == ()


#: The versions of ApiVersions to try with a peer that closes the connection at the newest version.
OLDER_VERSIONS_AFTER_CLOSE = (3, 0)
CAUSES_OF_PEERS = ["closed by the other side", "connection reset by the other side"]


def lose_at_api_versions(world: World, cause: str) -> None:
    """The peer closes the connection on which ApiVersions was just sent."""
    world.poll(times=2)
    assert world.network.requests("1")[0][0].api_key is ApiKey.API_VERSIONS
    world.lose("1", cause)


@pytest.mark.behaviour("ApiVersions", "A peer that closes at a version is asked an older one, and nothing is reported")
@pytest.mark.parametrize("cause", CAUSES_OF_PEERS)
@pytest.mark.parametrize("closes", [1, 2])
def test_peer_that_closes_at_a_version_is_asked_an_older_one(
    world: World, caplog: pytest.LogCaptureFixture, cause: str, closes: int
) -> None:
    expected = OLDER_VERSIONS_AFTER_CLOSE[closes - 1]
    world.begin()
    for _ in range(closes):
        lose_at_api_versions(world, cause)
    world.poll(times=2)
    assert world.network.requests("1")[0][0].api_version == expected
    world.reply(all_versions({ApiKey.API_VERSIONS: (0, expected)}))
    assert world.client.is_ready(ONE, world.now)
    assert world.client.connection_failures() == ()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    # Other nodes of its cluster receive no version that the peer does not list.
    world.begin(TWO, polls=2)
    assert world.network.requests("2")[0][0].api_version == expected


def test_peer_that_lists_negative_versions_is_asked_the_oldest(world: World) -> None:
    world.begin()
    lose_at_api_versions(world, CAUSES_OF_PEERS[0])
    world.poll(times=2)
    world.reply(all_versions({ApiKey.API_VERSIONS: (0, -2)}))
    world.begin(TWO, polls=2)
    assert world.network.requests("2")[0][0].api_version == 0


def test_connection_lost_by_chance_lowers_no_api_version(world: World) -> None:
    world.begin()
    lose_at_api_versions(world, CAUSES_OF_PEERS[1])
    world.poll(times=2)
    world.reply(all_versions())
    world.begin(TWO, polls=2)
    assert world.network.requests("2")[0][0].api_version == APIS[ApiKey.API_VERSIONS].versions.max


@pytest.mark.parametrize("cause", CAUSES_OF_PEERS)
def test_connection_closed_before_any_answer_hints_at_protocol(world: World, cause: str) -> None:
    hint = " before it answered any request; check that security.protocol=PLAINTEXT is the protocol of that listener"
    world.make_ready()
    world.lose("1", cause)
    assert [failure.cause for failure in world.client.connection_failures()] == [cause]
    world.clock.advance(2_000)
    world.begin()
    for _ in OLDER_VERSIONS_AFTER_CLOSE:
        lose_at_api_versions(world, cause)
        assert not world.client.connection_failed(ONE)
    lose_at_api_versions(world, cause)
    assert [failure.cause for failure in world.client.connection_failures()] == [cause + hint]


@pytest.mark.behaviour("Connection states", "A listener that only answers ApiVersions is retried with growing backoff")
def test_listener_that_only_answers_api_versions(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A SASL listener does so if the client uses SSL."""
    waits_ms = []
    for _ in range(5):
        world.skip_metadata()
        world.make_ready()
        world.sent()
        world.lose("1", "closed by the other side")
        waits_ms.append(world.client.poll_delay_ms(ONE, world.now))
        world.clock.advance(waits_ms[-1])
    assert waits_ms == sorted(waits_ms) and waits_ms[-1] >= 800 * 0.8
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "closed by the other side before it answered any request; check that security.protocol=PLAINTEXT" in said
    world.skip_metadata()
    world.make_ready()
    world.exchange()
    assert world.client.connection_failures() == ()
    world.lose("1", "closed by the other side")
    assert world.client.poll_delay_ms(ONE, world.now) <= 60


# -- metadata


@pytest.mark.behaviour("Metadata", "Metadata is requested before data")
def test_metadata_is_requested_before_data(world: World) -> None:
    world.make_ready()
    world.metadata.add("t", world.now)
    assert not world.client.ready(ONE, world.now)
    world.poll()
    # The request is sent and has no response yet: from here on, data may be sent as well.
    assert world.client.ready(ONE, world.now)
    assert [header.api_key for header, _ in world.network.requests("1")] == [ApiKey.METADATA]


def test_metadata_is_fetched_from_bootstrap_without_being_asked() -> None:
    world = World()
    world.metadata.add("t", world.now)
    world.poll()
    assert world.network.connects == [("-1", SocketAddress(2, "boot-ip", 9092))]
    world.poll(times=2)
    world.reply(all_versions(), node="-1")
    assert not world.client.is_ready(BOOTSTRAP, world.now)
    world.poll()
    [(header, body)] = world.network.requests("-1")
    assert header.api_key is ApiKey.METADATA
    assert body == MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    # The request is in flight, so data may be sent again.
    assert world.client.is_ready(BOOTSTRAP, world.now)
    world.network.reply("-1", answer(topic("t", partition(0, 1)), nodes=(ONE, TWO)))
    assert world.poll() == []
    assert world.metadata.fetch().partition_count("t") == 1
    assert not world.metadata.fetch().is_bootstrap


def test_failed_connect_is_reported_beside_a_living_connection(world: World) -> None:
    bootstrap = Node(-1, ONE.host, ONE.port)
    world.make_ready(bootstrap)
    world.network.refusals["1"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    world.begin()
    assert world.client.connection_failures() == (ConnectionFailure("one", 9092, "connection refused"),)
    world.network.refusals = {}
    world.clock.advance(2_000)
    world.skip_metadata()
    world.make_ready(ONE)
    world.exchange()
    assert world.client.connection_failures() == ()


@pytest.mark.behaviour("Metadata", "One metadata request is under way at a time")
def test_one_metadata_request_at_a_time(world: World) -> None:
    world.make_ready()
    world.want_metadata(polls=1)
    world.metadata.request_update()
    for _ in range(5):
        world.poll()
    assert len(world.network.requests("1")) == 1
    # While it is in flight, the poll may wait for its response, but not indefinitely.
    world.poll(FOREVER_MS)
    assert world.network.poll_timeouts[-1] <= world.config.request_timeout_ms


def test_a_lost_metadata_request_is_tried_again_after_a_backoff(world: World) -> None:
    world.make_ready()
    world.make_ready(TWO)
    world.want_metadata(polls=2)
    [asked] = [node for node in ("1", "2") if world.network.requests(node)]
    world.network.lose(asked)
    assert world.poll() == []
    assert world.metadata.time_to_next_update_ms(world.now) > 0
    world.clock.advance(200)
    other = "2" if asked == "1" else "1"
    world.poll(times=2)
    assert [header.api_key for header, _ in world.network.requests(other)] == [ApiKey.METADATA]


def test_metadata_without_brokers_is_ignored(world: World) -> None:
    world.make_ready()
    world.clock.advance(200)
    version = world.metadata.request_update()
    world.poll(times=2)
    world.reply(answer(nodes=()))
    assert world.metadata.update_version == version
    assert world.metadata.time_to_next_update_ms(world.now) > 0


def test_while_no_node_can_be_used_polls_are_short() -> None:
    world = World()
    world.network.refusals["-1"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    world.poll(FOREVER_MS)
    world.poll(FOREVER_MS)
    assert max(world.network.poll_timeouts) <= 1000


@pytest.mark.behaviour("Metadata", "A cluster whose brokers are all gone is looked for through the bootstrap servers")
def test_unreachable_cluster_is_looked_for_via_bootstrap(world: World) -> None:
    world.network.refusals = {"1": ConnectionRefusedError(), "2": ConnectionRefusedError()}
    world.want_metadata()
    for _ in range(10):
        world.poll(FOREVER_MS)
        if ("-1", SocketAddress(2, "boot-ip", 9092)) in world.network.connects:
            break
    else:
        pytest.fail("the bootstrap address was not tried")
    assert world.metadata.fetch().is_bootstrap


def test_recovered_brokers_are_retried_before_rebootstrapping(world: World) -> None:
    world.network.refusals = {"1": ConnectionRefusedError(), "2": ConnectionRefusedError()}
    world.want_metadata()
    while not world.metadata.fetch().is_bootstrap:
        world.poll(FOREVER_MS)
    world.skip_metadata()
    world.network.refusals = {}
    world.clock.advance(300_000)
    world.network.connects.clear()
    for _ in range(3):
        world.poll()
    assert not world.metadata.fetch().is_bootstrap
    assert {connection for connection, _ in world.network.connects} <= {"1", "2"}


def test_without_rebootstrap_known_brokers_are_retried_forever() -> None:
    world = World(metadata_recovery_strategy="none")
    world.skip_metadata()
    world.network.refusals = {"1": ConnectionRefusedError(), "2": ConnectionRefusedError()}
    world.metadata.request_update()
    for _ in range(30):
        world.poll(FOREVER_MS)
    assert {connection for connection, _ in world.network.connects} == {"1", "2"}


@pytest.mark.behaviour("Metadata", "Brokers may tell a client to start again from the bootstrap servers (KIP-1102)")
def test_rebootstrap_required_resets_metadata_to_bootstrap(world: World) -> None:
    world.make_ready()
    world.want_metadata(polls=2)
    response = answer()
    response.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
    world.reply(response)
    assert world.metadata.fetch().is_bootstrap
    assert "1" not in world.network.connections


def ask_in_vain(world: World, for_ms: int) -> None:
    """Request metadata, and answer each request without any broker, for *for_ms* or until the client disconnects."""
    until_ms = world.now + for_ms
    while world.now < until_ms and "1" in world.network.connections:
        world.metadata.request_update()
        if world.network.requests("1"):
            world.network.reply("1", answer(nodes=()))
        world.poll()
        world.clock.advance(500)


@pytest.mark.behaviour("Metadata", "Brokers that answer without metadata for long are left for the bootstrap servers")
def test_brokers_without_metadata_for_long_cause_rebootstrap() -> None:
    world = ready_world(metadata_recovery_rebootstrap_trigger_ms=5_000)
    ask_in_vain(world, 4_000)
    assert not world.metadata.fetch().is_bootstrap
    world.send()
    world.clock.advance(2_500)
    world.poll()
    assert world.metadata.fetch().is_bootstrap
    assert "1" not in world.network.connections
    assert [response.disconnected for response in world.answered] == [True]


def test_successful_update_restarts_the_rebootstrap_time() -> None:
    world = ready_world(metadata_recovery_rebootstrap_trigger_ms=5_000)
    for _ in range(3):
        ask_in_vain(world, 4_000)
        while not world.network.requests("1"):
            world.poll()
            world.clock.advance(500)
        world.reply(answer(nodes=(ONE, TWO)))
    assert not world.metadata.fetch().is_bootstrap


def test_without_rebootstrap_brokers_without_metadata_are_kept() -> None:
    world = ready_world(metadata_recovery_strategy="none", metadata_recovery_rebootstrap_trigger_ms=5_000)
    ask_in_vain(world, 20_000)
    assert not world.metadata.fetch().is_bootstrap
    assert "1" in world.network.connections


def test_a_broker_without_our_metadata_versions_is_fatal(world: World) -> None:
    world.make_ready(versions=all_versions({ApiKey.METADATA: (90, 99)}))
    world.want_metadata(polls=1)
    with pytest.raises(Exception, match="supports METADATA versions 90 to 99"):
        world.metadata.raise_if_fatal()


# -- the least loaded node


@pytest.mark.behaviour("NetworkClient", "The least loaded node is one that is idle and ready")
def test_an_idle_ready_node_is_least_loaded(world: World) -> None:
    world.make_ready(ONE)
    world.make_ready(TWO)
    world.sent(ONE)
    for _ in range(20):
        assert world.client.least_loaded_node(world.now) == TWO
    world.sent(TWO)
    world.sent(TWO)
    for _ in range(20):
        assert world.client.least_loaded_node(world.now) == ONE


def test_a_node_that_is_being_connected_is_better_than_a_new_one(world: World) -> None:
    world.network.auto_connect = False
    world.client.ready(TWO, world.now)
    for _ in range(20):
        assert world.client.least_loaded_node(world.now) == TWO


def test_least_recently_failed_node_is_chosen_to_connect(world: World) -> None:
    for node in (TWO, ONE):
        world.network.refusals[node.connection_id] = ConnectionRefusedError()
        world.client.initiate_connect(node, world.now)
        world.clock.advance(10)
    assert world.client.least_loaded_node(world.now) is None
    world.clock.advance(1000)
    for _ in range(20):
        assert world.client.least_loaded_node(world.now) == TWO


# -- further cases


def test_wakeup_reaches_the_network(world: World) -> None:
    world.client.wakeup()
    world.client.poll(FOREVER_MS, world.now)


def test_a_network_that_fails_to_poll_is_survived(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(timeout_ms: int) -> None:
        raise OSError("out of descriptors")

    monkeypatch.setattr(world.network, "poll", fail)
    assert world.poll() == []


def test_closed_client_refuses_calls_and_close_is_idempotent(world: World) -> None:
    world.make_ready()
    world.client.close()
    world.client.close()
    assert world.network.is_closed
    for call in (world.poll, world.send):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_correlation_ids_grow_and_leave_out_those_of_sasl(world: World) -> None:
    first, second = world.request(), world.request()
    assert second.correlation_id == first.correlation_id + 1
    # Private: reaching this id would take two billion requests.
    world.client._correlation_id = 2**31 - 9
    assert [world.request().correlation_id for _ in range(2)] == [2**31 - 9, 0]


def test_produce_answers_carry_their_throttle_time(world: World) -> None:
    world.make_ready()
    request = world.client.new_request("1", ApiKey.PRODUCE, lambda version: ProduceRequest(), world.now)
    world.client.send(request, world.now)
    world.poll()
    [response] = world.reply(ProduceResponse(throttle_time_ms=20))
    assert isinstance(response.body, ProduceResponse)
    assert world.client.poll_delay_ms(ONE, world.now) == 20
