"""The committed offsets of groups."""

from __future__ import annotations

import uuid

from kafka_sink.protocol import schema as s


@s.struct
class OffsetCommitRequestPartition(s.Struct):
    """The next offset to read in one partition, and what the group wants to remember with it."""

    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class OffsetCommitRequestTopic(s.Struct):
    """The offsets of one topic."""

    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = s.field(s.array(OffsetCommitRequestPartition), "0+")


@s.message(versions="2-10", flexible="8+")
class OffsetCommitRequest(s.RequestBody["OffsetCommitResponse"]):
    """OffsetCommit (key 8): how far a group has read. Versions 10 and up name topics by id. Generation −1 with an empty
    member id commits without being a member.
    """

    group_id: str = s.field(s.STRING, "0+")
    generation_id_or_member_epoch: int = s.field(s.INT32, "1+", default=-1, ignorable=True)
    member_id: str = s.field(s.STRING, "1+", ignorable=True)
    group_instance_id: str | None = s.field(s.STRING, "7+", default=None, nullable="7+")
    retention_time_ms: int = s.field(s.INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = s.field(s.array(OffsetCommitRequestTopic), "0+")


@s.struct
class OffsetCommitResponsePartition(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class OffsetCommitResponseTopic(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = s.field(s.array(OffsetCommitResponsePartition), "0+")


@s.message(versions="2-10", flexible="8+")
class OffsetCommitResponse(s.Struct):
    """The outcome for every partition."""

    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = s.field(s.array(OffsetCommitResponseTopic), "0+")


@s.struct
class TxnOffsetCommitRequestPartition(s.Struct):
    """The offset for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    committed_offset: int = s.field(s.INT64, "0+")
    committed_leader_epoch: int = s.field(s.INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class TxnOffsetCommitRequestTopic(s.Struct):
    """The offsets for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[TxnOffsetCommitRequestPartition] = s.field(s.array(TxnOffsetCommitRequestPartition), "0+")


@s.message(versions="0-5", flexible="3+")
class TxnOffsetCommitRequest(s.RequestBody["TxnOffsetCommitResponse"]):
    """TxnOffsetCommit (key 28): offsets of a group that take effect when the transaction is committed.

    Version 5 adds the group to the transaction by itself (transaction version 2, KIP-890); before it AddOffsetsToTxn
    does.

    Generation −1 with an empty member id: the group's coordinator does not hold the offsets in against a member.
    """

    transactional_id: str = s.field(s.STRING, "0+")
    group_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    generation_id: int = s.field(s.INT32, "3+", default=-1)
    member_id: str = s.field(s.STRING, "3+", default="")
    group_instance_id: str | None = s.field(s.STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = s.field(s.array(TxnOffsetCommitRequestTopic), "0+")


@s.struct
class TxnOffsetCommitResponsePartition(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class TxnOffsetCommitResponseTopic(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[TxnOffsetCommitResponsePartition] = s.field(s.array(TxnOffsetCommitResponsePartition), "0+")


@s.message(versions="0-5", flexible="3+")
class TxnOffsetCommitResponse(s.Struct):
    """The outcome for every partition of the request."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = s.field(s.array(TxnOffsetCommitResponseTopic), "0+")


@s.struct
class OffsetFetchRequestTopic(s.Struct):
    """Partitions of one topic, up to version 7."""

    name: str = s.field(s.STRING, "0-7")
    partition_indexes: list[int] = s.field(s.array(s.INT32), "0-7")


@s.struct
class OffsetFetchRequestTopics(s.Struct):
    """Partitions of one topic, from version 8 on."""

    name: str = s.field(s.STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partition_indexes: list[int] = s.field(s.array(s.INT32), "8+")


@s.struct
class OffsetFetchRequestGroup(s.Struct):
    """A group and what is asked of it; null *topics* ask for all."""

    group_id: str = s.field(s.STRING, "8+")
    member_id: str | None = s.field(s.STRING, "9+", default=None, nullable="9+", ignorable=True)
    member_epoch: int = s.field(s.INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = s.field(s.array(OffsetFetchRequestTopics), "8+", nullable="8+")


@s.message(versions="1-10", flexible="6+")
class OffsetFetchRequest(s.RequestBody["OffsetFetchResponse"]):
    """OffsetFetch (key 9): how far groups have read. Version 8 asks for several groups, 10 and up name topics by id.
    *require_stable* refuses partitions with offsets of an open transaction (KIP-447).
    """

    group_id: str = s.field(s.STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = s.field(s.array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = s.field(s.array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = s.field(s.BOOL, "7+", default=False)


@s.struct
class OffsetFetchResponsePartition(s.Struct):
    """The next offset to read in one partition, −1 when none was committed."""

    partition_index: int = s.field(s.INT32, "0-7")
    committed_offset: int = s.field(s.INT64, "0-7")
    committed_leader_epoch: int = s.field(s.INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = s.field(s.STRING, "0-7", nullable="0-7")
    error_code: int = s.field(s.INT16, "0-7")


@s.struct
class OffsetFetchResponseTopic(s.Struct):
    """The offsets of one topic, up to version 7."""

    name: str = s.field(s.STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = s.field(s.array(OffsetFetchResponsePartition), "0-7")


@s.struct
class OffsetFetchResponsePartitions(s.Struct):
    """As :class:`OffsetFetchResponsePartition`, from version 8 on."""

    partition_index: int = s.field(s.INT32, "8+")
    committed_offset: int = s.field(s.INT64, "8+")
    committed_leader_epoch: int = s.field(s.INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = s.field(s.STRING, "8+", nullable="8+")
    error_code: int = s.field(s.INT16, "8+")


@s.struct
class OffsetFetchResponseTopics(s.Struct):
    """The offsets of one topic, from version 8 on."""

    name: str = s.field(s.STRING, "8-9", ignorable=True)
    topic_id: uuid.UUID = s.field(s.UUID, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = s.field(s.array(OffsetFetchResponsePartitions), "8+")


@s.struct
class OffsetFetchResponseGroup(s.Struct):
    """The offsets of one group."""

    group_id: str = s.field(s.STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = s.field(s.array(OffsetFetchResponseTopics), "8+")
    error_code: int = s.field(s.INT16, "8+", default=0)


@s.message(versions="1-10", flexible="6+")
class OffsetFetchResponse(s.Struct):
    """One group at the top level up to version 7, *groups* from version 8 on."""

    throttle_time_ms: int = s.field(s.INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = s.field(s.array(OffsetFetchResponseTopic), "0-7")
    error_code: int = s.field(s.INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = s.field(s.array(OffsetFetchResponseGroup), "8+")


@s.struct
class OffsetDeleteRequestPartition(s.Struct):
    """One partition."""

    partition_index: int = s.field(s.INT32, "0+")


@s.struct
class OffsetDeleteRequestTopic(s.Struct):
    """One topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = s.field(s.array(OffsetDeleteRequestPartition), "0+")


@s.message(versions="0", flexible="none")
class OffsetDeleteRequest(s.RequestBody["OffsetDeleteResponse"]):
    """OffsetDelete (key 47): forget offsets of topics that a group does not read any more (KIP-496). What to forget of
    one group.
    """

    group_id: str = s.field(s.STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = s.field(s.array(OffsetDeleteRequestTopic), "0+")


@s.struct
class OffsetDeleteResponsePartition(s.Struct):
    """The outcome for one partition."""

    partition_index: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")


@s.struct
class OffsetDeleteResponseTopic(s.Struct):
    """The outcomes for one topic's partitions."""

    name: str = s.field(s.STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = s.field(s.array(OffsetDeleteResponsePartition), "0+")


@s.message(versions="0", flexible="none")
class OffsetDeleteResponse(s.Struct):
    """The outcome for the group, and for every partition."""

    error_code: int = s.field(s.INT16, "0+")
    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = s.field(s.array(OffsetDeleteResponseTopic), "0+")
