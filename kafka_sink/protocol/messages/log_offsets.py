"""Offsets of logs: their lookup by time or leader epoch, and the deletion of records before an offset."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

#: Timestamps that select the start of the log or its end instead of a point in time.
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1


class ListOffsetsPartition(s.Struct):
    """Selects the first record at or after *timestamp* (ms), or one of the special offsets."""

    partition_index: int = s.field(s.INT32, "0+")
    current_leader_epoch: int = s.field(s.INT32, "4+", default=-1, ignorable=True)
    timestamp: int = s.field(s.INT64, "0+")


class ListOffsetsTopic(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[ListOffsetsPartition] = s.field(s.Array(ListOffsetsPartition), "0+")


class ListOffsetsRequest(s.RequestBody["ListOffsetsResponse"], versions="1-11", flexible="6+"):
    """ListOffsets (key 2): the offset of a partition's start, its end, or of a point in time. *replica_id* −1 = a
    consumer; with *isolation_level* 1 the end is the last stable offset."""

    replica_id: int = s.field(s.INT32, "0+")
    isolation_level: int = s.field(s.INT8, "2+")
    topics: list[ListOffsetsTopic] = s.field(s.Array(ListOffsetsTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "10+", ignorable=True)


class ListOffsetsPartitionResponse(s.Struct):
    """*offset* and *timestamp* are −1 if nothing was found."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    timestamp: int = s.field(s.INT64, "1+", default=-1)
    offset: int = s.field(s.INT64, "1+", default=-1)
    leader_epoch: int = s.field(s.INT32, "4+", default=-1)


class ListOffsetsTopicResponse(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = s.field(s.Array(ListOffsetsPartitionResponse), "0+")


class ListOffsetsResponse(s.Struct, versions="1-11", flexible="6+"):
    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = s.field(s.Array(ListOffsetsTopicResponse), "0+")


class OffsetForLeaderPartition(s.Struct):
    """*current_leader_epoch* is the one that the client knows, −1 = unknown."""

    partition: int = s.field(s.INT32, "0+")
    current_leader_epoch: int = s.field(s.INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = s.field(s.INT32, "0+")


class OffsetForLeaderTopic(s.Struct):
    topic: str = s.field(s.STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = s.field(s.Array(OffsetForLeaderPartition), "0+")


class OffsetForLeaderEpochRequest(s.RequestBody["OffsetForLeaderEpochResponse"], versions="2-4", flexible="4+"):
    """OffsetForLeaderEpoch (key 23): the end offsets of leader epochs (KIP-101, KIP-320). *replica_id* −1 is a
    consumer, −2 a debugger."""

    replica_id: int = s.field(s.INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = s.field(s.Array(OffsetForLeaderTopic), "0+")


class EpochEndOffset(s.Struct):
    """The largest epoch up to the requested one, and the offset after its last record; −1 if there is none."""

    error_code: int = s.field(s.INT16, "0+")
    partition: int = s.field(s.INT32, "0+")
    leader_epoch: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    end_offset: int = s.field(s.INT64, "0+", default=-1)


class OffsetForLeaderTopicResult(s.Struct):
    topic: str = s.field(s.STRING, "0+")
    partitions: list[EpochEndOffset] = s.field(s.Array(EpochEndOffset), "0+")


class OffsetForLeaderEpochResponse(s.Struct, versions="2-4", flexible="4+"):
    throttle_time_ms: int = s.field(s.INT32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = s.field(s.Array(OffsetForLeaderTopicResult), "0+")


class DeleteRecordsPartition(s.Struct):
    """Records before *offset* are deleted; −1 = the high watermark."""

    partition_index: int = s.field(s.INT32, "0+")
    offset: int = s.field(s.INT64, "0+")


class DeleteRecordsTopic(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[DeleteRecordsPartition] = s.field(s.Array(DeleteRecordsPartition), "0+")


class DeleteRecordsRequest(s.RequestBody["DeleteRecordsResponse"], versions="0-2", flexible="2+"):
    """DeleteRecords (key 21): advance the start offset of partitions (KIP-107). The broker waits up to *timeout_ms* for
    its replicas."""

    topics: list[DeleteRecordsTopic] = s.field(s.Array(DeleteRecordsTopic), "0+")
    timeout_ms: int = s.field(s.INT32, "0+")


class DeleteRecordsPartitionResult(s.Struct):
    """The new start offset of the partition, or −1 and the error."""

    partition_index: int = s.field(s.INT32, "0+")
    low_watermark: int = s.field(s.INT64, "0+")
    error_code: int = s.field(s.INT16, "0+")


class DeleteRecordsTopicResult(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = s.field(s.Array(DeleteRecordsPartitionResult), "0+")


class DeleteRecordsResponse(s.Throttled, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopicResult] = s.field(s.Array(DeleteRecordsTopicResult), "0+")
