"""The transaction requests that a driver sends: it can begin, describe and end transactions of other producers.

A method that returns an exchange (see :mod:`kafka_sink.client.blocking.blocking`) sends nothing until the exchange is
run; running it blocks the calling thread. Retriable errors are retried with backoff until the time-out; other errors
are raised under Kafka's own code. The client caches the coordinator of each key and the cluster's nodes; all decisions
are made by the protocols. The requests that change a transaction are the producer's, from
:mod:`kafka_sink.client.requests.transactional_requests`.

Source: DescribeTransactions, ListTransactions (KIP-664), DescribeConfigs; KIP-98.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafka_sink.client.blocking.blocking import BlockingClient, Pause, RequestSpec, Round, cluster_request
from kafka_sink.client.blocking.coordinator_requests import CoordinatorRequests, caller_reaction
from kafka_sink.client.blocking.leader_requests import LeaderRequests
from kafka_sink.client.metadata.cluster import Cluster, PartitionInfo
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.client.requests.admin_requests import OffsetFetch, describe_broker_config, visible_settings
from kafka_sink.client.requests.transactional_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from kafka_sink.common import config as c
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import (
    ApiError,
    DisconnectError,
    ErrorCode,
    KafkaTimeoutError,
    UnsupportedVersionError,
    error_for,
)
from kafka_sink.common.model import (
    TRANSACTION_VERSION_FEATURE,
    ConsumerGroupMetadata,
    Node,
    OffsetAndMetadata,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.exactly_once.model import Memories
from kafka_sink.exactly_once.transactions import OVERTAKEN, Transaction, TransactionDescription
from kafka_sink.exactly_once.verification import TransactionVerification
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import TRANSACTION
from kafka_sink.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_sink.protocol.schema import Struct

_IN_FLIGHT: Final = 1000

#: Of an id that is fenced; the driver that follows asks for its own. Brokers accept it from anybody.
_FENCE_TIMEOUT_MS: Final = 1000

#: The metadata of a new topic reaches the brokers one after another, so a missing topic is looked up again after these
#: pauses.
_PAUSES_FOR_A_NEW_TOPIC_MS: Final = (50, 100, 200, 400, 800, 1600)


def _describing(transactional_ids: list[str]) -> RequestSpec:
    request = DescribeTransactionsRequest(transactional_ids=transactional_ids)
    return RequestSpec(ApiKey.DESCRIBE_TRANSACTIONS, lambda version: request)


class CoordinatorClient(CoordinatorRequests):
    """Use it as a context manager.

    :param properties: a configuration, or properties under Kafka's names, of which those for producers are ignored.
    :param timeout_ms: the maximum duration of one exchange.
    """

    def __init__(
        self, properties: ClientConfig | Mapping[str, Any], *, timeout_ms: int = 60_000, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if not isinstance(properties, ClientConfig):
            properties = c.parse(ClientConfig, c.known_to(ClientConfig, properties))
        config = replace(properties, max_in_flight_requests_per_connection=_IN_FLIGHT)
        client_id = config.client_id or "kafkalite-driver"
        super().__init__(
            BlockingClient(config, client_id=client_id, timeout_ms=timeout_ms, clock=clock), timeout_ms, clock
        )
        #: The nodes from the latest metadata; empty before the first metadata and after a lost connection to a node.
        self._nodes: tuple[Node, ...] = ()
        #: Questions to the leaders of partitions.
        self.leaders = LeaderRequests(self._cluster, self.tries)
        #: What this process remembers of each sink, by the prefix of its ids.
        self.remembered = Memories()
        self._verification = TransactionVerification(self._client, self._fetch_nodes, timeout_ms, clock)

    # --- the cluster -------------------------------------------------------------------------------------------------

    def transaction_version(self) -> TransactionVersion:
        """The transaction version of the cluster now, from its finalized feature transaction.version."""
        if not self._nodes:
            self._fetch_nodes()
        return TransactionVersion.of_level(self._client.feature_level(TRANSACTION_VERSION_FEATURE))

    def require_verification(self) -> None:
        """Return once every broker is known to verify transactions. Each broker is asked only from time to time.

        :raises ExactlyOnceError: if some do not; the text names them and says what to do.
        :raises BrokersUnreachableError: if a broker did not answer.
        """
        self._verification.require(self._nodes or self._fetch_nodes())

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
        self.remembered.belong_to(cluster.cluster_id)
        self._nodes = cluster.nodes
        return cluster

    def _fetch_nodes(self) -> tuple[Node, ...]:
        self.run(self._cluster([]))
        return self._nodes

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

    # --- begin -------------------------------------------------------------------------------------------------------

    async def init_producer_id(
        self,
        transactional_id: str,
        transaction_timeout_ms: int,
        *,
        expected: Transaction | None = None,
        two_phase: bool = False,
        repeat_lost: bool = True,
        final: Collection[ErrorCode] = (),
    ) -> Transaction:
        """Get a new epoch for the id. The previous producer is fenced, and its open transaction is aborted first.

        With *expected*, the request succeeds only if *expected* is still the current producer of the id (KIP-360);
        otherwise it fails with PRODUCER_FENCED (or INVALID_PRODUCER_EPOCH). With *two_phase*, its transactions never
        time out (KIP-939). The request is not repeated after codes that are *final*.

        :raises ApiError: if the coordinator refuses: INVALID_TRANSACTION_TIMEOUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            and the like.
        :raises DisconnectError: if the answer was lost, unless *repeat_lost*. The request may still reach the broker at
            any time, and would abort a transaction that is open then.
        :raises KafkaTimeoutError: if there is no final answer within the time-out.
        """
        before = None if expected is None else expected.producer
        request = InitProducerId(transactional_id, transaction_timeout_ms, before, two_phase)
        return Transaction(transactional_id, *await self.ask(request, repeat_lost=repeat_lost, final=final))

    async def fence_open(self, opened: Transaction) -> None:
        """Abort the transaction *opened* by a new epoch of its id (KIP-360), after which its producer cannot go on.

        EndTxn does not fence in version 1: the producer could open the transaction anew, without what it wrote before.
        The end may still be being written when this returns. Nothing happens if the id has another producer by now.

        :raises ApiError: if the coordinator refuses for another reason.
        """
        # The coordinator has begun the abort, or the transaction had ended.
        ended = OVERTAKEN | {ErrorCode.CONCURRENT_TRANSACTIONS}
        try:
            await self.init_producer_id(
                opened.transactional_id, _FENCE_TIMEOUT_MS, expected=opened, final=(ErrorCode.CONCURRENT_TRANSACTIONS,)
            )
        except ApiError as error:
            if error.code not in ended:
                raise

    async def add_to_transaction(
        self, transaction: Transaction, partitions: Collection[TopicPartition], group: str | None = None
    ) -> None:
        """Add *partitions*, and those of *group*'s offsets, to *transaction* without writing to them, so that its end
        is written there, too. This opens the transaction, in either version.

        :raises ApiError: PRODUCER_FENCED or INVALID_PRODUCER_EPOCH if the id has another producer by now.
        """
        name, producer = transaction.transactional_id, transaction.producer
        if partitions:
            await self.ask(AddPartitionsToTxn(name, producer, frozenset(partitions)))
        if group is not None:
            await self.ask(AddOffsetsToTxn(name, producer, group))

    # --- end ---------------------------------------------------------------------------------------------------------

    async def end(
        self, transactions: Iterable[Transaction], transaction_version: TransactionVersion, *, commit: bool
    ) -> dict[Transaction, ErrorCode]:
        """End all *transactions*, many at a time. The returned codes are final.

        NONE: the transaction is committed (or aborted), by this call or an earlier one. INVALID_TXN_STATE,
        PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING: the transaction had already ended in a
        different way.

        :raises KafkaTimeoutError: if some transactions had no final answer in time; their outcome is unknown.
        :raises ApiError: if a coordinator refused for another reason.
        """
        outcomes = await self.ask_many(
            {each: EndTxn(each.transactional_id, each.producer, transaction_version, commit) for each in transactions}
        )
        refused = {code for code in outcomes.values() if code is not ErrorCode.NONE and code not in OVERTAKEN}
        for transaction, code in outcomes.items():
            if code in refused:
                raise error_for(code, f"EndTxn of {transaction}")
        return outcomes

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        transaction: Transaction,
        transaction_version: TransactionVersion,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        before: TopicPartition,
    ) -> OffsetAndMetadata | None:
        """Add *offsets* of *group* to *transaction*; they take effect when it is committed. Return the offset of
        *before* that is committed until then, as the coordinator that has accepted *offsets* knows it (None: there is
        none). Unlike an offset that is only fetched, it is never that of a coordinator that was replaced.

        :raises ApiError: INVALID_PRODUCER_EPOCH or PRODUCER_FENCED if a newer producer has the id; other codes
            unchanged.
        """
        name, producer = transaction.transactional_id, transaction.producer
        if transaction_version is TransactionVersion.V1:
            await self.ask(AddOffsetsToTxn(name, producer, group))
        committed = await self.ask_behind(
            TxnOffsetCommit(name, producer, transaction_version, ConsumerGroupMetadata(group), offsets),
            # A look that waits for transactions would wait for this one.
            OffsetFetch(group, {before.topic: [before.partition]}, waits_for_transactions=False),
        )
        return committed.get(before)

    async def fetch_offsets(
        self, group: str, topic: str, partitions: Sequence[int], *, require_stable: bool = True, waits: bool = True
    ) -> dict[int, OffsetAndMetadata]:
        """The committed offsets of *group*; partitions without one are omitted. With *require_stable*, the call waits
        for the end of a transaction that would change them; without *waits* it raises UNSTABLE_OFFSET_COMMIT instead.

        :raises ApiError: if the coordinator refuses: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED and the
            like.
        """
        request = OffsetFetch(
            group, {topic: partitions}, waits_for_transactions=require_stable, refuses_old_brokers=True
        )
        offsets = await self.ask(request, final=() if waits else (ErrorCode.UNSTABLE_OFFSET_COMMIT,))
        return {partition: offset for (_, partition), offset in offsets.items()}

    # --- look --------------------------------------------------------------------------------------------------------

    async def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """The description of each id; ids that no coordinator knows (any more) are omitted.

        :raises UnsupportedVersionError: if the brokers are older than 3.0.
        """
        descriptions: dict[str, TransactionDescription] = {}
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
                assert isinstance(answer, DescribeTransactionsResponse)
                for state in answer.transaction_states:
                    code = ErrorCode.of(state.error_code)
                    if code is ErrorCode.NONE:
                        descriptions[state.transactional_id] = TransactionDescription.of(state)
                    elif code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        error = error_for(state.error_code, f"transactional id {state.transactional_id!r}")
                        if not caller_reaction(ApiKey.DESCRIBE_TRANSACTIONS, code).is_retry:
                            raise error
                        again[state.transactional_id] = error
            left = list(again)
            if left:
                self._forget((TRANSACTION, name) for name in left)
                await tries.pause("DescribeTransactions", again[left[0]])
        return descriptions

    async def list_ids(
        self, states: Sequence[str] = (), pattern: str | None = None, producer_ids: Collection[int] = ()
    ) -> list[str]:
        """The ids whose transaction is in any of *states* (Kafka's names; empty means all), from all brokers that can
        be reached: those that match the regular expression *pattern*, and with *producer_ids*, that have one of them.
        Only brokers from 4.1 on apply patterns (KIP-1152), so the caller must filter the ids again."""

        def build(version: int) -> Struct:
            request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=sorted(producer_ids))
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
            listed.update(nodes)
            refused: list[ApiError] = []
            for node, answer in zip(nodes, answers, strict=True):
                if isinstance(answer, DisconnectError):
                    is_one_lost = True
                    continue
                if isinstance(answer, ApiError):
                    raise answer
                assert isinstance(answer, ListTransactionsResponse)
                code = ErrorCode.of(answer.error_code)
                if code is ErrorCode.NONE:
                    names += [state.transactional_id for state in answer.transaction_states]
                    continue
                refused.append(error_for(code, f"ListTransactions of {node}"))
                if not caller_reaction(ApiKey.LIST_TRANSACTIONS, code).is_retry:
                    raise refused[-1]
                # The broker is loading the transactions that it coordinates, and does not list them yet.
                listed.remove(node)
            if refused:
                await tries.pause("ListTransactions", refused[0])
        if is_one_lost:
            self._nodes = ()
        return names

    def rest(self, idle_ms: int) -> None:
        """Close all connections until the next request, unless there was one within *idle_ms*. Any thread but one that
        handles signals."""
        self._client.rest(idle_ms)

    def close(self) -> None:
        """Close all connections. Closing again does nothing."""
        self._client.close()

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
