"""A transactional producer's sender without threads and sockets, and brokers that coordinate its transactions."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from kafka_sink.common.errors import ErrorCode
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.producer.transactions.state_machine import TransactionalResult
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader
from kafka_sink.protocol.messages.connection import ApiVersionsResponse, FinalizedFeatureKey
from kafka_sink.protocol.messages.group_offsets import (
    PartitionOutcome,
    TopicOutcome,
    TxnOffsetCommitResponse,
)
from kafka_sink.protocol.messages.metadata import Coordinator, FindCoordinatorResponse
from kafka_sink.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
)
from kafka_sink.protocol.schema import Struct
from tests.fakes.brokers import SILENCE, FakeBrokers
from tests.fakes.sender_world import SenderWorld

TRANSACTIONAL_ID = "orders-writer"
PRODUCER_ID = 9

#: The last epoch that a coordinator gives out for an id.
LAST_EPOCH = 2**15 - 2


class TransactionalBrokers(FakeBrokers):
    """Brokers whose node :attr:`coordinator` coordinates everything, at ``transaction.version`` *level*.

    A request is granted, unless the test has put errors for its API into :attr:`errors`. Every one is noted in
    :attr:`asked`, as (API, version, body).
    """

    def __init__(self, level: int = 2, leaders: Sequence[int] = (1,), nodes: int = 1) -> None:
        super().__init__(leaders, nodes)
        self.level = level
        self.features_epoch = 1
        self.coordinator = 1
        self.max_versions: dict[ApiKey, int] = {}
        self.errors: dict[ApiKey, deque[ErrorCode | object]] = defaultdict(deque)
        self.asked: list[tuple[ApiKey, int, Any]] = []
        self.producer_id, self.epoch = PRODUCER_ID, -1
        self._answers: dict[ApiKey, Callable[[int, Any, int], Struct]] = {
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: lambda version, body, code: AddOffsetsToTxnResponse(error_code=code),
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end,
        }

    def __call__(self, connection_id: str, header: RequestHeader, body: Struct) -> Struct | None:
        key = ApiKey(header.api_key)
        if key in self._answers or key is ApiKey.PRODUCE:
            self.asked.append((key, header.api_version, body))
        if key not in self._answers:
            answer = super().__call__(connection_id, header, body)
            if isinstance(answer, ApiVersionsResponse):
                self._describe(answer)
            return answer
        error = self.errors[key].popleft() if self.errors[key] else ErrorCode.NONE
        if error is SILENCE:
            return None
        assert isinstance(error, ErrorCode)
        return self._answers[key](header.api_version, body, int(error))

    def _describe(self, answer: ApiVersionsResponse) -> None:
        for entry in answer.api_keys:
            entry.max_version = self.max_versions.get(ApiKey(entry.api_key), entry.max_version)
        answer.finalized_features_epoch = self.features_epoch
        answer.finalized_features = [FinalizedFeatureKey("transaction.version", self.level, 1)]

    def _find_coordinator(self, version: int, body: Any, code: int) -> Struct:
        node = self.nodes[self.coordinator]
        if version < 4:
            return FindCoordinatorResponse(error_code=code, node_id=node.id, host=node.host, port=node.port)
        found = Coordinator(body.coordinator_keys[0], node.id, node.host, node.port, code)
        return FindCoordinatorResponse(coordinators=[found])

    def _bump(self) -> None:
        self.epoch += 1
        if self.epoch > LAST_EPOCH:
            self.producer_id, self.epoch = self.producer_id + 1, 0

    def _init_producer_id(self, version: int, body: Any, code: int) -> Struct:
        if code:
            return InitProducerIdResponse(error_code=code)
        self._bump()
        return InitProducerIdResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    @staticmethod
    def _add_partitions(version: int, body: Any, code: int) -> Struct:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    topic.name, [AddPartitionsToTxnPartitionResult(number, code) for number in topic.partitions]
                )
                for topic in body.v3_and_below_topics
            ]
        )

    @staticmethod
    def _commit_offsets(version: int, body: Any, code: int) -> Struct:
        return TxnOffsetCommitResponse(
            topics=[
                TopicOutcome(
                    topic.name,
                    [PartitionOutcome(place.partition_index, code) for place in topic.partitions],
                )
                for topic in body.topics
            ]
        )

    def _end(self, version: int, body: Any, code: int) -> Struct:
        if code or version < 5:
            return EndTxnResponse(error_code=code)
        self._bump()
        return EndTxnResponse(producer_id=self.producer_id, producer_epoch=self.epoch)

    def requests(self, key: ApiKey) -> list[Any]:
        """The bodies of every request of one API so far."""
        return [body for asked, _, body in self.asked if asked is key]

    def versions(self, key: ApiKey) -> set[int]:
        return {version for asked, version, _ in self.asked if asked is key}


class TransactionalWorld(SenderWorld):
    """A :class:`SenderWorld` with a transactional id."""

    brokers: TransactionalBrokers

    def __init__(self, brokers: TransactionalBrokers | None = None, **properties: Any) -> None:
        super().__init__(brokers or TransactionalBrokers(), transactional_id=TRANSACTIONAL_ID, **properties)

    @property
    def manager(self) -> TransactionManager:
        assert self.transactions is not None
        return self.transactions

    def finish(self, result: TransactionalResult, at_most: int = 1000) -> None:
        """Step until *result* is known, and raise what it raises."""
        for _ in range(at_most):
            if result.is_done:
                break
            self.sender.run_once()
        result.await_outcome(0)

    def begin(self) -> None:
        """A transaction, after the initialization if that was not done."""
        if self.manager.state.name == "UNINITIALIZED":
            self.finish(self.manager.initialize())
        self.manager.begin()

    def begin_with(self, *values: bytes, partition: int = 0) -> list[Any]:
        """A transaction in which *values* have their outcome; their futures."""
        self.begin()
        return self.sent(*values, partition=partition)

    def transact(self, *values: bytes, partition: int = 0) -> None:
        """A transaction with *values*, from its begin to its commit."""
        self.begin()
        self.send(*values, partition=partition)
        self.commit()

    def until_asked(self, key: ApiKey) -> None:
        while key not in self.order:
            self.sender.run_once()

    def commit(self) -> None:
        self.finish(self.manager.begin_commit())

    def abort(self) -> None:
        self.finish(self.manager.begin_abort())

    @property
    def order(self) -> list[ApiKey]:
        """The APIs that were asked, in order."""
        return [key for key, _, _ in self.brokers.asked]
