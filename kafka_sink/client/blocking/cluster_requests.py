"""Blocking requests about a whole cluster: its brokers, topics and transactions.

The ``async`` methods are exchanges, see :mod:`blocking`. All requests are read-only.

Source: Metadata, DescribeConfigs; DescribeTransactions, ListTransactions (KIP-664, KIP-1152).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kafka_sink.client.blocking.blocking import BlockingClient, Pause, RequestSpec, Round, cluster_request
from kafka_sink.client.blocking.coordinator_requests import CoordinatorRequests, caller_reaction
from kafka_sink.client.blocking.leader_requests import LeaderRequests
from kafka_sink.client.connection.api_versions import api_versions_request
from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo
from kafka_sink.client.requests.admin_requests import describe_broker_config, visible_settings
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import (
    ApiError,
    DisconnectError,
    ErrorCode,
    KafkaTimeoutError,
    UnsupportedVersionError,
    error_for,
)
from kafka_sink.common.model import TRANSACTION_VERSION_FEATURE, Node, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import transaction_admin as m
from kafka_sink.protocol.messages.metadata import TRANSACTION
from kafka_sink.protocol.schema import Struct

#: The metadata of a new topic reaches the brokers one after another, so a missing topic is looked up again after these
#: pauses.
_PAUSES_FOR_A_NEW_TOPIC_MS: Final = (50, 100, 200, 400, 800, 1600)


#: The request for the API versions of a broker.
VERSIONS_REQUEST: Final = RequestSpec(ApiKey.API_VERSIONS, api_versions_request)


def versions_and_setting(
    client: BlockingClient, nodes: Sequence[Node], timeout_ms: int, name: str
) -> dict[Node, tuple[Struct | ApiError, Struct | ApiError]]:
    """The answers of each of *nodes* to :data:`VERSIONS_REQUEST` and to a request for its setting *name*. All requests
    are sent at once, over one connection to each node."""

    def setting_of(node: Node) -> RequestSpec:
        return RequestSpec(ApiKey.DESCRIBE_CONFIGS, lambda version: describe_broker_config(node, name), is_behind=True)

    requests = [(node, spec) for node in nodes for spec in (VERSIONS_REQUEST, setting_of(node))]
    answers = client.request_all(requests, timeout_ms=timeout_ms)
    return dict(zip(nodes, zip(answers[::2], answers[1::2], strict=True), strict=True))


class ClusterRequests(CoordinatorRequests):
    """As :class:`CoordinatorRequests`; *leaders* sends requests to the leaders of partitions."""

    def __init__(self, client: BlockingClient, timeout_ms: int, clock: Clock) -> None:
        super().__init__(client, timeout_ms, clock)
        #: The nodes from the latest metadata; empty before the first metadata and after a lost connection to a node.
        self._nodes: tuple[Node, ...] = ()
        self.leaders = LeaderRequests(self._cluster, self.tries)

    def learn(self, cluster: Cluster) -> None:
        """Called with the cluster in a broker's answer."""
        self._nodes = cluster.nodes

    def nodes(self) -> tuple[Node, ...]:
        """The brokers in the latest metadata; fetches it if there is none."""
        return self._nodes or self.fetch_nodes()

    def fetch_nodes(self) -> tuple[Node, ...]:
        """The current brokers, from a new metadata request."""
        return self.run(self._cluster([])).nodes

    def transaction_version(self) -> TransactionVersion:
        """The transaction version of the cluster now, from its finalized feature transaction.version."""
        self.nodes()
        return TransactionVersion.of_level(self._client.feature_level(TRANSACTION_VERSION_FEATURE))

    async def _cluster(self, topics: Sequence[str] | None) -> Cluster:
        """Fetch the cluster with *topics* (None: all): from a known node first, so that other requests need not wait
        for the choice of one, otherwise from any broker."""
        spec, cluster_of = cluster_request(topics)
        known = self._nodes[0] if self._nodes else None
        (answer,) = await Round([(known, spec)], self.timeout_ms)
        if known is not None and isinstance(answer, DisconnectError):
            (answer,) = await Round([(None, spec)], self.timeout_ms)
        if isinstance(answer, ApiError):
            raise answer
        cluster = cluster_of(answer)
        self.learn(cluster)
        return cluster

    async def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions with their leaders; empty if the topic does not exist or this client may not see it.

        A topic that was just created may not be known to every broker yet, so the lookup is repeated.
        """
        for pause_ms in _PAUSES_FOR_A_NEW_TOPIC_MS:
            partitions = (await self._cluster([topic])).partitions_for_topic(topic)
            if partitions:
                return partitions
            await Pause(pause_ms)
        return (await self._cluster([topic])).partitions_for_topic(topic)

    async def broker_setting(self, name: str) -> str | None:
        """The value of a broker setting; None if the broker does not return it, for example without authorization or
        because it does not offer DescribeConfigs."""
        node = (await self._cluster([])).nodes[0]
        request = describe_broker_config(node, name)
        (answer,) = await Round([(node, RequestSpec(ApiKey.DESCRIBE_CONFIGS, lambda _: request))], self.timeout_ms)
        if isinstance(answer, DisconnectError | UnsupportedVersionError):
            return None
        if isinstance(answer, ApiError):
            raise answer
        return visible_settings(answer).get(name)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, m.TransactionState]:
        """The state of each id, from its coordinator; ids that no coordinator knows (any more) are omitted.

        :raises UnsupportedVersionError: if the brokers are older than 3.0.
        """
        states: dict[str, m.TransactionState] = {}
        left = sorted(set(transactional_ids))
        tries = self.tries()
        while left:
            await self.locate([(TRANSACTION, name) for name in left], tries)
            by_node: dict[Node, list[str]] = {}
            for name in left:
                by_node.setdefault(self.coordinator((TRANSACTION, name)), []).append(name)
            answers = await Round([(node, _describing(names)) for node, names in by_node.items()], tries.left_ms)
            again: dict[str, ApiError] = {}
            for names, answer in zip(by_node.values(), answers, strict=True):
                if isinstance(answer, DisconnectError | KafkaTimeoutError):
                    again |= dict.fromkeys(names, answer)
                    continue
                if isinstance(answer, ApiError):
                    raise answer
                assert isinstance(answer, m.DescribeTransactionsResponse)
                for state in answer.transaction_states:
                    code, name = ErrorCode.of(state.error_code), state.transactional_id
                    if code is ErrorCode.NONE:
                        states[name] = state
                    elif code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        again[name] = error_for(state.error_code, f"transactional id {name!r}")
                        if not caller_reaction(ApiKey.DESCRIBE_TRANSACTIONS, code).is_retry:
                            raise again[name]
            left = list(again)
            if left:
                self._forget((TRANSACTION, name) for name in left)
                await tries.pause("DescribeTransactions", again[left[0]])
        return states

    async def list_ids(
        self, states: Sequence[str] = (), pattern: str | None = None, producer_ids: Collection[int] = ()
    ) -> list[str]:
        """The ids whose transaction is in any of *states* (Kafka's names; empty means all), from all brokers that can
        be reached: those that match the regular expression *pattern*, and with *producer_ids*, that have one of them.
        Only brokers from 4.1 on apply patterns (KIP-1152), so the caller must filter the ids again."""

        def build(version: int) -> Struct:
            request = m.ListTransactionsRequest(state_filters=list(states), producer_id_filters=sorted(producer_ids))
            if version >= 2:
                request.transactional_id_pattern = pattern
            return request

        spec = RequestSpec(ApiKey.LIST_TRANSACTIONS, build)
        names: list[str] = []
        listed: set[Node] = set()
        is_one_lost = False
        tries = self.tries()
        if not self._nodes:
            await self._cluster([])
        # Another exchange may update the list of brokers while this one waits.
        while nodes := [node for node in self._nodes if node not in listed]:
            answers = await Round([(node, spec) for node in nodes], tries.left_ms)
            refused: ApiError | None = None
            for node, answer in zip(nodes, answers, strict=True):
                if isinstance(answer, ApiError) and not isinstance(answer, DisconnectError):
                    raise answer
                listed.add(node)
                if not isinstance(answer, m.ListTransactionsResponse):
                    is_one_lost = True
                elif answer.error_code == ErrorCode.NONE:
                    names += [state.transactional_id for state in answer.transaction_states]
                else:
                    refused = error_for(answer.error_code, f"ListTransactions of {node}")
                    if not caller_reaction(ApiKey.LIST_TRANSACTIONS, refused.code).is_retry:
                        raise refused
                    # The broker is loading the transactions that it coordinates, and does not list them yet.
                    listed.remove(node)
            if refused is not None:
                await tries.pause("ListTransactions", refused)
        if is_one_lost:
            self._nodes = ()
        return names


def _describing(transactional_ids: list[str]) -> RequestSpec:
    request = m.DescribeTransactionsRequest(transactional_ids=transactional_ids)
    return RequestSpec(ApiKey.DESCRIBE_TRANSACTIONS, lambda version: request)
