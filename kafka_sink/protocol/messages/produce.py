"""Produce (key 0): record batches for partitions. From version 13 on, topics are identified by id (KIP-516).

With acks=0 there is no response. From version 10 on, NOT_LEADER_OR_FOLLOWER includes the new leader (KIP-951).
"""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.metadata import LeaderIdAndEpoch, NodeEndpoint

_VERSIONS = "3-13"
_FLEXIBLE = "9+"


class PartitionProduceData(s.Struct):
    index: int = s.field(s.INT32, "0+")
    records: s.Records = s.field(s.RECORDS, "0+", nullable="0+")


class TopicProduceData(s.Struct):
    """The batches for one topic, by name or (version 13 and up) by id."""

    name: str = s.field(s.STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = s.field(s.Array(PartitionProduceData), "0+")


class ProduceRequest(s.RequestBody["ProduceResponse"], versions=_VERSIONS, flexible=_FLEXIBLE):
    """*acks*: 0 none, 1 the leader, −1 all in-sync replicas, for which the broker waits up to *timeout_ms*."""

    transactional_id: str | None = s.field(s.STRING, "3+", nullable="3+", default=None)
    acks: int = s.field(s.INT16, "0+")
    timeout_ms: int = s.field(s.INT32, "0+")
    topic_data: list[TopicProduceData] = s.field(s.Array(TopicProduceData), "0+")


class BatchIndexAndErrorMessage(s.Struct):
    """A record for which its batch was rejected (KIP-467)."""

    batch_index: int = s.field(s.INT32, "8+")
    batch_index_error_message: str | None = s.field(s.STRING, "8+", nullable="8+", default=None)


class PartitionProduceResponse(s.Struct):
    """*base_offset* of the first record; *log_append_time_ms* −1 unless the topic's timestamp type is LogAppendTime."""

    index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    base_offset: int = s.field(s.INT64, "0+")
    log_append_time_ms: int = s.field(s.INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = s.field(s.INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = s.field(s.Array(BatchIndexAndErrorMessage), "8+", ignorable=True)
    error_message: str | None = s.field(s.STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = s.field(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(s.Struct):
    name: str = s.field(s.STRING, "0-12", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = s.field(s.Array(PartitionProduceResponse), "0+")


class ProduceResponse(s.Struct, versions=_VERSIONS, flexible=_FLEXIBLE):
    responses: list[TopicProduceResponse] = s.field(s.Array(TopicProduceResponse), "0+")
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = s.field(s.Array(NodeEndpoint), "10+", tag=0)
