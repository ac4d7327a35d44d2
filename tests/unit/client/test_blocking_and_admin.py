"""BlockingClient and AdminClient against a fake cluster."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_sink.client.blocking.admin import EARLIEST, LATEST, AdminClient, NewTopic
from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.errors import (
    ApiError,
    AuthenticationError,
    BrokersUnreachableError,
    ConfigError,
    DisconnectError,
    ErrorCode,
    InvalidTopicError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.network.channel.selectable import ChannelState, Disconnect
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.log_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kafka_sink.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from tests.fakes.clock import FakeClock, on_another_thread
from tests.fakes.metadata_answers import answer, partition, topic
from tests.fakes.selectable import FakeSelectable

Handler = Callable[[str, Struct], Struct | None]

ONE, TWO = Node(1, "127.0.0.1", 9092), Node(2, "127.0.0.2", 9092)

TOPICS = {
    "t": topic("t", partition(0, 1), partition(1, 2)),
    "u": topic("u", partition(0, 2)),
    "__internal": MetadataResponseTopic(name="__internal", is_internal=True, partitions=[partition(0, 1)]),
}


class ClusterFake:
    """Two brokers with the same metadata; *handlers* replace the responses of single APIs."""

    def __init__(self) -> None:
        self.topics = dict(TOPICS)
        self.handlers: dict[type[Struct], Handler] = {}
        self.versions = {key: (api.versions.min, api.versions.max) for key, api in APIS.items()}
        self.asked: list[tuple[str, Struct]] = []

    def __call__(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, ApiVersionsRequest):
            ranges = self.versions.items()
            return ApiVersionsResponse(
                api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges]
            )
        self.asked.append((connection_id, body))
        handler = self.handlers.get(type(body))
        if handler is not None:
            return handler(connection_id, body)
        assert isinstance(body, MetadataRequest)
        return self.metadata(body)

    def metadata(self, body: MetadataRequest) -> Struct:
        assert not body.allow_auto_topic_creation
        names = self.topics if body.topics is None else [wanted.name or "" for wanted in body.topics]
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        described = (self.topics.get(name) or topic(name, error=missing) for name in names)
        return answer(*described, nodes=(ONE, TWO))

    def of(self, kind: type[Struct]) -> list[tuple[str, Struct]]:
        return [(connection, body) for connection, body in self.asked if isinstance(body, kind)]


@pytest.fixture
def cluster() -> ClusterFake:
    return ClusterFake()


@pytest.fixture
def network(cluster: ClusterFake) -> FakeSelectable:
    return FakeSelectable(FakeClock(), cluster)


@pytest.fixture
def client(network: FakeSelectable) -> BlockingClient:
    config = ClientConfig(bootstrap_servers=("127.0.0.1:9092", "127.0.0.2:9092"))
    return BlockingClient(config, client_id="me", timeout_ms=5_000, clock=network.clock, selectable=network)


@pytest.fixture
def admin(network: FakeSelectable) -> AdminClient:
    return AdminClient("127.0.0.1:9092", {"default.api.timeout.ms": 5_000}, clock=network.clock, selectable=network)


# -- blocking client


def brokers_only(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


def ask(client: BlockingClient, node: Node | None = None, **options: int) -> MetadataResponse:
    return client.request(node, ApiKey.METADATA, brokers_only, **options)


def test_any_broker_will_do(client: BlockingClient, cluster: ClusterFake) -> None:
    response = ask(client)
    assert {broker.node_id for broker in response.brokers} == {1, 2}
    assert len(cluster.of(MetadataRequest)) == 2


def test_a_given_broker_is_the_one_that_is_asked(client: BlockingClient, cluster: ClusterFake) -> None:
    ask(client, TWO)
    assert cluster.asked[-1][0] == "2"


def test_unreachable_brokers_are_each_named_with_their_cause(client: BlockingClient, network: FakeSelectable) -> None:
    network.refusals["-1"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    network.refusals["-2"] = OSError(errno.EHOSTUNREACH, "No route to host")
    with pytest.raises(BrokersUnreachableError, match=r"^no broker could be reached within 3000 ms: ") as caught:
        ask(client, timeout_ms=3_000)
    assert "127.0.0.1:9092: connection refused" in str(caught.value)
    assert "127.0.0.2:9092: no route to host" in str(caught.value)


def test_waiting_ends_at_the_deadline(client: BlockingClient, network: FakeSelectable) -> None:
    network.auto_connect = False
    started = network.clock.now_ms
    with pytest.raises(BrokersUnreachableError) as caught:
        ask(client)
    assert network.clock.now_ms - started == 5_000
    assert "127.0.0.1:9092: no answer yet" in str(caught.value)
    assert "127.0.0.2:9092: no answer yet" in str(caught.value)


def test_a_broker_that_does_not_answer_is_named(
    client: BlockingClient, cluster: ClusterFake, network: FakeSelectable
) -> None:
    ask(client, ONE)
    cluster.handlers[ListOffsetsRequest] = lambda connection, body: None
    with pytest.raises(KafkaTimeoutError, match=r"broker 1 at .* did not answer LIST_OFFSETS within 700 ms"):
        client.request(ONE, ApiKey.LIST_OFFSETS, lambda version: ListOffsetsRequest(), timeout_ms=700)
    # Its late response matches no request and has no effect.
    network.reply("1", ListOffsetsResponse())
    ask(client, ONE)


def test_a_given_broker_that_refuses_is_told_at_once(client: BlockingClient, network: FakeSelectable) -> None:
    ask(client)
    network.refusals["2"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    network.connections.pop("2", None)
    started = network.clock.now_ms
    other = Node(2, "127.0.0.3", 9092)
    with pytest.raises(DisconnectError, match=r"broker 2 at 127.0.0.3:9092: connection refused"):
        client.request(other, ApiKey.METADATA, brokers_only)
    assert network.clock.now_ms - started < 1_000


def test_a_connection_lost_on_the_way(client: BlockingClient, cluster: ClusterFake, network: FakeSelectable) -> None:
    lost: list[str] = []

    def lose_once(connection: str, body: Struct) -> Struct | None:
        if lost:
            return ListOffsetsResponse()
        lost.append(connection)
        network.lose(connection, "connection reset by the other side")
        return None

    cluster.handlers[ListOffsetsRequest] = lose_once
    with pytest.raises(DisconnectError, match=r"broker 1 at 127.0.0.1:9092: connection reset by the other side"):
        client.request(ONE, ApiKey.LIST_OFFSETS, lambda version: ListOffsetsRequest())
    lost.clear()
    # Without a given broker, the client tries the next one.
    assert client.request(None, ApiKey.LIST_OFFSETS, lambda version: ListOffsetsRequest()) == ListOffsetsResponse()


def test_an_api_the_broker_lacks(client: BlockingClient, cluster: ClusterFake) -> None:
    del cluster.versions[ApiKey.LIST_OFFSETS]
    with pytest.raises(UnsupportedVersionError, match="does not support LIST_OFFSETS"):
        client.request(None, ApiKey.LIST_OFFSETS, lambda version: ListOffsetsRequest())


def test_a_refusal_ends_the_wait(client: BlockingClient, network: FakeSelectable) -> None:
    network.auto_connect = False
    refusal = Disconnect(ChannelState.AUTHENTICATION_FAILED, "wrong password", AuthenticationError("wrong password"))
    connect = network.connect

    def refuse(connection_id: str, *rest: object) -> None:
        connect(connection_id, *rest)  # type: ignore[arg-type]
        network.lose(connection_id, disconnect=refusal)

    network.connect = refuse  # type: ignore[assignment,method-assign]
    with pytest.raises(AuthenticationError, match="wrong password"):
        ask(client)


def test_closing_closes_the_network(client: BlockingClient, network: FakeSelectable) -> None:
    with client:
        assert client.connection_failures() == ()
    assert network.is_closed


@pytest.mark.behaviour("NetworkClient", "A client that nobody uses has no connections until it is used again")
def test_client_at_rest_connects_again_when_it_is_used(
    client: BlockingClient, network: FakeSelectable, cluster: ClusterFake
) -> None:
    ask(client, TWO)
    network.clock.advance(499)
    client.rest(500)
    assert not network.is_closed
    network.clock.advance(1)
    client.rest(500)
    assert network.is_closed and not network.connections
    ask(client, TWO)
    assert network.connections and cluster.asked[-1][0] == "2"


def test_a_request_under_way_is_not_cut_off_by_a_rest(
    client: BlockingClient, network: FakeSelectable, cluster: ClusterFake
) -> None:
    def rest_meanwhile(connection: str, body: Struct) -> Struct:
        on_another_thread(lambda: client.rest(0))
        assert not network.is_closed
        return ListOffsetsResponse()

    cluster.handlers[ListOffsetsRequest] = rest_meanwhile
    assert client.request(ONE, ApiKey.LIST_OFFSETS, lambda version: ListOffsetsRequest()) == ListOffsetsResponse()


def test_a_closed_client_stays_closed_after_a_rest(client: BlockingClient) -> None:
    client.close()
    client.rest(0)
    with pytest.raises(RuntimeError, match="closed"):
        ask(client)


# -- many requests at once


def questions(*nodes: Node) -> list[tuple[Node, RequestSpec]]:
    return [(node, RequestSpec(ApiKey.METADATA, brokers_only)) for node in nodes]


def test_request_all_sends_to_all_nodes_before_any_answer(client: BlockingClient, cluster: ClusterFake) -> None:
    ask(client, ONE)
    ask(client, TWO)
    held: list[str] = []

    def hold(connection_id: str, body: Struct) -> Struct | None:
        held.append(connection_id)
        return None

    cluster.handlers[MetadataRequest] = hold
    answers = client.request_all(questions(ONE, TWO, ONE), timeout_ms=1_000)
    assert sorted(held) == ["1", "1", "2"]
    assert [str(answer) for answer in answers] == [
        f"{node} did not answer METADATA within 1000 ms" for node in (ONE, TWO, ONE)
    ]


def test_unreachable_node_takes_no_answer_from_the_others(client: BlockingClient, network: FakeSelectable) -> None:
    ask(client, ONE)
    network.refusals["2"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    started_ms = network.clock.now_ms
    answers = client.request_all(questions(TWO, ONE, TWO))
    assert [isinstance(answer, DisconnectError) for answer in answers] == [True, False, True]
    again = client.request_all(questions(TWO))
    assert isinstance(again[0], DisconnectError)
    # One more attempt, after the reconnect backoff and not at the deadline.
    assert network.clock.now_ms - started_ms < 200


@pytest.mark.behaviour("NetworkClient", "A request that was never sent says why its broker cannot be reached")
def test_unsent_request_names_the_broker_and_the_cause(client: BlockingClient, network: FakeSelectable) -> None:
    ask(client, ONE)
    network.auto_connect = False
    assert [str(each) for each in client.request_all(questions(TWO), timeout_ms=700)] == [
        f"{TWO}: no connection within 700 ms"
    ]
    with pytest.raises(BrokersUnreachableError, match=f"^{TWO}: no connection within 600 ms$"):
        ask(client, TWO, timeout_ms=600)
    network.lose("2", "connection refused")
    ask(client, ONE)
    # During the backoff after that attempt, and while the next attempt is in flight.
    for timeout_ms in (20, 700):
        (error,) = client.request_all(questions(TWO), timeout_ms=timeout_ms)
        assert isinstance(error, BrokersUnreachableError)
        assert str(error) == f"{TWO}: connection refused"


@pytest.fixture
def asked_at(cluster: ClusterFake) -> list[str]:
    """The connections of the answered requests, in their order."""
    seen: list[str] = []

    def answer(connection_id: str, body: Struct) -> Struct:
        seen.append(connection_id)
        return MetadataResponse()

    cluster.handlers[MetadataRequest] = answer
    return seen


@pytest.mark.behaviour("NetworkClient", "Requests that a broker may handle at the same time use several connections")
def test_requests_to_one_node_use_several_connections(client: BlockingClient, asked_at: list[str]) -> None:
    ask(client, ONE)
    asked_at.clear()
    # The client does not wait for the additional connections.
    client.request_all(questions(*[ONE] * 6))
    assert set(asked_at) == {"1"}
    asked_at.clear()
    client.request_all(questions(*[ONE] * 6, TWO))
    assert Counter(asked_at) == {"1": 2, "1/1": 2, "1/2": 1, "1/3": 1, "2": 1}


def test_request_behind_another_uses_its_connection(client: BlockingClient, asked_at: list[str]) -> None:
    ask(client, ONE)
    for _ in range(2):
        asked_at.clear()
        first, second, third = questions(ONE, ONE, ONE)
        client.request_all([first, (ONE, replace(second[1], is_behind=True)), third])
    assert Counter(asked_at) == {"1": 2, "1/1": 1}


def test_a_broker_may_refuse_further_connections(
    client: BlockingClient, network: FakeSelectable, asked_at: list[str]
) -> None:
    ask(client, ONE)
    network.refusals |= dict.fromkeys(["1/1", "1/2", "1/3"], ConnectionRefusedError(errno.ECONNREFUSED, "x"))
    for _ in range(3):
        asked_at.clear()
        client.request_all(questions(ONE, ONE, ONE))
        assert asked_at == ["1", "1", "1"]


def test_unsupported_request_gets_its_error_in_its_place(client: BlockingClient, cluster: ClusterFake) -> None:
    del cluster.versions[ApiKey.LIST_OFFSETS]
    answers = client.request_all(
        [*questions(ONE), (ONE, RequestSpec(ApiKey.LIST_OFFSETS, lambda _: ListOffsetsRequest()))]
    )
    assert not isinstance(answers[0], ApiError)
    assert isinstance(answers[1], UnsupportedVersionError)


# -- admin client


def test_topics_are_created_by_the_controller(admin: AdminClient, cluster: ClusterFake) -> None:
    cluster.handlers[CreateTopicsRequest] = lambda connection, body: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="new")]
    )
    admin.create_topic("new", 3, 2, {"retention.ms": "1"})
    [(connection, body)] = cluster.of(CreateTopicsRequest)
    assert connection == "2"
    assert isinstance(body, CreateTopicsRequest)
    [wanted] = body.topics
    assert (wanted.name, wanted.num_partitions, wanted.replication_factor) == ("new", 3, 2)
    assert [(config.name, config.value) for config in wanted.configs] == [("retention.ms", "1")]
    assert not body.validate_only


def test_a_topic_that_cannot_be_created_says_why(admin: AdminClient, cluster: ClusterFake) -> None:
    refused = CreatableTopicResult(
        name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="Topic 't' already exists."
    )
    cluster.handlers[CreateTopicsRequest] = lambda connection, body: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="ok"), refused]
    )
    with pytest.raises(ApiError, match=r"TOPIC_ALREADY_EXISTS: t: Topic 't' already exists.") as caught:
        admin.create_topics([NewTopic("ok"), NewTopic("t")], validate_only=True)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(cluster.of(CreateTopicsRequest)) == 1


def test_another_controller_is_looked_for(admin: AdminClient, cluster: ClusterFake, network: FakeSelectable) -> None:
    codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.NONE]
    cluster.handlers[DeleteTopicsRequest] = lambda connection, body: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="t", error_code=codes.pop(0))]
    )
    started = network.clock.now_ms
    admin.delete_topics(["t"])
    assert len(cluster.of(DeleteTopicsRequest)) == 2
    assert network.clock.now_ms - started >= 80


def test_retrying_ends_at_the_deadline(admin: AdminClient, cluster: ClusterFake, network: FakeSelectable) -> None:
    cluster.handlers[DeleteTopicsRequest] = lambda connection, body: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)]
    )
    started = network.clock.now_ms
    with pytest.raises(ApiError, match="NOT_CONTROLLER: t"):
        admin.delete_topics(["t"])
    assert 3_000 <= network.clock.now_ms - started <= 5_000


@pytest.mark.parametrize(("version", "by_name"), [(5, True), (6, False)])
def test_topics_are_deleted_in_every_version(
    admin: AdminClient, cluster: ClusterFake, version: int, by_name: bool
) -> None:
    cluster.versions[ApiKey.DELETE_TOPICS] = (1, version)
    cluster.handlers[DeleteTopicsRequest] = lambda connection, body: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="t")]
    )
    admin.delete_topics(["t"])
    [(_, body)] = cluster.of(DeleteTopicsRequest)
    assert isinstance(body, DeleteTopicsRequest)
    assert (body.topic_names, [state.name for state in body.topics]) == ((["t"], []) if by_name else ([], ["t"]))


def test_topics_are_listed_without_kafkas_own(admin: AdminClient) -> None:
    assert admin.list_topics() == ["t", "u"]
    assert admin.list_topics(include_internal=True) == ["__internal", "t", "u"]


def test_topics_are_described(admin: AdminClient, cluster: ClusterFake) -> None:
    described = admin.describe_topics(["t", "__internal"])
    assert list(described) == ["t", "__internal"]
    assert [info.leader for info in described["t"].partitions] == [ONE, TWO]
    assert (described["t"].is_internal, described["__internal"].is_internal) == (False, True)
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nope' does not exist"):
        admin.describe_topics(["t", "nope"])
    cluster.topics["bad"] = topic("bad", error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    with pytest.raises(InvalidTopicError, match="'bad' is not a legal topic name"):
        admin.describe_topics(["bad"])
    cluster.topics["secret"] = topic("secret", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match="may not see the topic 'secret'; grant DESCRIBE"):
        admin.describe_topics(["secret"])


def test_the_cluster_is_described(admin: AdminClient) -> None:
    described = admin.cluster()
    assert (set(described.nodes), described.controller, described.cluster_id) == ({ONE, TWO}, TWO, "c")


class Offsets:
    """Answers ListOffsets: the leader of a partition returns its offsets, any other broker NOT_LEADER_OR_FOLLOWER."""

    def __init__(self, offsets: dict[tuple[str, int, int], int]) -> None:
        self.offsets = offsets
        self.leaders = {("t", 0): "1", ("t", 1): "2", ("u", 0): "2"}

    def __call__(self, connection: str, body: Struct) -> Struct:
        assert isinstance(body, ListOffsetsRequest)
        answers = []
        for asked in body.topics:
            partitions = []
            for entry in asked.partitions:
                leads = self.leaders[asked.name, entry.partition_index] == connection
                found = self.offsets.get((asked.name, entry.partition_index, entry.timestamp), -1)
                partitions.append(
                    ListOffsetsPartitionResponse(
                        partition_index=entry.partition_index,
                        error_code=ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        offset=found if leads else -1,
                    )
                )
            answers.append(ListOffsetsTopicResponse(name=asked.name, partitions=partitions))
        return ListOffsetsResponse(topics=answers)


def test_offsets_come_from_the_leaders(admin: AdminClient, cluster: ClusterFake) -> None:
    cluster.handlers[ListOffsetsRequest] = Offsets(
        {("t", 0, EARLIEST): 5, ("t", 1, EARLIEST): 0, ("u", 0, EARLIEST): 7, ("t", 0, LATEST): 9}
    )
    wanted = [TopicPartition("u", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    assert admin.offsets(wanted, EARLIEST) == {wanted[1]: 5, wanted[2]: 0, wanted[0]: 7}
    assert {connection for connection, _ in cluster.of(ListOffsetsRequest)} == {"1", "2"}
    assert admin.offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 9}


def test_offsets_that_no_log_has_are_refused(admin: AdminClient, cluster: ClusterFake) -> None:
    first = TopicPartition("t", 0)
    cluster.handlers[ListOffsetsRequest] = lambda connection, body: ListOffsetsResponse()
    with pytest.raises(ApiError, match="has no offsets of t-0"):
        admin.offsets([first])
    cluster.handlers[ListOffsetsRequest] = Offsets({("t", 0, LATEST): -7})
    with pytest.raises(ApiError, match="has a negative end of t-0"):
        admin.offsets([first])


def test_a_leader_that_changed_is_looked_for_again(admin: AdminClient, cluster: ClusterFake) -> None:
    offsets = Offsets({("t", 0, LATEST): 9, ("t", 1, LATEST): 4})
    offsets.leaders["t", 0] = "2"
    cluster.handlers[ListOffsetsRequest] = offsets
    cluster.handlers[MetadataRequest] = lambda connection, body: _elect(cluster, body)
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert admin.offsets(partitions) == {partitions[0]: 9, partitions[1]: 4}


def _elect(cluster: ClusterFake, body: Struct) -> Struct:
    """Return the old leader once, and the new one from then on."""
    assert isinstance(body, MetadataRequest)
    response = cluster.metadata(body)
    if body.topics:
        cluster.topics["t"] = topic("t", partition(0, 2, 1), partition(1, 2))
    return response


def test_a_time_after_the_last_record_means_the_end(admin: AdminClient, cluster: ClusterFake) -> None:
    cluster.handlers[ListOffsetsRequest] = Offsets({("t", 0, LATEST): 9, ("t", 1, 1234): 2})
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert admin.offsets(partitions, 1234) == {partitions[0]: 9, partitions[1]: 2}


def test_partitions_that_do_not_exist_are_named(admin: AdminClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition t-2"):
        admin.offsets([TopicPartition("t", 2)])
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'nope' does not exist"):
        admin.offsets([TopicPartition("nope", 0)])


def test_the_admin_client_closes_with_its_block(admin: AdminClient, network: FakeSelectable) -> None:
    with admin:
        pass
    assert network.is_closed


def test_admin_properties_are_checked() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown option default.api.timeout \(did you mean default.api.timeout.ms\?"
    ):
        AdminClient("127.0.0.1:9092", {"default.api.timeout": "1"})
