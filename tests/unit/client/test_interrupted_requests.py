"""A KeyboardInterrupt at every line of a request: the next request gets its own response."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from kafka_sink.client.blocking.blocking import BlockingClient, RequestSpec
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.errors import KafkaError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conftest import Figure
from tests.fakes.clock import FakeClock
from tests.fakes.interrupting import Points, interrupt
from tests.fakes.selectable import FakeSelectable
from tests.support import amounts
from tests.unit.client.test_blocking_and_admin import ONE, TWO, ClusterFake

#: "all": every line. Otherwise one of so many lines, once connected and while connecting.
_ALL = amounts.INTERRUPT_POINTS == "all"
_STRIDE, _STRIDE_WHILE_CONNECTING = 111, 211

_MOST_POINTS = 1_000_000

Call = Callable[[BlockingClient], object]


def metadata_of(topic: str) -> RequestSpec:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return RequestSpec(ApiKey.METADATA, lambda version: request)


def make_client() -> BlockingClient:
    clock = FakeClock()
    config = ClientConfig(bootstrap_servers=("127.0.0.1:9092",))
    network = FakeSelectable(clock, ClusterFake())
    return BlockingClient(config, client_id="me", timeout_ms=5000, clock=clock, selectable=network)


CALLS: dict[str, Call] = {
    "any node": lambda client: client.fetch_cluster(["u"]),
    "one node": lambda client: client.ask(ONE, metadata_of("u")),
    "many nodes": lambda client: client.request_all([(ONE, metadata_of("u")), (TWO, metadata_of("u"))]),
    "nothing": lambda client: client.idle(50),
}


@pytest.mark.behaviour("Faults: interrupts and signals", "An interrupted request leaves its answer to nobody")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_connected", [True, False], ids=["connected", "not connected"])
def test_answer_to_an_interrupted_request_reaches_no_other_call(name: str, is_connected: bool, figure: Figure) -> None:
    tried = 0
    stride = 1 if _ALL else _STRIDE if is_connected else _STRIDE_WHILE_CONNECTING
    for point in range(0, _MOST_POINTS, stride):
        client = make_client()
        if is_connected:
            client.fetch_cluster(["t"])
        points = Points(point, interrupt)
        with suppress(KeyboardInterrupt):
            points.during(lambda client=client: CALLS[name](client))  # type: ignore[misc]
        if points.struck is None:
            break
        tried += 1
        cluster = client.fetch_cluster(["t"])
        assert (cluster.partition_count("t"), cluster.partition_count("u")) == (2, None), points.struck
        answers = client.request_all([(node, metadata_of("t")) for node in (ONE, TWO)])
        assert not any(isinstance(answer, KafkaError) for answer in answers), points.struck
        client.close()
    figure("interrupted", f"{tried} points")


@pytest.mark.behaviour(
    "Faults: interrupts and signals",
    "A signal handler that asks in the middle of a request is told at once that it cannot",
)
def test_signal_handler_asking_during_a_request_is_refused() -> None:
    refused = answered = 0
    for point in range(0, _MOST_POINTS, _STRIDE_WHILE_CONNECTING):
        client = make_client()

        def ask(client: BlockingClient = client) -> None:
            nonlocal refused, answered
            try:
                client.fetch_cluster(["u"])
            except KafkaError as error:
                assert "during another request on the same thread" in str(error)
                refused += 1
            else:
                answered += 1

        points = Points(point, ask)
        cluster = points.during(lambda client=client: client.fetch_cluster(["t"]))  # type: ignore[misc]
        assert cluster.partition_count("t") == 2  # type: ignore[attr-defined]
        if points.struck is None:
            break
    assert refused > 10
    assert answered
