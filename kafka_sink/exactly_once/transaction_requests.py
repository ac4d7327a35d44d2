"""The requests with which a driver begins, extends and ends a transaction, and the parsing of their answers.

Pure functions: :class:`~kafka_sink.exactly_once.coordinator_client.CoordinatorClient` sends the requests, on its
caller's thread. The module sends nothing and has no state; every request may be repeated.

Source: InitProducerId (KIP-360), EndTxn, AddOffsetsToTxn, TxnOffsetCommit, OffsetFetch; KIP-447 (stable offsets),
KIP-890 (versions of a flow).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka_sink.client.blocking import RequestSpec
from kafka_sink.client.coordinator_requests import CoordinatorKey, gravest
from kafka_sink.common.errors import ErrorCode, error_for
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.model import Flow, Transaction
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_sink.protocol.messages.find_coordinator import GROUP, TRANSACTION
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kafka_sink.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kafka_sink.protocol.schema import Struct

#: Versions up to the first belong to transaction version 1, versions from the second on to version 2; the two are never
#: mixed.
_END_TXN_VERSIONS: Final = (4, 5)
_TXN_OFFSET_COMMIT_VERSIONS: Final = (4, 5)

#: The next version identifies topics by id, which this client does not use.
_OFFSET_FETCH_MAX_VERSION: Final = 9


class CoordinatorRequest(NamedTuple):
    """A request to a coordinator: the coordinator's key, the request, and a function that reads the error code of the
    answer."""

    key: CoordinatorKey
    spec: RequestSpec
    code_of: Callable[[Struct], ErrorCode]


def init_producer_id(
    transactional_id: str, transaction_timeout_ms: int, expected: Transaction | None
) -> CoordinatorRequest:
    """Requests a new epoch; with *expected*, only if that is still the current producer of the id."""

    def build(version: int) -> Struct:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )
        if expected is not None:
            request.producer_id, request.producer_epoch = expected.producer_id, expected.epoch
        return request

    def code_of(body: Struct) -> ErrorCode:
        assert isinstance(body, InitProducerIdResponse)
        return ErrorCode.of(body.error_code)

    return CoordinatorRequest((TRANSACTION, transactional_id), RequestSpec(ApiKey.INIT_PRODUCER_ID, build), code_of)


def initialized(transactional_id: str, body: Struct) -> Transaction:
    """The transaction from the answer to :func:`init_producer_id`."""
    assert isinstance(body, InitProducerIdResponse)
    return Transaction(transactional_id, body.producer_id, body.producer_epoch)


def end_txn(transaction: Transaction, flow: Flow, *, commit: bool) -> RequestSpec:
    """Ends *transaction*, in the version of its *flow*; :func:`end_code` reads the answer."""

    def build(version: int) -> Struct:
        _require(ApiKey.END_TXN, version, flow, _END_TXN_VERSIONS[1])
        return EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            committed=commit,
        )

    return RequestSpec(ApiKey.END_TXN, build, _END_TXN_VERSIONS[0] if flow is Flow.V1 else None)


def end_code(body: Struct) -> ErrorCode:
    assert isinstance(body, EndTxnResponse)
    return ErrorCode.of(body.error_code)


def add_group(transaction: Transaction, group: str) -> CoordinatorRequest:
    """Adds *group* to *transaction* (version 1 only; in version 2 TxnOffsetCommit adds it implicitly)."""

    def build(version: int) -> Struct:
        return AddOffsetsToTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            group_id=group,
        )

    def code_of(body: Struct) -> ErrorCode:
        assert isinstance(body, AddOffsetsToTxnResponse)
        return ErrorCode.of(body.error_code)

    key = (TRANSACTION, transaction.transactional_id)
    return CoordinatorRequest(key, RequestSpec(ApiKey.ADD_OFFSETS_TO_TXN, build), code_of)


def commit_offsets(
    transaction: Transaction, flow: Flow, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> CoordinatorRequest:
    """Commits *offsets* of *group* within *transaction*; they take effect when it is committed."""

    def build(version: int) -> Struct:
        _require(ApiKey.TXN_OFFSET_COMMIT, version, flow, _TXN_OFFSET_COMMIT_VERSIONS[1])
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            entry = TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset.offset, committed_metadata=offset.metadata
            )
            topics.setdefault(topic, []).append(entry)
        return TxnOffsetCommitRequest(
            transactional_id=transaction.transactional_id,
            group_id=group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )

    def code_of(body: Struct) -> ErrorCode:
        assert isinstance(body, TxnOffsetCommitResponse)
        return gravest(part.error_code for topic in body.topics for part in topic.partitions)

    max_version = _TXN_OFFSET_COMMIT_VERSIONS[0] if flow is Flow.V1 else None
    return CoordinatorRequest((GROUP, group), RequestSpec(ApiKey.TXN_OFFSET_COMMIT, build, max_version), code_of)


def fetch_offsets(group: str, topic: str, partitions: Sequence[int], *, require_stable: bool) -> CoordinatorRequest:
    """Fetches the committed offsets of *group*; with *require_stable*, only offsets that no open transaction may
    change."""

    def build(version: int) -> Struct:
        indexes = list(partitions)
        if version >= 8:
            topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)]
            return OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=require_stable
            )
        if version < 7:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetFetch with require_stable needs brokers of version 2.5 or newer",
            )
        topic_7 = OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
        return OffsetFetchRequest(group_id=group, topics=[topic_7], require_stable=require_stable)

    def code_of(body: Struct) -> ErrorCode:
        code, parts = _offset_parts(body)
        return gravest([code, *(part.error_code for part in parts)])

    spec = RequestSpec(ApiKey.OFFSET_FETCH, build, _OFFSET_FETCH_MAX_VERSION)
    return CoordinatorRequest((GROUP, group), spec, code_of)


def fetched_offsets(body: Struct) -> dict[int, OffsetAndMetadata]:
    """Partition → offset, from the answer to :func:`fetch_offsets`; partitions without an offset are omitted."""
    _, parts = _offset_parts(body)
    return {
        part.partition_index: OffsetAndMetadata(part.committed_offset, part.metadata or "")
        for part in parts
        if part.committed_offset >= 0
    }


def _offset_parts(body: Struct) -> tuple[int, list[Any]]:
    assert isinstance(body, OffsetFetchResponse)
    answer = body.groups[0] if body.groups else body
    return answer.error_code, [part for each in answer.topics for part in each.partitions]


def _require(api_key: ApiKey, version: int, flow: Flow, least: int) -> None:
    if flow is Flow.V2 and version < least:
        raise error_for(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the transaction runs in version 2, but this broker knows {api_key.name} up to {version} only",
        )
