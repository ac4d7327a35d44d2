"""The coordinators of a simulated cluster: they know what is stored, and are slow or unwilling if the dice say so."""

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

#: What a coordinator says before it has done anything; the client asks again, or somebody else.
REFUSALS = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


class SlowMarkers(TransactionMarkers):
    """Leaves out some participants, who then have to be told later."""

    waits: Callable[[], bool] = staticmethod(lambda: False)

    def write(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        told = frozenset(partition for partition in sorted(metadata.partitions) if not self.waits())
        return super().write(replace(metadata, partitions=told))


def started(context: BrokerContext, store: CoordinatorStore, waits: Callable[[], bool]) -> BrokerContext:
    """*context* with coordinators and a timer of their own, which know what *store* says and nothing else."""
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
    """The answer that refuses a request of a transaction as a whole; None for other requests."""
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
