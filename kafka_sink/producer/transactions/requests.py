"""The requests of a transactional producer, and the handling of their answers.

The transaction manager creates them on any thread; the sender thread builds them and handles their answers. They do not
depend on connections. The table in :mod:`reactions` gives the meaning of each error.

Source: the handlers of apache/kafka ``TransactionManager``; KIP-98, KIP-360 (expected id and epoch), KIP-890
(transaction version 2), KIP-1050 (classes of errors).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from kafka_sink.common.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError, error_for
from kafka_sink.common.model import ConsumerGroupMetadata, Node, OffsetAndMetadata, TopicPartition
from kafka_sink.producer.transactions.reactions import Reaction, gravest, reaction_to
from kafka_sink.producer.transactions.state import Priority, TransactionalResult
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_sink.protocol.messages.find_coordinator import (
    GROUP,
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kafka_sink.protocol.schema import Struct

if TYPE_CHECKING:
    from kafka_sink.producer.transactions.manager import TransactionManager

#: A coordinator's key: key type and key, as in a FindCoordinator request.
CoordinatorKey = tuple[int, str]

#: Versions up to the first belong to transaction version 1, versions from the second on to version 2; they are never
#: mixed.
_TXN_OFFSET_COMMIT_VERSIONS: Final = (4, 5)
_END_TXN_VERSIONS: Final = (4, 5)

#: AddPartitionsToTxn from version 4 on is for brokers only.
_ADD_PARTITIONS_MAX_VERSION: Final = 3

#: The first InitProducerId version with the expected id and epoch (KIP-360).
INIT_PRODUCER_ID_BUMP_VERSION: Final = 3

#: Partitions are busy for a moment after a transaction, so the first retry comes sooner than after an error, ms.
_CONCURRENT_TRANSACTIONS_BACKOFF_MS: Final = 20


S = TypeVar("S", bound=Struct)


class TransactionalRequest(ABC):
    """One request that is queued, in flight, or sent again; *result* is completed with its outcome."""

    api_key: ClassVar[ApiKey]
    priority: ClassVar[Priority]

    def __init__(self, manager: TransactionManager, result: TransactionalResult) -> None:
        self._manager = manager
        self.result = result
        #: Earliest time to send the request, monotonic ms.
        self.not_before_ms = 0

    @property
    def coordinator(self) -> CoordinatorKey | None:
        """The coordinator that handles the request; None for any broker."""
        return TRANSACTION, self._manager.transactional_id or ""

    @property
    def max_version(self) -> int | None:
        return None

    @abstractmethod
    def build(self, version: int) -> Struct:
        """Build the request from the current state.

        :raises UnsupportedVersionError: if the broker does not support the versions of the transaction's version.
        """

    @abstractmethod
    def handle(self, body: Struct, now_ms: int) -> None:
        """Handle the answer."""

    def lost(self, now_ms: int) -> None:
        """Handle a lost connection: it is unknown whether the broker processed the request."""
        if self.coordinator is not None:
            self._manager.look_up(self.coordinator, now_ms)
        self._manager.retry(self, now_ms)

    def unsupported(self, mismatch: UnsupportedVersionError, now_ms: int) -> None:
        """Handle a request that was not sent, because client and broker have no version of it in common."""
        self._react(ErrorCode.UNSUPPORTED_VERSION, str(mismatch), now_ms)

    def _react(self, code: ErrorCode, detail: str, now_ms: int, *, backoff_ms: int | None = None) -> None:
        error = error_for(code, detail)
        reaction = reaction_to(self.api_key, code)
        self.result.last_answer = error
        if reaction is Reaction.RETRY:
            self._manager.retry(self, now_ms, backoff_ms=backoff_ms)
        elif reaction is Reaction.LOOK_UP:
            self.lost(now_ms)
        elif reaction in (Reaction.ABORT, Reaction.BUMP):
            self._manager.request_failed(self, error, needs_new_epoch=reaction is Reaction.BUMP)
        elif reaction is Reaction.UNINITIALIZE:
            self._manager.initialization_failed(self, error, now_ms)
        else:
            fatal = error_for(ErrorCode.PRODUCER_FENCED, detail) if reaction is Reaction.FENCED else error
            self.result.fail(fatal)
            self._manager.fail_for_good(fatal)

    def _expect(self, body: Struct, kind: type[S]) -> S:
        if not isinstance(body, kind):
            raise ProtocolError(f"{type(body).__name__} is no answer to {self.api_key.name}")
        return body


class FindCoordinator(TransactionalRequest):
    """Finds the coordinator of *sought*."""

    api_key = ApiKey.FIND_COORDINATOR
    priority = Priority.FIND_COORDINATOR

    def __init__(self, manager: TransactionManager, result: TransactionalResult, sought: CoordinatorKey) -> None:
        super().__init__(manager, result)
        self.sought = sought

    @property
    def coordinator(self) -> CoordinatorKey | None:
        return None

    def build(self, version: int) -> Struct:
        key_type, key = self.sought
        if version >= 4:
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        return FindCoordinatorRequest(key_type=key_type, key=key)

    def handle(self, body: Struct, now_ms: int) -> None:
        response = self._expect(body, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        code = ErrorCode.of(found.error_code)
        if code is ErrorCode.NONE:
            self._manager.coordinator_found(self.sought, Node(found.node_id, found.host, found.port))
            self.result.done()
            return
        what = "group" if self.sought[0] == GROUP else "transactional id"
        said = f" ({found.error_message})" if found.error_message else ""
        self._react(code, f"no coordinator was found for the {what} {self.sought[1]!r}{said}", now_ms)


class InitProducerId(TransactionalRequest):
    """Requests a producer id and epoch; with *expects_current* the epoch after the current one, unless the producer is
    fenced.
    """

    api_key = ApiKey.INIT_PRODUCER_ID
    priority = Priority.INIT_PRODUCER_ID

    def __init__(self, manager: TransactionManager, result: TransactionalResult, *, expects_current: bool) -> None:
        super().__init__(manager, result)
        self._expects_current = expects_current

    @property
    def coordinator(self) -> CoordinatorKey | None:
        return super().coordinator if self._manager.is_transactional else None

    def build(self, version: int) -> Struct:
        manager = self._manager
        request = InitProducerIdRequest(
            transactional_id=manager.transactional_id, transaction_timeout_ms=manager.transaction_timeout_ms
        )
        if self._expects_current and version >= INIT_PRODUCER_ID_BUMP_VERSION:
            request.producer_id, request.producer_epoch = manager.identity.producer_id, manager.identity.epoch
        return request

    def handle(self, body: Struct, now_ms: int) -> None:
        response = self._expect(body, InitProducerIdResponse)
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._manager.initialized(response.producer_id, response.producer_epoch)
            self.result.done()
        else:
            self._react(code, self._explain(code), now_ms)

    def unsupported(self, mismatch: UnsupportedVersionError, now_ms: int) -> None:
        self._react(mismatch.code, self._explain(mismatch.code), now_ms)

    def _explain(self, code: ErrorCode) -> str:
        if not self._manager.is_transactional:
            remedy = _PRODUCER_ID_REMEDIES.get(code, "see the brokers' logs")
            return (
                f"no producer id was given out, so nothing can be sent: {remedy}, or set "
                f"{self._manager.option_prefix}enable.idempotence=false"
            )
        remedy = _TRANSACTIONAL_ID_REMEDIES.get(code, "see the brokers' logs")
        return f"no producer id was given out for transactional.id {self._manager.transactional_id!r}: {remedy}"


class AddPartitionsToTxn(TransactionalRequest):
    """Adds *partitions* to the transaction before they are written to (transaction version 1)."""

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self, manager: TransactionManager, result: TransactionalResult, partitions: Collection[TopicPartition]
    ) -> None:
        super().__init__(manager, result)
        self._partitions = sorted(partitions)

    @property
    def max_version(self) -> int | None:
        return _ADD_PARTITIONS_MAX_VERSION

    def build(self, version: int) -> Struct:
        self._manager.start_requested()
        identity = self._manager.identity
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._manager.transactional_id or "",
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[partition.partition for partition in partitions])
                for topic, partitions in groupby(self._partitions, lambda partition: partition.topic)
            ],
        )

    def handle(self, body: Struct, now_ms: int) -> None:
        response = self._expect(body, AddPartitionsToTxnResponse)
        failed = {
            TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
            if result.partition_error_code
        }
        if not failed:
            self._manager.partitions_added(self._partitions)
            self.result.done()
            return
        code = gravest(self.api_key, failed.values())
        texts = ", ".join(f"{partition}: {reason.name}" for partition, reason in sorted(failed.items()))
        first = code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._manager.has_partitions
        backoff_ms = _CONCURRENT_TRANSACTIONS_BACKOFF_MS if first else None
        self._react(code, f"partitions could not be added to the transaction: {texts}", now_ms, backoff_ms=backoff_ms)


class AddOffsetsToTxn(TransactionalRequest):
    """Adds *group* to the transaction before its offsets are committed (transaction version 1); TxnOffsetCommit
    follows.
    """

    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: TransactionManager,
        result: TransactionalResult,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager, result)
        self._offsets = offsets
        self._group = group

    def build(self, version: int) -> Struct:
        self._manager.start_requested()
        identity = self._manager.identity
        return AddOffsetsToTxnRequest(
            transactional_id=self._manager.transactional_id or "",
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=self._group.group_id,
        )

    def handle(self, body: Struct, now_ms: int) -> None:
        code = ErrorCode.of(self._expect(body, AddOffsetsToTxnResponse).error_code)
        if code is ErrorCode.NONE:
            self._manager.group_added(TxnOffsetCommit(self._manager, self.result, self._offsets, self._group))
        else:
            self._react(code, f"the group {self._group.group_id!r} could not be added to the transaction", now_ms)


class TxnOffsetCommit(TransactionalRequest):
    """Sends the offsets to the group coordinator; offsets that it did not accept are sent again."""

    api_key = ApiKey.TXN_OFFSET_COMMIT
    priority = Priority.ADD_PARTITIONS_OR_OFFSETS

    def __init__(
        self,
        manager: TransactionManager,
        result: TransactionalResult,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        super().__init__(manager, result)
        self._pending = dict(sorted(offsets.items()))
        self._group = group

    @property
    def coordinator(self) -> CoordinatorKey | None:
        return GROUP, self._group.group_id

    @property
    def max_version(self) -> int | None:
        return None if self._manager.is_version_2 else _TXN_OFFSET_COMMIT_VERSIONS[0]

    def build(self, version: int) -> Struct:
        _require_version_2(self, self._manager, version, _TXN_OFFSET_COMMIT_VERSIONS[1])
        identity = self._manager.identity
        request = TxnOffsetCommitRequest(
            transactional_id=self._manager.transactional_id or "",
            group_id=self._group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition.partition,
                            committed_offset=offset.offset,
                            committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                            committed_metadata=offset.metadata,
                        )
                        for partition, offset in items
                    ],
                )
                for topic, items in groupby(self._pending.items(), lambda item: item[0].topic)
            ],
        )
        # Before version 3 the coordinator does not check the member of the group.
        if version >= 3:
            request.generation_id = self._group.generation_id
            request.member_id = self._group.member_id
            request.group_instance_id = self._group.group_instance_id
        return request

    def handle(self, body: Struct, now_ms: int) -> None:
        failed: dict[TopicPartition, ErrorCode] = {}
        for topic in self._expect(body, TxnOffsetCommitResponse).topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    failed[partition] = ErrorCode.of(answer.error_code)
                else:
                    self._pending.pop(partition, None)
        if failed:
            texts = ", ".join(f"{partition}: {reason.name}" for partition, reason in sorted(failed.items()))
            detail = f"offsets of the group {self._group.group_id!r} could not be committed: {texts}"
            if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in failed.values():
                detail += " (create that topic or partition, or leave its offset out)"
            self._react(gravest(self.api_key, failed.values()), detail, now_ms)
        elif self._pending:
            self._manager.retry(self, now_ms)
        else:
            self.result.done()


class EndTxn(TransactionalRequest):
    """Commits or aborts. It is sent when no batch of the transaction is incomplete, and again until it is answered."""

    api_key = ApiKey.END_TXN
    priority = Priority.END_TXN

    def __init__(self, manager: TransactionManager, result: TransactionalResult, *, commits: bool) -> None:
        super().__init__(manager, result)
        self._commits = commits

    @property
    def max_version(self) -> int | None:
        return None if self._manager.is_version_2 else _END_TXN_VERSIONS[0]

    def build(self, version: int) -> Struct:
        _require_version_2(self, self._manager, version, _END_TXN_VERSIONS[1])
        identity = self._manager.identity
        return EndTxnRequest(
            transactional_id=self._manager.transactional_id or "",
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=self._commits,
        )

    def handle(self, body: Struct, now_ms: int) -> None:
        response = self._expect(body, EndTxnResponse)
        code = ErrorCode.of(response.error_code)
        never_began = code is ErrorCode.INVALID_TXN_STATE and not self._commits and self._manager.may_not_have_begun
        if code is ErrorCode.NONE or never_began:
            self._manager.transaction_ended(self.result, response.producer_id, response.producer_epoch)
        elif not self._commits and reaction_to(self.api_key, code) in (Reaction.ABORT, Reaction.BUMP):
            # The transaction is being aborted already, so there is no milder reaction.
            fatal = KafkaError(f"the transaction could not even be aborted: {code.name}")
            self.result.fail(fatal)
            self._manager.fail_for_good(fatal)
        else:
            what = "committed" if self._commits else "aborted"
            self._react(code, f"the transaction could not be {what}", now_ms)


def _require_version_2(request: TransactionalRequest, manager: TransactionManager, version: int, least: int) -> None:
    if manager.is_version_2 and version < least:
        raise UnsupportedVersionError(
            f"the cluster runs transaction.version 2, but this broker knows {request.api_key.name} up to {version} only"
        )


_PRODUCER_ID_REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "grant WRITE on the topic to this principal (before Kafka 2.8: IDEMPOTENT_WRITE on the cluster)"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "idempotent writes need brokers of version 0.11 or newer; upgrade them",
}

_TRANSACTIONAL_ID_REMEDIES: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE on this transactional id to this principal",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower the one or raise the other"
    ),
    ErrorCode.PRODUCER_FENCED: "a newer producer with the same id has taken over",
    ErrorCode.INVALID_REQUEST: "these brokers have no transactions",
    ErrorCode.UNSUPPORTED_VERSION: "transactions need brokers of version 0.11 or newer; upgrade them",
}


class TransactionalRequestQueue:
    """The queued requests, ordered by priority, then by arrival.

    Belongs to the transaction manager, which holds its lock at every call.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[Priority, int, TransactionalRequest]] = []
        self._numbers = itertools.count()

    @property
    def head(self) -> TransactionalRequest | None:
        """The next request."""
        return self._entries[0][2] if self._entries else None

    def add(self, request: TransactionalRequest) -> None:
        insort(self._entries, (request.priority, next(self._numbers), request))

    def has_for(self, result: TransactionalResult) -> bool:
        """Whether a queued request will complete *result*."""
        return any(request.result is result for _, _, request in self._entries)

    def remove(self, request: TransactionalRequest) -> None:
        self._entries = [entry for entry in self._entries if entry[2] is not request]

    def drop(self, error: KafkaError, is_dropped: Callable[[TransactionalRequest], bool]) -> None:
        """Remove the requests that *is_dropped* selects, and fail their results with *error*."""
        dropped = [entry[2] for entry in self._entries if is_dropped(entry[2])]
        for request in dropped:
            self.remove(request)
            request.result.fail(error)

    def is_sought(self, key: CoordinatorKey) -> bool:
        """Whether a request for that coordinator is queued already."""
        return any(isinstance(request, FindCoordinator) and request.sought == key for _, _, request in self._entries)
