"""The driver sends its requests to many brokers to all of them at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from kafka_sink.client.blocking import blocking
from kafka_sink.client.factory import create_client
from kafka_sink.common.errors import ErrorCode, UnsupportedVersionError
from kafka_sink.common.model import Node
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
)
from kafka_sink.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_sink.protocol.messages.transaction_admin import ListedTransaction as ListedState
from kafka_sink.protocol.messages.transaction_admin import TransactionState as DescribedState
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from tests.fakes import metadata_answers
from tests.fakes.clock import FakeClock
from tests.fakes.selectable import FakeSelectable

NODES = tuple(Node(number, "127.0.0.1", 9000 + number) for number in range(8))
#: One transactional id for each node.
IDS = [f"s/t.00000000000{node.id}.1" for node in NODES]


class Brokers:
    """Coordinators that answer only after each of them has a request; the node *lost* disconnects instead."""

    def __init__(self) -> None:
        self.selectable = FakeSelectable(FakeClock(), self.answer)
        self.withheld: dict[str, Struct | None] = {}
        self.lost: int | None = None
        self.missing: set[ApiKey] = set()
        self.busy: set[str] = set()
        self.described: list[str] = []
        self.listed: list[str] = []

    def answer(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        if isinstance(body, ApiVersionsRequest):
            known = [(key, api.versions) for key, api in APIS.items() if key not in self.missing]
            return ApiVersionsResponse(api_keys=[ApiVersion(key, each.min, each.max) for key, each in known])
        if isinstance(body, MetadataRequest):
            return metadata_answers.answer(nodes=NODES)
        if isinstance(body, FindCoordinatorRequest):
            found = [(key, NODES[IDS.index(key)]) for key in body.coordinator_keys]
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key=key, node_id=n.id, host=n.host, port=n.port) for key, n in found]
            )
        if int(connection_id) == self.lost:
            self.selectable.lose(connection_id)
            return self._withhold(connection_id, None)
        own = IDS[int(connection_id)]
        if isinstance(body, ListTransactionsRequest):
            self.listed.append(own)
            if own in self.busy:
                self.busy.remove(own)
                loading = ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                return self._withhold(connection_id, loading)
            return self._withhold(connection_id, ListTransactionsResponse(transaction_states=[ListedState(own)]))
        assert isinstance(body, DescribeTransactionsRequest) and body.transactional_ids == [own]
        code = ErrorCode.NONE
        if own in self.busy:
            self.busy.remove(own)
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.described.append(own)
        state = DescribedState(error_code=code, transactional_id=own, transaction_state="Ongoing")
        return self._withhold(connection_id, DescribeTransactionsResponse(transaction_states=[state]))

    def _withhold(self, connection_id: str, answer: Struct | None) -> Struct | None:
        """Return None until the last broker has its request, and then send all responses."""
        if max(len(self.described), len(self.listed)) > len(NODES):
            # A repeated request.
            return answer
        self.withheld[connection_id] = answer
        if len(self.withheld) == len(NODES):
            for other, its in self.withheld.items():
                if other != connection_id and its is not None:
                    self.selectable.reply(other, its)
            self.withheld = {}
            return answer
        return None


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def client(brokers: Brokers) -> Iterator[CoordinatorClient]:
    def connect(*args: Any, **options: Any) -> Any:
        return create_client(*args, **{**options, "selectable": brokers.selectable})

    with mock.patch.object(blocking, "create_client", connect):
        made = CoordinatorClient({"bootstrap.servers": "127.0.0.1:9000"}, clock=brokers.selectable.clock)
    with made:
        yield made


def test_all_are_asked_for_open_transactions_at_once(client: CoordinatorClient) -> None:
    assert sorted(client.run(client.list_ids(["Ongoing"], ".*"))) == IDS


def test_all_coordinators_describe_their_transactions_at_once(client: CoordinatorClient) -> None:
    assert sorted(client.run(client.describe(IDS))) == IDS


def test_a_coordinator_that_is_not_ready_is_asked_again_alone(brokers: Brokers, client: CoordinatorClient) -> None:
    brokers.busy = {IDS[3]}
    assert sorted(client.run(client.describe(IDS))) == IDS
    assert brokers.described == [*brokers.described[: len(IDS)], IDS[3]]


def test_loading_broker_is_asked_again_for_open_transactions(brokers: Brokers, client: CoordinatorClient) -> None:
    brokers.busy = {IDS[3]}
    assert sorted(client.run(client.list_ids(["Ongoing"], ".*"))) == IDS
    assert brokers.listed == [*brokers.listed[: len(IDS)], IDS[3]]


def test_a_broker_that_is_gone_hides_its_own_transactions_alone(brokers: Brokers, client: CoordinatorClient) -> None:
    client.run(client.list_ids(["Ongoing"], ".*"))
    brokers.lost = 5
    assert sorted(client.run(client.list_ids(["Ongoing"], ".*"))) == [*IDS[:5], *IDS[6:]]


@pytest.mark.parametrize("missing", [ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_TRANSACTIONS])
def test_brokers_that_do_not_know_the_question_are_refused(
    missing: ApiKey, brokers: Brokers, client: CoordinatorClient
) -> None:
    brokers.missing = {missing}
    with pytest.raises(UnsupportedVersionError, match=missing.name):
        client.run(client.list_ids(["Ongoing"], ".*")) if missing is ApiKey.LIST_TRANSACTIONS else client.run(
            client.describe(IDS)
        )
