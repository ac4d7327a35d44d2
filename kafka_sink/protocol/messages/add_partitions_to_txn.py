"""AddPartitionsToTxn (key 24): partitions that a transaction is going to write to.

Clients use versions up to 3, one transaction a request; brokers ask each other in versions 4 and up, about several
(KIP-890). From transaction version 2 on clients leave it out: the first Produce adds the partition.
"""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-5"
_FLEXIBLE = "3+"


@struct
class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


@struct
class AddPartitionsToTxnTransaction(Struct):
    """One of several transactions; with *verify_only* it is asked whether the partitions are in it already."""

    transactional_id: str = field(STRING, "4+")
    producer_id: int = field(INT64, "4+")
    producer_epoch: int = field(INT16, "4+")
    verify_only: bool = field(BOOL, "4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "4+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AddPartitionsToTxnRequest(RequestBody["AddPartitionsToTxnResponse"]):
    """*v3_and_below_…* describe the one transaction of the versions that clients use."""

    transactions: list[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = field(STRING, "0-3")
    v3_and_below_producer_id: int = field(INT64, "0-3")
    v3_and_below_producer_epoch: int = field(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "0-3")


@struct
class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(INT32, "0+")
    partition_error_code: int = field(INT16, "0+")


@struct
class AddPartitionsToTxnTopicResult(Struct):
    """The outcomes for one topic's partitions."""

    name: str = field(STRING, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult), "0+"
    )


@struct
class AddPartitionsToTxnResult(Struct):
    """The outcomes for one of several transactions."""

    transactional_id: str = field(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult), "4+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AddPartitionsToTxnResponse(Struct):
    """The outcomes, by transaction from version 4 on. If one partition is refused, none is added."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )
