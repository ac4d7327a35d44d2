"""The coordinators of a simulated cluster: they load stored state, and are randomly slow or return errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.store import CoordinatorStore, TransactionStore
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_markers import TransactionMarkers
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata
from kafka_sink.broker.delays import DelayedOperationPurgatory, Timer
from kafka_sink.broker.handlers.context import BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.messages.group_offsets import (
    PartitionOutcome,
    TopicOutcome,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafka_sink.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
)
from kafka_sink.protocol.schema import Struct

#: Errors of a coordinator that has changed nothing; the client retries, or looks up the coordinator again.
REFUSALS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class SlowMarkers(TransactionMarkers):
    """Skips the markers of some participants, which then need them later."""

    waits: Callable[[], bool] = staticmethod(lambda: False)

    def write(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        told = frozenset(partition for partition in sorted(metadata.partitions) if not self.waits())
        return super().write(replace(metadata, partitions=told))


def started(context: BrokerContext, store: CoordinatorStore, waits: Callable[[], bool]) -> BrokerContext:
    """Return *context* with new coordinators and a new timer, whose only state is that of *store*."""
    config, clock, cluster, logs = context.config, context.clock, context.cluster, context.logs
    timer = Timer(clock)
    purgatory = DelayedOperationPurgatory(timer)
    groups = GroupCoordinator(config, store, clock, timer, cluster)
    markers = SlowMarkers(cluster, logs, groups.complete_transaction, clock, purgatory.check)
    markers.waits = waits
    transactions = TransactionCoordinator(
        config, TransactionStore(store), markers, cluster.allocate_producer_id, clock, timer
    )
    return replace(context, timer=timer, purgatory=purgatory, groups=groups, markers=markers, transactions=transactions)


def refusal(body: Struct, code: ErrorCode) -> Struct | None:
    """Return the response with *code* to a request of a transaction as a whole; None for other requests."""
    if isinstance(body, EndTxnRequest):
        return EndTxnResponse(error_code=code)
    if isinstance(body, AddOffsetsToTxnRequest):
        return AddOffsetsToTxnResponse(error_code=code)
    if isinstance(body, AddPartitionsToTxnRequest):
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    topic.name, [AddPartitionsToTxnPartitionResult(partition, code) for partition in topic.partitions]
                )
                for topic in body.v3_and_below_topics
            ]
        )
    if isinstance(body, TxnOffsetCommitRequest):
        return TxnOffsetCommitResponse(
            topics=[
                TopicOutcome(
                    topic.name,
                    [PartitionOutcome(each.partition_index, code) for each in topic.partitions],
                )
                for topic in body.topics
            ]
        )
    return None
