"""Requests of transactional producers (KIP-98, KIP-890): a producer id and epoch, which fences earlier ones of the same
transactional id; the partitions and groups of a transaction; and its end.
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-6"
_FLEXIBLE = "2+"


class InitProducerIdRequest(s.RequestBody["InitProducerIdResponse"], versions=_VERSIONS, flexible=_FLEXIBLE):
    """*transactional_id* null = idempotence only; id and epoch −1 = this producer has none yet (KIP-360).

    Version 6 (KIP-939): *enable2_pc* = the id's transactions never time out; *keep_prepared_txn* = an open transaction
    is kept instead of aborted.
    """

    transactional_id: str | None = s.field(s.STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = s.field(s.INT32, "0+")
    producer_id: int = s.field(s.INT64, "3+", default=-1)
    producer_epoch: int = s.field(s.INT16, "3+", default=-1)
    enable2_pc: bool = s.field(s.BOOL, "6+", default=False)
    keep_prepared_txn: bool = s.field(s.BOOL, "6+", default=False)


class InitProducerIdResponse(s.Struct, versions=_VERSIONS, flexible=_FLEXIBLE):
    """The id and epoch to stamp on batches; from version 6 on, those of a transaction that was kept, or −1."""

    throttle_time_ms: int = s.field(s.INT32, "0+", ignorable=True)
    error_code: int = s.field(s.INT16, "0+")
    producer_id: int = s.field(s.INT64, "0+", default=-1)
    producer_epoch: int = s.field(s.INT16, "0+")
    ongoing_txn_producer_id: int = s.field(s.INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = s.field(s.INT16, "6+", default=-1)


class AddPartitionsToTxnTopic(s.Struct):
    name: str = s.field(s.STRING, "0+")
    partitions: list[int] = s.field(s.Array(s.INT32), "0+")


class AddPartitionsToTxnTransaction(s.Struct):
    """One of several transactions; *verify_only* only checks whether it has the partitions."""

    transactional_id: str = s.field(s.STRING, "4+")
    producer_id: int = s.field(s.INT64, "4+")
    producer_epoch: int = s.field(s.INT16, "4+")
    verify_only: bool = s.field(s.BOOL, "4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = s.field(s.Array(AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(s.RequestBody["AddPartitionsToTxnResponse"], versions="0-5", flexible="3+"):
    """AddPartitionsToTxn (key 24): partitions that a transaction is going to write to.

    Clients use versions up to 3, with one transaction per request; brokers use versions 4 and up, with several
    (KIP-890). From transaction version 2 on clients omit it: the first Produce adds the partition.

    *v3_and_below_…* describe the only transaction of the versions that clients use.
    """

    transactions: list[AddPartitionsToTxnTransaction] = s.field(s.Array(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = s.field(s.STRING, "0-3")
    v3_and_below_producer_id: int = s.field(s.INT64, "0-3")
    v3_and_below_producer_epoch: int = s.field(s.INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = s.field(s.Array(AddPartitionsToTxnTopic), "0-3")


class AddPartitionsToTxnPartitionResult(s.Struct):
    partition_index: int = s.field(s.INT32, "0+")
    partition_error_code: int = s.field(s.INT16, "0+")


class AddPartitionsToTxnTopicResult(s.Struct):
    name: str = s.field(s.STRING, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = s.field(
        s.Array(AddPartitionsToTxnPartitionResult), "0+"
    )


class AddPartitionsToTxnResult(s.Struct):
    transactional_id: str = s.field(s.STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = s.field(s.Array(AddPartitionsToTxnTopicResult), "4+")


class AddPartitionsToTxnResponse(s.Throttled, versions="0-5", flexible="3+"):
    """The outcomes, by transaction from version 4 on. If one partition is refused, none is added."""

    error_code: int = s.field(s.INT16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = s.field(s.Array(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = s.field(
        s.Array(AddPartitionsToTxnTopicResult), "0-3"
    )


class AddOffsetsToTxnRequest(s.RequestBody["AddOffsetsToTxnResponse"], versions="0-4", flexible="3+"):
    """AddOffsetsToTxn (key 25): a transaction is going to commit offsets of a group.

    From transaction version 2 on clients omit it: TxnOffsetCommit version 5 adds the group (KIP-890).

    The partition of ``__consumer_offsets`` that *group_id* belongs to becomes part of the transaction.
    """

    transactional_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    group_id: str = s.field(s.STRING, "0+")


class AddOffsetsToTxnResponse(s.Throttled, versions="0-4", flexible="3+"):
    error_code: int = s.field(s.INT16, "0+")


class EndTxnRequest(s.RequestBody["EndTxnResponse"], versions="0-5", flexible="3+"):
    """EndTxn (key 26): commit or abort a transaction.

    Version 5 belongs to transaction version 2: the response has the epoch of the next transaction (KIP-890).

    *committed* false = abort.
    """

    transactional_id: str = s.field(s.STRING, "0+")
    producer_id: int = s.field(s.INT64, "0+")
    producer_epoch: int = s.field(s.INT16, "0+")
    committed: bool = s.field(s.BOOL, "0+")


class EndTxnResponse(s.Throttled, versions="0-5", flexible="3+"):
    """Without an error the outcome is final, though the markers may not be written yet."""

    error_code: int = s.field(s.INT16, "0+")
    producer_id: int = s.field(s.INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = s.field(s.INT16, "5+", default=-1, ignorable=True)
