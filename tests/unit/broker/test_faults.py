"""Every fault on a broker without sockets, on a clock that only the test advances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink.broker.faults.error_response import error_response, names_topics, split
from kafka_sink.broker.faults.faults import Faults, set_fault
from kafka_sink.broker.handlers.fault_injection import SLOW_PIECES
from kafka_sink.broker.network.request_channel import CloseConnectionResponse, NoOpResponse, SendResponse
from kafka_sink.common.errors import ConfigError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.codec import encode_into
from kafka_sink.protocol.header import decode_response
from kafka_sink.protocol.messages.fetch import FetchRequest
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.primitives import ByteWriter
from kafka_sink.protocol.registry import APIS, api
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode
from tests.fakes.protocol_values import golden_message, versions_of
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each
from tests.support.messages import request_body

VERSION = 9
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def node() -> BrokerNode:
    node = BrokerNode()
    for topic in ("orders", "clicks"):
        node.cluster.create_topic(topic, 2, 1, None)
    return node


def produce(*places: tuple[str, int], acks: int = -1) -> Any:
    topics: dict[str, list[Any]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append((partition, make_batch([b"v"])))
    data = [{"name": name, "partition_data": parts} for name, parts in topics.items()]
    return request_body(ApiKey.PRODUCE, None, acks, 1000, data)


def outcomes(answer: Any) -> dict[tuple[str, int], int]:

    return {
        (topic.name, part.index): part.error_code for topic in answer.responses for part in topic.partition_responses
    }


def stored(node: BrokerNode, topic: str = "orders", partition: int = 0) -> int:
    state = node.cluster.topic(topic)
    assert state is not None
    return node.context.log_of(state, partition).end_offset


def call(node: BrokerNode, *places: tuple[str, int]) -> dict[tuple[str, int], int]:
    return outcomes(node.call(ApiKey.PRODUCE, VERSION, produce(*places or (("orders", 0),))))


# --- matching of requests --------------------------------------------------------------------------------------------


def fates(node: BrokerNode, count: int) -> str:
    return "".join("x" if call(node)["orders", 0] else "." for _ in range(count))


@pytest.mark.behaviour("Faults on demand", "A fault befalls the requests that it names, and no others")
def test_the_nth_request_alone(node: BrokerNode) -> None:
    fault = node.faults.on("produce", nth=3, error=NOT_LEADER)
    assert fates(node, 7) == "..x...."
    assert fault.hits == 1 and stored(node) == 6


def test_one_of_every_so_many_and_not_more_often_than_said(node: BrokerNode) -> None:
    node.faults.on("produce", every=2, times=2, error=NOT_LEADER)
    assert fates(node, 8) == ".x.x...."


def test_a_probability_is_the_same_from_the_same_seed(node: BrokerNode) -> None:
    runs = []
    for seed in (7, 7, 8):
        with node.faults.on("produce", probability=0.5, seed=seed, error=NOT_LEADER):
            runs.append(fates(node, 40))
    assert runs[0] == runs[1] != runs[2]
    assert 10 < runs[0].count("x") < 30


def test_removed_fault_no_longer_fires(node: BrokerNode) -> None:
    fault = node.faults.on("produce", error=NOT_LEADER)
    other = node.faults.on("fetch", error=NOT_LEADER)
    assert fates(node, 1) == "x"
    fault.remove()
    fault.remove()
    assert fates(node, 1) == "." and node.faults.of_requests == (other,)
    node.faults.clear()
    assert node.faults.of_requests == ()


def test_other_apis_other_nodes_and_other_topics_are_left_alone(node: BrokerNode) -> None:
    faults = [
        node.faults.on("fetch", error=NOT_LEADER),
        node.faults.on("any", node=2, drop="answer"),
        node.faults.on("produce", topic="clicks", error=NOT_LEADER),
        node.faults.on("any", topic="orders", partition=1, close="answer"),
    ]
    assert fates(node, 1) == "."
    assert [fault.hits for fault in faults] == [0, 0, 0, 0]


# --- effects ---------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Faults on demand", "An error for one partition leaves the others handled")
def test_partition_error_leaves_other_partitions_handled(node: BrokerNode) -> None:
    node.faults.on("produce", topic="orders", partition=1, error=NOT_LEADER)
    asked = [("orders", 0), ("orders", 1), ("clicks", 1)]
    assert call(node, *asked) == {("orders", 0): 0, ("orders", 1): NOT_LEADER, ("clicks", 1): 0}
    assert [stored(node, *place) for place in asked] == [1, 0, 1]


def test_an_error_finds_its_topic_by_id_as_well(node: BrokerNode) -> None:
    node.faults.on("produce", topic="orders", error=NOT_LEADER)
    orders, clicks = (node.cluster.topics[name].topic_id for name in ("orders", "clicks"))
    data = [{"topic_id": topic, "partition_data": [(0, make_batch([b"v"]))]} for topic in (orders, clicks)]
    answer = node.call(ApiKey.PRODUCE, 13, None, -1, 1000, data)
    codes = {topic.topic_id: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {orders: NOT_LEADER, clicks: 0}


def test_metadata_with_errors_still_names_the_brokers(node: BrokerNode) -> None:
    node.faults.on("metadata", topic="orders", error=ErrorCode.LEADER_NOT_AVAILABLE)
    for topics in (None, [{"name": "orders"}, {"name": "clicks"}]):
        answer = node.call(ApiKey.METADATA, 9, topics)
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "orders": ErrorCode.LEADER_NOT_AVAILABLE,
            "clicks": 0,
        }
        assert len(answer.brokers) == 1


def test_error_fault_with_acks_0_closes_the_connection(node: BrokerNode) -> None:
    node.faults.on("produce", error=NOT_LEADER)
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0), acks=0))
    assert isinstance(node.responses.pop(), CloseConnectionResponse)
    assert stored(node) == 0


def test_an_api_without_partitions_has_its_own_error(node: BrokerNode) -> None:
    node.faults.on("init_producer_id", error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = node.call(ApiKey.INIT_PRODUCER_ID, 4, None, 1000)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_delayed_answer_waits_and_the_request_does_not(node: BrokerNode) -> None:
    node.faults.on("produce", delay_ms=500)
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    assert node.responses == [] and stored(node) == 1
    node.clock.advance(499)
    node.timer.run_due(node.clock.monotonic_ms())
    assert node.responses == []
    node.clock.advance(1)
    node.timer.run_due(node.clock.monotonic_ms())
    assert outcomes(node.answer(ApiKey.PRODUCE, VERSION)) == {("orders", 0): 0}


@pytest.mark.parametrize(("what", "count"), [("request", 0), ("answer", 1)])
def test_a_drop_leaves_the_client_without_any_sign(node: BrokerNode, what: str, count: int) -> None:
    node.faults.on("produce", drop=what)
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    assert node.responses == [] and stored(node) == count


@pytest.mark.parametrize(("at", "count"), [("request", 0), ("answer", 1)])
def test_connection_is_closed_before_or_after_handling(node: BrokerNode, at: str, count: int) -> None:
    node.faults.on("produce", close=at)
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    (response,) = node.responses
    assert isinstance(response, CloseConnectionResponse) and stored(node) == count


def pieces(node: BrokerNode) -> Iterator[SendResponse]:
    while node.responses:
        response = node.responses.pop(0)
        if isinstance(response, SendResponse) and not response.is_whole:
            yield response
            response.complete()
            node.clock.advance(50)
            node.timer.run_due(node.clock.monotonic_ms())
        else:
            node.responses.insert(0, response)
            return


def whole_answer(node: BrokerNode) -> bytes:
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    response = node.responses.pop()
    assert isinstance(response, SendResponse)
    return b"".join(map(bytes, response.segments))


@pytest.mark.behaviour("Faults on demand", "Half of an answer leaves, and then the connection closes")
def test_half_of_an_answer_leaves_and_then_the_connection_closes(node: BrokerNode) -> None:
    size = len(whole_answer(node)) + 4
    node.faults.on("produce", close="half")
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    sent = b"".join(b"".join(map(bytes, piece.segments)) for piece in pieces(node))
    assert len(sent) == size // 2 and int.from_bytes(sent[:4]) == size - 4
    assert isinstance(node.responses.pop(), CloseConnectionResponse) and node.responses == []
    assert stored(node) == 2


def test_slow_answer_arrives_whole_and_ends_its_request_once(node: BrokerNode) -> None:
    node.faults.on("produce", slow_ms=SLOW_PIECES * 50)
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    began_ms = node.clock.monotonic_ms()
    parts = [b"".join(map(bytes, piece.segments)) for piece in pieces(node)]
    assert len(parts) == SLOW_PIECES and node.clock.monotonic_ms() - began_ms == SLOW_PIECES * 50
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    _, body = decode_response(ApiKey.PRODUCE, VERSION, frame[4:])
    assert outcomes(body) == {("orders", 0): 0}
    (end,) = node.responses
    assert isinstance(end, NoOpResponse)


@pytest.mark.behaviour("Faults on demand", "A duplicate is handled twice and answered once")
def test_a_duplicate_is_handled_twice_and_answered_once(node: BrokerNode) -> None:
    node.faults.on("produce", duplicate=True)
    assert call(node) == {("orders", 0): 0}
    assert stored(node) == 2


def test_several_faults_meet(node: BrokerNode) -> None:
    node.faults.on("produce", error=NOT_LEADER)
    node.faults.on("any", delay_ms=100)
    node.send(ApiKey.PRODUCE, VERSION, produce(("orders", 0)))
    assert node.responses == []
    node.clock.advance(100)
    node.timer.run_due(node.clock.monotonic_ms())
    assert outcomes(node.answer(ApiKey.PRODUCE, VERSION)) == {("orders", 0): NOT_LEADER}


# --- error responses to every request --------------------------------------------------------------------------------

ALL = [(key, version) for key in APIS for version in versions_of(api(key).request)]


def codes_in(message: Any) -> list[int]:
    found = []
    for field in message.SCHEMA.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        elif isinstance(value, list):
            found += [code for item in value if isinstance(item, Struct) for code in codes_in(item)]
    return found


@pytest.mark.behaviour("Faults on demand", "Every request of every version has an error answer")
@with_each(("key", "version"), ALL)
def test_every_request_of_every_version_has_an_error_answer(key: ApiKey, version: int) -> None:
    for variant in ("sparse", "full"):
        answer = error_response(key, version, golden_message(api(key).request, version, variant), NOT_LEADER)
        encode_into(ByteWriter(), answer, version)
    # The last request has at least one item in each of its arrays.
    assert set(codes_in(answer)) - {0} == {NOT_LEADER}


def test_a_fetch_is_refused_partition_by_partition() -> None:
    request = golden_message(FetchRequest, 11, "full")
    assert isinstance(request, FetchRequest)
    answer: Any = error_response(ApiKey.FETCH, 11, request, NOT_LEADER)
    asked = {(topic.topic, part.partition) for topic in request.topics for part in topic.partitions}
    assert {
        (topic.topic, part.partition_index): (part.error_code, part.high_watermark)
        for topic in answer.responses
        for part in topic.partitions
    } == dict.fromkeys(asked, (NOT_LEADER, -1))
    assert asked and answer.error_code == 0


def test_request_is_split_into_faulted_partitions_and_the_rest() -> None:
    body = produce(("orders", 0), ("orders", 1), ("clicks", 0))
    hit, rest = split(ApiKey.PRODUCE, VERSION, body, lambda topic, part: (topic, part) == ("orders", 1), lambda _: None)
    assert isinstance(hit, ProduceRequest) and isinstance(rest, ProduceRequest)
    assert [(topic.name, [part.index for part in topic.partition_data]) for topic in hit.topic_data] == [
        ("orders", [1])
    ]
    assert [(topic.name, [part.index for part in topic.partition_data]) for topic in rest.topic_data] == [
        ("orders", [0]),
        ("clicks", [0]),
    ]
    assert hit.acks == rest.acks == -1


def test_apis_that_name_topics_are_known() -> None:
    named = {key.name.lower() for key in APIS if names_topics(key)}
    assert {"produce", "fetch", "metadata", "txn_offset_commit", "add_partitions_to_txn", "offset_fetch"} <= named
    assert not named & {"end_txn", "join_group", "find_coordinator", "init_producer_id", "list_groups"}


# --- impossible faults -----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Faults on demand", "A fault that cannot be is refused with what to write")
@with_each(
    ("text", "words"),
    [
        ("produse:error=not_leader_or_follower", "did you mean produce?"),
        ("produce", "expected exactly one of error, delay_ms, drop"),
        ("produce:every=10", "expected exactly one of error, delay_ms, drop"),
        ("produce:delay_ms=5,close=half", "got 2; set one fault per effect"),
        ("produce:evry=10,close=half", "did you mean every?"),
        ("produce:close=hlaf", "did you mean half?"),
        ("produce:drop=all", "one of request, answer"),
        ("produce:error=NOT_LEADER_OR_FOLOWER", "did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("produce:error=none", "an error code other than NONE"),
        ("produce:nth=third,close=half", "expected a whole number, got 'third'"),
        ("produce:nth=0,close=half", "must be 1 or more, got 0"),
        ("produce:nth=1,every=2,close=half", "nth and every exclude each other"),
        ("produce:probability=2,close=half", "above 0 and at most 1"),
        ("produce:probability=often,close=half", "got 'often'"),
        ("produce:partition=1,close=half", "needs a topic: set topic as well"),
        ("produce:topic=a,partition=-1,close=half", "must be 0 or more, got -1"),
        ("end_txn:topic=orders,drop=answer", "has no topics"),
        ("produce:duplicate=yes", "expected true or false"),
        ("produce:delay_ms=0", "at least 1 ms"),
        ("produce:close=", "close needs a value"),
        ("produce:close=half,close=answer", "given twice"),
        ("disk.write:close=half", "got 2"),
        ("disk.flush:node=1", "share the disk"),
        ("sasl_handshake:drop=answer", "unknown fault target"),
    ],
)
def test_impossible_fault_is_refused_with_what_to_write(text: str, words: str) -> None:
    faults = Faults()
    with pytest.raises(ConfigError) as caught:
        set_fault(faults, text)
    assert words in str(caught.value) and repr(text) in str(caught.value)
    assert faults.of_requests == faults.of_disk == ()


def test_fault_text_means_the_same_as_the_python_call() -> None:
    faults = Faults()
    read = set_fault(faults, "Produce: topic=orders, partition=2, every=10, times=3, error=not_leader_or_follower")
    said = faults.on("produce", topic="orders", partition=2, every=10, times=3, error=NOT_LEADER)
    assert read.fault == said.fault
    assert set_fault(faults, "disk.write:topic=orders").fault == faults.on("disk.write", topic="orders").fault
