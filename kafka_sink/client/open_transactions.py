"""The open transactions in a partition's log, and how to abort a hanging one.

Blocking, on the calling thread. It must only end the transaction that begins at the offset given by its caller.

Source: DescribeProducers and WriteTxnMarkers (KIP-664); apache/kafka ``kafka-transactions.sh abort``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.client.blocking import BlockingClient
from kafka_sink.common.errors import ErrorCode, error_for
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from kafka_sink.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction in one log: its producer, its first offset, and the time of its last write (ms since 1970)."""

    producer_id: int
    epoch: int
    start_offset: int
    last_written_ms: int
    coordinator_epoch: int


def open_transactions(client: BlockingClient, partition: TopicPartition) -> list[OpenTransaction]:
    """All open transactions in the log of *partition*, sorted by first offset.

    :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; other codes if the leader refused.
    """
    asked = DescribeProducersRequest(topics=[TopicRequest(partition.topic, [partition.partition])])
    body = client.request(_leader(client, partition), ApiKey.DESCRIBE_PRODUCERS, lambda _: asked)
    answer = body.topics[0].partitions[0]
    if answer.error_code:
        raise error_for(answer.error_code, f"{partition}: {answer.error_message or 'its producers'}")
    found = [
        OpenTransaction(
            each.producer_id,
            each.producer_epoch,
            each.current_txn_start_offset,
            each.last_timestamp,
            each.coordinator_epoch,
        )
        for each in answer.active_producers
        if each.current_txn_start_offset >= 0
    ]
    return sorted(found, key=lambda each: each.start_offset)


def abort_in_log(client: BlockingClient, partition: TopicPartition, transaction: OpenTransaction) -> None:
    """Write an abort marker for *transaction* to the log of *partition*, as its coordinator would.

    :raises ApiError: INVALID_PRODUCER_EPOCH if its producer continues with a newer epoch; other codes if the leader
        refused.
    """
    marker = WritableTxnMarker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
        # A log without a recorded coordinator epoch accepts any epoch.
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    request = WriteTxnMarkersRequest(markers=[marker])
    body = client.request(_leader(client, partition), ApiKey.WRITE_TXN_MARKERS, lambda _: request)
    code = body.markers[0].topics[0].partitions[0].error_code
    if code:
        raise error_for(code, f"{partition}: the marker of producer id {transaction.producer_id}")


def _leader(client: BlockingClient, partition: TopicPartition) -> Node:
    cluster = client.fetch_cluster([partition.topic])
    if not 0 <= partition.partition < (cluster.partition_count(partition.topic) or 0):
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    leader = cluster.leader_for(partition)
    if leader is None:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} currently has no leader")
    return leader
