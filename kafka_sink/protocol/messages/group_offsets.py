"""The committed offsets of groups."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s


class OffsetCommitRequestPartition(s.Struct):
    """The next offset to read in one partition, and the group's metadata for it."""

    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = s.field(s.STRING, "0+", nullable="0+")


class OffsetCommitRequestTopic(s.Struct):
    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = s.field(s.Array(OffsetCommitRequestPartition), "0+")


class OffsetCommitRequest(s.RequestBody["OffsetCommitResponse"], versions="2-10", flexible="8+"):
    """OffsetCommit (key 8): commit the offsets of a group. From version 10 on, topics are identified by id. Generation
    −1 with an empty member id commits without being a member."""

    group_id: str = s.field(s.STRING, "0+")
    generation_id_or_member_epoch: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    member_id: str = s.field(s.STRING, "1+", ignorable=True)
    group_instance_id: str | None = s.field(s.STRING, "7+", default=None, nullable="7+")
    retention_time_ms: int = s.field(s.INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = s.field(s.Array(OffsetCommitRequestTopic), "0+")


class PartitionOutcome(s.Struct):
    """The outcome for one partition of a request that commits or deletes offsets."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


class TopicOutcome(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[PartitionOutcome] = s.field(s.Array(PartitionOutcome), "0+")


class OffsetCommitResponseTopic(s.Struct):
    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[PartitionOutcome] = s.field(s.Array(PartitionOutcome), "0+")


class OffsetCommitResponse(s.Struct, versions="2-10", flexible="8+"):
    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = s.field(s.Array(OffsetCommitResponseTopic), "0+")


class TxnOffsetCommitRequestPartition(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = s.field(s.STRING, "0+", nullable="0+")


class TxnOffsetCommitRequestTopic(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[TxnOffsetCommitRequestPartition] = s.field(s.Array(TxnOffsetCommitRequestPartition), "0+")


class TxnOffsetCommitRequest(s.RequestBody["TxnOffsetCommitResponse"], versions="0-5", flexible="3+"):
    """TxnOffsetCommit (key 28): offsets of a group that take effect when the transaction is committed.

    Version 5 adds the group to the transaction implicitly (transaction version 2, KIP-890); earlier versions require
    AddOffsetsToTxn.

    With generation −1 and an empty member id, the coordinator of the group does not check the membership.
    """

    transactional_id: str = s.field(s.STRING, "0+")
    group_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    generation_id: int = s.field(s.INT32, "3+", default=-1)
    member_id: str = s.field(s.STRING, "3+", default="")
    group_instance_id: str | None = s.field(s.STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = s.field(s.Array(TxnOffsetCommitRequestTopic), "0+")


class TxnOffsetCommitResponse(s.Throttled, versions="0-5", flexible="3+"):
    topics: list[TopicOutcome] = s.field(s.Array(TopicOutcome), "0+")


class OffsetFetchRequestTopic(s.Struct):
    """Partitions of one topic: of the only group up to version 7, of one of the groups from version 8 on."""

    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partition_indexes: list[int] = s.field(s.Array(s.INT32), "0+")


class OffsetFetchRequestGroup(s.Struct):
    """A group and the requested topics; null *topics* select all."""

    group_id: str = s.field(s.STRING, "8+")
    member_id: str | None = s.field(s.STRING, "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = s.field(s.INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopic] | None = s.field(s.Array(OffsetFetchRequestTopic), "8+", nullable="8+")


class OffsetFetchRequest(s.RequestBody["OffsetFetchResponse"], versions="1-10", flexible="6+"):
    """OffsetFetch (key 9): the committed offsets of one group, from version 8 on of several; from version 10 on, topics
    are identified by id. *require_stable* refuses partitions with offsets of an open transaction (KIP-447)."""

    group_id: str = s.field(s.STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = s.field(s.Array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = s.field(s.Array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = s.field(s.BOOL, "7+", default=False)


class OffsetFetchResponsePartition(s.Struct):
    """The next offset to read in one partition, −1 if none was committed."""

    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "5+", default=-1, ignorable=True)
    metadata: str | None = s.field(s.STRING, "0+", nullable="0+")
    error_code: int = s.field(s.INT16, "0+")


class OffsetFetchResponseTopic(s.Struct):
    """The offsets of one topic: of the only group up to version 7, of one of the groups from version 8 on."""

    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartition] = s.field(s.Array(OffsetFetchResponsePartition), "0+")


class OffsetFetchResponseGroup(s.Struct):
    group_id: str = s.field(s.STRING, "8+")
    topics: list[OffsetFetchResponseTopic] = s.field(s.Array(OffsetFetchResponseTopic), "8+")
    error_code: int = s.field(s.INT16, "8+", default=0)


class OffsetFetchResponse(s.Struct, versions="1-10", flexible="6+"):
    """One group at the top level up to version 7, *groups* from version 8 on."""

    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = s.field(s.Array(OffsetFetchResponseTopic), "0-7")
    error_code: int = s.field(s.INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = s.field(s.Array(OffsetFetchResponseGroup), "8+")


class OffsetDeleteRequestPartition(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")


class OffsetDeleteRequestTopic(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = s.field(s.Array(OffsetDeleteRequestPartition), "0+")


class OffsetDeleteRequest(s.RequestBody["OffsetDeleteResponse"], versions="0", flexible="none"):
    """OffsetDelete (key 47): delete offsets of topics that a group no longer subscribes to (KIP-496)."""

    group_id: str = s.field(s.STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = s.field(s.Array(OffsetDeleteRequestTopic), "0+")


class OffsetDeleteResponse(s.Struct, versions="0", flexible="none"):
    """The outcome for the group, and for every partition."""

    error_code: int = s.field(s.INT16, "0+")
    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    topics: list[TopicOutcome] = s.field(s.Array(TopicOutcome), "0+")
