"""The errors of a driver when the brokers cannot be reached at their advertised addresses."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from kafka_sink.client.blocking import blocking
from kafka_sink.client.blocking.blocking import Exchange
from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.client.factory import create_client
from kafka_sink.common.clock import Moment
from kafka_sink.common.errors import BrokersUnreachableError
from kafka_sink.common.model import Node, OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import Plan
from kafka_sink.exactly_once.planning import plan_batch
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.transactions import Transaction
from kafka_sink.exactly_once.writing import WriterTransactions
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from tests.fakes import metadata_answers
from tests.fakes.clock import FakeClock
from tests.fakes.selectable import FakeSelectable
from tests.support.cases import with_each

TIMEOUT_MS = 8_000
#: Addresses that need no resolver: the refusals below take the place of its errors.
BROKER, BOOTSTRAP = Node(1, "127.0.0.9", 29092), "127.0.0.1:9092"
PLACE = TopicPartition("t", 0)
TRANSACTION = Transaction("s/t.driver", 8, 0)
V2 = TransactionVersion.V2

#: Each reason for which a broker is unreachable, and its text in the error.
REASONS: dict[str, tuple[OSError | None, str]] = {
    "unresolvable": (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
    "gone": (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "connection refused"),
    "no route": (OSError(errno.EHOSTUNREACH, "No route to host"), "no route to host"),
    "silent": (None, "no (answer yet|connection within 8000 ms)"),
}


class Cluster(FakeSelectable):
    """One broker, which answers at its bootstrap address and is unreachable at its advertised address."""

    def __init__(self, reason: str) -> None:
        super().__init__(FakeClock(), self._answer)
        refusal = REASONS[reason][0]
        if refusal is not None:
            self.refusals["1"] = refusal

    def connect(self, connection_id: str, *rest: Any) -> None:
        self.auto_connect = connection_id != "1"
        super().connect(connection_id, *rest)

    def _answer(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct:
        if isinstance(body, ApiVersionsRequest):
            return ApiVersionsResponse(
                api_keys=[ApiVersion(key, api.versions.min, api.versions.max) for key, api in APIS.items()]
            )
        if isinstance(body, MetadataRequest):
            topic = metadata_answers.topic("t", metadata_answers.partition(0, 1))
            return metadata_answers.answer(topic, nodes=(BROKER,))
        assert isinstance(body, FindCoordinatorRequest)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host=BROKER.host, port=BROKER.port) for key in body.coordinator_keys
            ]
        )


def of(exchange: Callable[[CoordinatorClient], Exchange[Any]]) -> Callable[[CoordinatorClient], object]:
    return lambda client: client.run(exchange(client))


def begin(client: CoordinatorClient) -> object:
    return WriterTransactions().begin(client, Plan("s/t", TRANSACTION, V2, 20_000, Moment(0, 0), None, 1), 1)


#: All calls that wait for a particular broker.
QUESTIONS: dict[str, Callable[[CoordinatorClient], object]] = {
    "init": of(lambda client: client.init_producer_id("s/t.driver", 1_000)),
    "init own": of(lambda client: client.init_producer_id("s/t.1", 1_000, repeat_lost=False)),
    "fence open": of(lambda client: client.fence_open(TRANSACTION)),
    "add": of(lambda client: client.add_to_transaction(TRANSACTION, [PLACE], "s")),
    "end": of(lambda client: client.end([TRANSACTION], V2, commit=True)),
    "commit offsets": of(
        lambda client: client.commit_offsets(TRANSACTION, V2, "s", {PLACE: OffsetAndMetadata(1)}, PLACE)
    ),
    "fetch offsets": of(lambda client: client.fetch_offsets("s", "t", [0])),
    "describe": of(lambda client: client.describe(["s/t.driver"])),
    "end offsets": of(lambda client: client.leaders.end_offsets([PLACE], stable=True)),
    "open transactions": of(lambda client: client.leaders.open_transactions([PLACE])),
    "marker": of(lambda client: client.leaders.write_marker(PLACE, LogTransaction(8, 0, 1, 0, 0), commit=False)),
    "verification": lambda client: client.require_verification(),
    "task begins": begin,
    "batch begins": lambda client: plan_batch(SinkDriver(client, "s", "t")),
}


@pytest.mark.behaviour(
    "Exactly once: plan", "A request that a broker cannot be reached for names its address, the reason and the time"
)
@with_each("question", QUESTIONS)
@with_each("reason", REASONS)
def test_request_without_its_broker_tells_address_and_reason(reason: str, question: str) -> None:
    network = Cluster(reason)
    started_ms = network.clock.now_ms
    with coordinator_client(network) as client, pytest.raises(BrokersUnreachableError) as caught:
        QUESTIONS[question](client)
    assert caught.match(rf"127\.0\.0\.9:29092: ({REASONS[reason][1]})")
    assert caught.match(f"within {TIMEOUT_MS} ms")
    assert network.clock.now_ms - started_ms < TIMEOUT_MS + 1_000


@pytest.mark.behaviour(
    "Exactly once: plan", "A request that a broker cannot be reached for names its address, the reason and the time"
)
def test_batch_without_any_broker_fails_in_the_time_it_says() -> None:
    network = Cluster("gone")
    network.refusals["-1"] = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    started_ms = network.clock.now_ms
    told = r"within 8000 ms: 127\.0\.0\.1:9092: connection refused"
    with coordinator_client(network) as client, pytest.raises(BrokersUnreachableError, match=told):
        plan_batch(SinkDriver(client, "s", "t", clock=network.clock))
    assert network.clock.now_ms - started_ms < TIMEOUT_MS + 1_000


def coordinator_client(network: FakeSelectable) -> CoordinatorClient:
    def connect(*args: Any, **options: Any) -> Any:
        return create_client(*args, **{**options, "selectable": network})

    with mock.patch.object(blocking, "create_client", connect):
        return CoordinatorClient({"bootstrap.servers": BOOTSTRAP}, timeout_ms=TIMEOUT_MS, clock=network.clock)
