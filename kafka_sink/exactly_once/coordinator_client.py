"""The transaction requests that a driver sends: it can begin, describe and end transactions of other producers.

The ``async`` methods are exchanges, see :mod:`kafka_sink.client.blocking.blocking`. Retriable errors are retried with
backoff until the time-out; other errors are raised under Kafka's own code. All decisions are made by the protocols. The
requests that change a transaction are the producer's, from :mod:`kafka_sink.client.requests.transactional_requests`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from kafka_sink.client.blocking.blocking import BlockingClient
from kafka_sink.client.blocking.cluster_requests import ClusterRequests
from kafka_sink.client.blocking.transaction_verification import TransactionVerification
from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.client.requests.admin_requests import OffsetFetch
from kafka_sink.client.requests.transactional_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from kafka_sink.common import config as c
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ApiError, ErrorCode, error_for
from kafka_sink.common.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, TransactionVersion
from kafka_sink.common.threads import Thread, start_thread
from kafka_sink.exactly_once.model import WRITE_AT_LEAST_ONCE, ExactlyOnceError, Memories
from kafka_sink.exactly_once.transactions import OVERTAKEN, Transaction, TransactionDescription

_log = logging.getLogger(__name__)

T = TypeVar("T")

_IN_FLIGHT: Final = 1000
_SLICE_S: Final = 0.5

#: The time-out of a fenced id, short enough for every broker; the next driver sets its own.
_FENCE_TIMEOUT_MS: Final = 1000


@contextmanager
def unless_overtaken(transaction: Transaction, *also: ErrorCode) -> Iterator[None]:
    """Ignore an error that says that the id of *transaction* has another producer, or one of the codes *also*."""
    try:
        yield
    except ApiError as error:
        if error.code not in OVERTAKEN and error.code not in also:
            raise
        _log.info("%s has another producer by now: %s", transaction.transactional_id, error)


class CoordinatorClient(ClusterRequests):
    """A client for the requests of a driver to coordinators and leaders; use it as a context manager.

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
        #: The cached state of each sink, by the prefix of its ids.
        self.remembered = Memories()
        self._looking: Thread | None = None
        self._verification = TransactionVerification(self._client, self.fetch_nodes, timeout_ms, clock)

    def learn(self, cluster: Cluster) -> None:
        super().learn(cluster)
        self.remembered.belong_to(cluster.cluster_id)

    def require_verification(self) -> None:
        """Return once every broker is known to verify transactions. The result is cached for each broker for a time.

        :raises ExactlyOnceError: if some do not; the text names them and says what to do.
        :raises BrokersUnreachableError: if a broker did not answer.
        """
        missing = self._verification.missing(self.nodes())
        if missing is not None:
            raise ExactlyOnceError(
                "exactly-once writes need brokers that verify transactions (KIP-890), because rows could otherwise be "
                f"duplicated or hidden from readers: {missing}. {WRITE_AT_LEAST_ONCE}"
            )

    async def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """The description of each id; ids that no coordinator knows (any more) are omitted.

        :raises UnsupportedVersionError: if the brokers are older than 3.0.
        """
        states = await self.describe_transactions(transactional_ids)
        return {name: TransactionDescription.of(state) for name, state in states.items()}

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

        :raises ApiError: if the coordinator refuses, such as INVALID_TRANSACTION_TIMEOUT.
        :raises DisconnectError: if the response was lost, unless *repeat_lost*. The request may still reach the broker
            at any time, and would abort a transaction that is open then.
        :raises KafkaTimeoutError: if there is no final response within the time-out.
        """
        before = None if expected is None else expected.producer
        request = InitProducerId(transactional_id, transaction_timeout_ms, before, two_phase)
        return Transaction(transactional_id, *await self.ask(request, repeat_lost=repeat_lost, final=final))

    async def fence_open(self, opened: Transaction) -> None:
        """Abort the transaction *opened* by a new epoch of its id (KIP-360), which fences its producer.

        EndTxn does not fence in version 1: the producer could open the transaction again, without its earlier records.
        On return the markers may not be written yet. Nothing happens if the id has another producer by now.

        :raises ApiError: if the coordinator refuses for another reason.
        """
        # With this code the coordinator has begun the abort, or the transaction had ended.
        final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
        with unless_overtaken(opened, *final):
            name = opened.transactional_id
            await self.init_producer_id(name, _FENCE_TIMEOUT_MS, expected=opened, final=final)

    async def add_to_transaction(
        self, transaction: Transaction, partitions: Collection[TopicPartition], group: str | None = None
    ) -> None:
        """Add *partitions*, and those of *group*'s offsets, to *transaction* without writing to them, so that its
        marker is written there, too. This opens the transaction, in either version.

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
        """End all *transactions*, with pipelined requests. The returned codes are final.

        NONE: the transaction is committed (or aborted), by this call or an earlier one. INVALID_TXN_STATE,
        PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING: the transaction had ended otherwise.

        :raises KafkaTimeoutError: if some transactions had no final response in time; their outcome is unknown.
        :raises ApiError: if a coordinator refused for another reason.
        """
        outcomes = await self.ask_many(
            {txn: EndTxn(txn.transactional_id, txn.producer, transaction_version, commit) for txn in transactions}
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
        """Add *offsets* of *group* to *transaction*; they take effect with its commit. Return the committed offset of
        *before* (None: there is none), read from the coordinator that accepted *offsets*, and so from the current one,
        unlike a plain OffsetFetch.

        :raises ApiError: INVALID_PRODUCER_EPOCH or PRODUCER_FENCED if a newer producer has the id, or another code.
        """
        name, producer = transaction.transactional_id, transaction.producer
        if transaction_version is TransactionVersion.V1:
            await self.ask(AddOffsetsToTxn(name, producer, group))
        committed = await self.ask_behind(
            TxnOffsetCommit(name, producer, transaction_version, ConsumerGroupMetadata(group), offsets),
            # An OffsetFetch that waits for transactions would wait for this one.
            OffsetFetch(group, {before.topic: [before.partition]}, waits_for_transactions=False),
        )
        return committed.get(before)

    async def fetch_offsets(
        self, group: str, topic: str, partitions: Sequence[int], *, require_stable: bool = True, waits: bool = True
    ) -> dict[int, OffsetAndMetadata]:
        """The committed offsets of *group*; partitions without one are omitted. With *require_stable*, the call waits
        for the end of a transaction that would change them; without *waits* it raises UNSTABLE_OFFSET_COMMIT instead.

        :raises ApiError: if the coordinator refuses, such as GROUP_AUTHORIZATION_FAILED.
        """
        request = OffsetFetch(
            group, {topic: partitions}, waits_for_transactions=require_stable, refuses_old_brokers=True
        )
        offsets = await self.ask(request, final=() if waits else (ErrorCode.UNSTABLE_OFFSET_COMMIT,))
        return {partition: offset for (_, partition), offset in offsets.items()}

    def in_background(self, look: Callable[[], T]) -> Callable[[], T | None]:
        """Call *look*, which only reads, on a background thread. Return a function that waits for its result, which is
        None if *look* failed, could not begin, or was begun before a fork."""
        answers: list[T] = []

        def run() -> None:
            try:
                answers.append(look())
            except Exception as error:
                # The next plan observes again.
                _log.debug("a look ahead has failed: %s", error)

        try:
            thread = self._looking = start_thread("kafkalite-look", run)
        except RuntimeError as error:
            _log.debug("no thread for a look ahead: %s", error)
            return lambda: None

        def result() -> T | None:
            # In slices: an asynchronous exception from another thread does not interrupt a lock wait.
            while thread.is_alive():
                thread.join(_SLICE_S)
            return answers[0] if answers else None

        return result

    def rest(self, idle_ms: int) -> None:
        """Close all connections until the next request, unless there was one within *idle_ms*. Any thread may call it
        but one that handles signals."""
        self._client.rest(idle_ms)

    def close(self) -> None:
        """Close all connections. Closing again does nothing."""
        if self._looking is not None:
            self._looking.join(_SLICE_S)
        self._client.close()

    def __enter__(self) -> CoordinatorClient:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
