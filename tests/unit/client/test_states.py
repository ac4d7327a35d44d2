"""Connection states, in-flight requests, API versions, throttling, connection failures."""

from __future__ import annotations

import socket

import pytest

from kafka_sink.client.connection.api_versions import ApiVersions, NodeApiVersions, allowed_versions, throttle_ms
from kafka_sink.client.connection.client_request import ClientRequest, InFlightRequest, InFlightRequests
from kafka_sink.client.connection.connection_states import (
    ClusterConnectionStates,
    ConnectionFailure,
    ConnectionState,
    Peers,
)
from kafka_sink.common.clock import FOREVER_MS, ExponentialBackoff
from kafka_sink.common.errors import UnsupportedVersionError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node
from kafka_sink.network.transport.resolver import SocketAddress
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_sink.protocol.messages.produce import ProduceResponse
from kafka_sink.protocol.schema import VersionRange

NODE = Node(1, "broker", 9092)


class Dns:
    """Returns the given addresses, and counts the lookups."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.questions = 0

    def __call__(self, host: str, port: int) -> list[SocketAddress]:
        self.questions += 1
        if not self.hosts:
            raise OSError(f"cannot resolve host name {host!r}")
        return [SocketAddress(socket.AF_INET, address, port) for address in self.hosts]


def states(dns: Dns | None = None) -> ClusterConnectionStates:
    """Without jitter, so that the numbers are predictable."""
    return ClusterConnectionStates(
        ExponentialBackoff(50, 1000, jitter=0), ExponentialBackoff(10_000, 30_000, jitter=0), dns or Dns("10.0.0.1")
    )


def connect(subject: ClusterConnectionStates, *, ready: bool = True) -> None:
    subject.connecting(NODE, 0)
    subject.checking_api_versions("1")
    if ready:
        subject.ready("1")


def lose(subject: ClusterConnectionStates, now_ms: int, node: Node = NODE) -> None:
    subject.connecting(node, now_ms)
    subject.disconnected(node.connection_id, now_ms)


# -- connection states


def test_an_unknown_node_may_be_connected_to() -> None:
    subject = states()
    assert subject.can_connect("1", 0)
    assert (subject.poll_delay_ms("1", 0), subject.state("1"), subject.is_preparing("1")) == (0, None, False)
    assert not subject.is_disconnected("1")
    assert not subject.is_unreachable("1", 0)
    assert subject.last_attempt_ms("1") == -FOREVER_MS


def test_connection_states_on_the_way_to_ready() -> None:
    subject = states()
    assert str(subject.connecting(NODE, 0)) == "10.0.0.1:9092"
    assert subject.state("1") is ConnectionState.CONNECTING
    assert (subject.is_preparing("1"), subject.is_any_connecting, subject.can_connect("1", 10**6)) == (
        True,
        True,
        False,
    )
    subject.checking_api_versions("1")
    assert (subject.is_preparing("1"), subject.is_any_connecting, subject.is_connected("1")) == (True, False, True)
    assert not subject.is_ready("1", 0)
    subject.ready("1")
    assert (subject.is_ready("1", 0), subject.is_preparing("1"), subject.poll_delay_ms("1", 0)) == (
        True,
        False,
        FOREVER_MS,
    )


@pytest.mark.behaviour(
    "Connection states", "The reconnect backoff grows until a request is answered, and is then reset"
)
def test_reconnect_backoff_grows_until_a_request_is_answered() -> None:
    subject = states()
    for wait_ms in (50, 100, 200, 400, 800, 1000, 1000):
        lose(subject, 0)
        assert subject.poll_delay_ms("1", 0) == wait_ms
        assert not subject.can_connect("1", wait_ms - 1)
        assert subject.can_connect("1", wait_ms)
    connect(subject, ready=False)
    subject.disconnected("1", 0)
    # A connection that was established but never used does not count as a success.
    assert subject.poll_delay_ms("1", 0) == 1000
    connect(subject)
    subject.answered("1")
    subject.disconnected("1", 0)
    assert subject.poll_delay_ms("1", 0) == 50


def test_setup_timeout_grows_after_every_failure() -> None:
    subject = states()
    for timeout_ms in (10_000, 20_000, 30_000, 30_000):
        subject.connecting(NODE, 0)
        assert subject.poll_delay_ms("1", 0) == timeout_ms
        assert subject.time_to_setup_timeout_ms(0) == timeout_ms + 1
        assert subject.nodes_with_setup_timeout(timeout_ms) == []
        assert subject.nodes_with_setup_timeout(timeout_ms + 1) == [("1", timeout_ms)]
        subject.disconnected("1", 0)
    assert subject.is_unreachable("1", 0)
    assert subject.time_to_setup_timeout_ms(0) == FOREVER_MS
    connect(subject, ready=False)
    subject.disconnected("1", 0)
    assert subject.is_disconnected("1")
    assert subject.is_unreachable("1", 0)
    subject.connecting(NODE, 0)
    assert subject.poll_delay_ms("1", 0) == 10_000


@pytest.mark.behaviour(
    "Connection states", "Every address of a host gets its turn, and then the name is resolved again"
)
def test_all_addresses_of_a_host_are_tried_before_new_lookup() -> None:
    dns = Dns("10.0.0.1", "10.0.0.2")
    subject = states(dns)
    hosts = []
    for _ in range(4):
        hosts.append(subject.connecting(NODE, 0).host)
        subject.disconnected("1", 0)
    assert hosts == ["10.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"]
    assert dns.questions == 2


@pytest.mark.behaviour("Connection states", "After a loss, another address of the host comes first, as in Java")
def test_lost_address_is_not_the_next_one() -> None:
    dns = Dns("10.0.0.1", "10.0.0.2", "10.0.0.3")
    subject = states(dns)
    hosts = []
    for is_established in (True, False, True, False, False, False):
        hosts.append(subject.connecting(NODE, 0).host.rpartition(".")[2])
        if is_established:
            subject.checking_api_versions("1")
        subject.disconnected("1", 0)
    assert hosts == ["1", "2", "3", "1", "2", "3"]
    dns.hosts = ("10.0.0.3",)
    assert subject.connecting(NODE, 0).host == "10.0.0.3"


def test_lost_working_connection_resolves_its_name_again() -> None:
    dns = Dns("10.0.0.1", "10.0.0.2")
    subject = states(dns)
    connect(subject)
    subject.disconnected("1", 0)
    dns.hosts = ("10.0.0.9",)
    assert subject.connecting(NODE, 0).host == "10.0.0.9"


def test_node_with_a_new_address_restarts_its_backoff() -> None:
    subject = states()
    for _ in range(5):
        lose(subject, 0)
    subject.connecting(Node(1, "elsewhere", 9092), 0)
    subject.disconnected("1", 0)
    assert subject.poll_delay_ms("1", 0) == 50


def test_an_unknown_name_counts_as_a_failed_attempt() -> None:
    subject = states(Dns())
    with pytest.raises(OSError, match="cannot resolve"):
        subject.connecting(NODE, 5)
    subject.disconnected("1", 5)
    assert subject.last_attempt_ms("1") == 5
    assert subject.is_unreachable("1", 0)


def test_throttling_never_gets_shorter() -> None:
    subject = states()
    subject.throttle("1", 100)
    connect(subject)
    subject.throttle("1", 100)
    subject.throttle("1", 60)
    assert (subject.is_ready("1", 99), subject.poll_delay_ms("1", 60)) == (False, 40)
    assert (subject.is_ready("1", 100), subject.poll_delay_ms("1", 100)) == (True, FOREVER_MS)


# -- in-flight requests


def in_flight(correlation_id: int, node_id: str = "1", sent_ms: int = 0, timeout_ms: int = 100) -> InFlightRequest:
    request = ClientRequest(
        node_id,
        ApiKey.METADATA,
        lambda version: MetadataRequest(),
        correlation_id,
        0,
        True,
        timeout_ms,
        None,
        None,
    )
    return InFlightRequest(request, 1, False, sent_ms)


@pytest.mark.behaviour("InFlightRequests", "Answers belong to the oldest request, and writes to the newest")
def test_answers_go_to_the_oldest_and_writes_to_the_newest() -> None:
    subject = InFlightRequests(5)
    first, second = in_flight(1), in_flight(2)
    subject.add(first)
    subject.add(second)
    assert (subject.count("1"), subject.count(), subject.count("2")) == (2, 2, 0)
    assert subject.last_sent("1") is second
    assert subject.complete_next("1") is first
    assert subject.complete_last_sent("1") is second
    assert subject.count() == 0


def test_requests_are_allowed_up_to_the_in_flight_limit() -> None:
    subject = InFlightRequests(2)
    assert subject.can_send_more("1")
    subject.add(in_flight(1))
    assert subject.can_send_more("1")
    subject.add(in_flight(2))
    assert not subject.can_send_more("1")
    subject.complete_next("1")
    assert subject.can_send_more("1")


def test_completing_without_requests_in_flight_raises() -> None:
    subject = InFlightRequests(5)
    for ask in (subject.complete_next, subject.last_sent, subject.complete_last_sent):
        with pytest.raises(RuntimeError, match="no in-flight requests for node 1"):
            ask("1")


def test_clearing_a_node_returns_its_requests_oldest_first() -> None:
    subject = InFlightRequests(5)
    for number in (1, 2, 3):
        subject.add(in_flight(number))
    subject.add(in_flight(4, "2"))
    assert [entry.request.correlation_id for entry in subject.clear_all("1")] == [1, 2, 3]
    assert list(subject.clear_all("1")) == []
    assert subject.count() == 1


def test_a_request_is_late_when_more_than_its_timeout_has_passed() -> None:
    subject = InFlightRequests(5)
    assert subject.time_to_next_timeout_ms(0) > 10**9
    subject.add(in_flight(1, sent_ms=0, timeout_ms=100))
    subject.add(in_flight(2, sent_ms=0, timeout_ms=50))
    subject.add(in_flight(3, "2", sent_ms=40, timeout_ms=100))
    assert subject.nodes_with_timed_out_requests(50) == []
    assert subject.time_to_next_timeout_ms(50) == 1
    assert [(node, late.request.correlation_id) for node, late in subject.nodes_with_timed_out_requests(51)] == [
        ("1", 2)
    ]
    assert subject.time_to_next_timeout_ms(500) == 0


# -- API versions


def test_the_highest_version_both_have_is_used() -> None:
    node = NodeApiVersions({ApiKey.METADATA: VersionRange(0, 7), ApiKey.API_VERSIONS: VersionRange(0, 99)})
    assert node.latest_usable_version(ApiKey.METADATA) == 7
    assert node.latest_usable_version(ApiKey.METADATA, 5) == 5
    assert node.latest_usable_version(ApiKey.API_VERSIONS) == allowed_versions(ApiKey.API_VERSIONS, None).max


def test_missing_common_version_error_says_what_to_upgrade() -> None:
    node = NodeApiVersions({ApiKey.PRODUCE: VersionRange(0, 2), ApiKey.METADATA: VersionRange(90, 99)})
    upgrade = r"; upgrade it to Apache Kafka 3\.3 or newer$"
    with pytest.raises(
        UnsupportedVersionError,
        match=f"the broker supports PRODUCE versions 0 to 2, this client supports versions .*{upgrade}",
    ):
        node.latest_usable_version(ApiKey.PRODUCE)
    with pytest.raises(UnsupportedVersionError, match=r"METADATA versions 90 to 99, .* newer .* kafkalite$"):
        node.latest_usable_version(ApiKey.METADATA)
    with pytest.raises(UnsupportedVersionError, match=f"does not support FETCH{upgrade}"):
        node.latest_usable_version(ApiKey.FETCH)


def test_broker_versions_and_features_are_kept_per_node() -> None:
    node = NodeApiVersions.of(
        ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=3, min_version=1, max_version=4),
                ApiVersion(api_key=30_000, min_version=0, max_version=0),
            ],
            finalized_features=[FinalizedFeatureKey(name="metadata.version", max_version_level=20)],
        )
    )
    assert node.versions == {ApiKey.METADATA: VersionRange(1, 4)}
    assert node.finalized_features == {"metadata.version": 20}
    shared = ApiVersions()
    assert shared.get("1") is None
    shared.update("1", node)
    assert shared.get("1") is node
    shared.remove("1")
    shared.remove("1")
    assert shared.get("1") is None


def test_newest_feature_report_wins_even_after_its_broker_left() -> None:
    versions = ApiVersions()
    assert versions.feature_level("transaction.version") == 0
    versions.update("1", NodeApiVersions({}, {"transaction.version": 2}, 7))
    versions.update("2", NodeApiVersions({}, {"transaction.version": 1}, 6))
    versions.update("3", NodeApiVersions({}))
    versions.remove("1")
    assert versions.feature_level("transaction.version") == 2
    versions.update("2", NodeApiVersions({}, {}, 8))
    assert versions.feature_level("transaction.version") == 0


# -- throttling, failures


def test_client_throttles_itself_only_where_broker_does_not() -> None:
    assert throttle_ms(ApiKey.PRODUCE, 6, ProduceResponse(throttle_time_ms=70)) == 70
    assert throttle_ms(ApiKey.PRODUCE, 5, ProduceResponse(throttle_time_ms=70)) == 0
    assert throttle_ms(ApiKey.METADATA, 12, MetadataResponse()) == 0
    assert throttle_ms(ApiKey.METADATA, 12, MetadataRequest()) == 0


def test_failures_are_kept_per_address_until_it_can_be_reached() -> None:
    peers = Peers(states(), ContextLogger(__name__, ""))
    assert peers.failed("a", 1, "connection refused")
    assert not peers.failed("a", 1, "connection refused")
    before = peers.failures()
    assert peers.failed("b", 2, "connection timed out")
    assert peers.failed("a", 1, "closed by the other side")
    assert before == (ConnectionFailure("a", 1, "connection refused"),)
    assert [str(failure) for failure in peers.failures()] == [
        "a:1: closed by the other side",
        "b:2: connection timed out",
    ]
    peers.connecting(Node(1, "a", 1))
    peers.answered("1")
    peers.connecting(Node(7, "never", 0))
    peers.answered("7")
    assert peers.failures() == (ConnectionFailure("b", 2, "connection timed out"),)
