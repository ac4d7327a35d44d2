"""The effect of each request on a transactional id in each state, or the error if the request is not allowed.

Pure functions from a state and a request to the next state; the coordinator calls them under its lock. They must not
store or send anything: a new producer id, if one is needed, comes from a function that is passed in.

Source: KIP-98, KIP-360, KIP-890; the answers were measured on Apache Kafka 4.1 and 4.3 at both transaction versions.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from kafka_sink.broker.coordinator.transaction_metadata import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, ProducerIdAndEpoch, TopicPartition, TransactionVersion


def _refused(metadata: TransactionMetadata, code: ErrorCode, reason: str) -> ApiError:
    return ApiError(f"transactional id {metadata.transactional_id!r}, {metadata.state}: {reason}", code)


def _concurrent(metadata: TransactionMetadata) -> ApiError:
    return _refused(metadata, ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction has not completed yet")


# --- InitProducerId --------------------------------------------------------------------------------------------------


def init_producer_id(
    metadata: TransactionMetadata,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    fence_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """Assign the id to a producer; an open transaction is aborted first, and the producer has to retry.

    *expected* is what the producer has already (KIP-360); *fence_version* is the transaction version of the abort.

    :raises ApiError: PRODUCER_FENCED if another producer has the id now; CONCURRENT_TRANSACTIONS.
    """
    if metadata.state.is_deciding:
        # Checked first, as in add_partitions.
        raise _concurrent(metadata)
    if expected is not None and not _may_be_holder(metadata, expected):
        raise _refused(metadata, ErrorCode.PRODUCER_FENCED, f"producer {expected.producer_id} does not own it")
    if metadata.state is TransactionState.ONGOING:
        # As in Kafka, the epoch in *expected* is not checked here.
        return fenced(metadata, fence_version, new_producer_id, now_ms)
    if metadata.is_epoch_exhausted and (expected is None or expected.epoch == metadata.producer_epoch):
        return metadata.with_producer_id(new_producer_id(), timeout_ms, now_ms, keep_last_epoch=expected is not None)
    epoch, last_epoch = _next_epochs(metadata, expected)
    return metadata.with_epoch(epoch, last_epoch, timeout_ms, now_ms)


def fenced(
    metadata: TransactionMetadata, version: int, new_producer_id: Callable[[], int], now_ms: int
) -> TransactionMetadata:
    """Abort the open transaction under an epoch that its producer does not have.

    In version 2 the producer may later receive that epoch. The last epoch is never assigned: a new producer id follows.
    """
    rotates = version >= TransactionVersion.V2 and metadata.is_epoch_exhausted
    return metadata.fenced(version, now_ms, next_producer_id=new_producer_id() if rotates else NO_PRODUCER_ID)


def _may_be_holder(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    if metadata.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == metadata.producer_id:
        return True
    # The producer may not have received the response to its last request, which had the new producer id.
    return expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_PRODUCER_EPOCH


def _next_epochs(metadata: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> tuple[int, int]:
    current = metadata.producer_epoch
    if expected is None:
        return current + 1, NO_PRODUCER_EPOCH
    if current == NO_PRODUCER_EPOCH or expected.epoch == current:
        return current + 1, current
    if expected.epoch == metadata.last_producer_epoch:
        # A retried request whose response was lost.
        return current, metadata.last_producer_epoch
    raise _refused(metadata, ErrorCode.PRODUCER_FENCED, f"epoch {expected.epoch} is not {current}")


# --- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


def _check_holder(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    if metadata.producer_id != producer.producer_id:
        text = f"producer id {producer.producer_id} is not {metadata.producer_id}"
        raise _refused(metadata, ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    if metadata.producer_epoch != producer.epoch:
        text = f"epoch {producer.epoch} is not {metadata.producer_epoch}"
        raise _refused(metadata, ErrorCode.PRODUCER_FENCED, text)


def add_partitions(
    metadata: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    partitions: Set[TopicPartition],
    groups: Set[str],
    version: int,
    now_ms: int,
) -> TransactionMetadata:
    """Open the transaction if necessary and add *partitions* and *groups*; returns *metadata* if all are part of it
    already.

    :raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if metadata.state.is_deciding:
        # Checked first: the producer may have the new producer id, which takes effect only with the last marker.
        raise _concurrent(metadata)
    _check_holder(metadata, producer)
    known = partitions <= metadata.partitions and groups <= metadata.groups
    if metadata.state is TransactionState.ONGOING and known:
        return metadata
    return metadata.with_partitions(partitions, groups, version, now_ms)


def missing_partitions(
    metadata: TransactionMetadata, producer: ProducerIdAndEpoch, partitions: Set[TopicPartition]
) -> Set[TopicPartition]:
    """Those of *partitions* that are not part of the transaction. Raises as :func:`add_partitions` does."""
    _check_holder(metadata, producer)
    if metadata.state.is_deciding:
        raise _concurrent(metadata)
    return partitions - metadata.partitions


# --- EndTxn ----------------------------------------------------------------------------------------------------------


def end_transaction(
    metadata: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
    *,
    committed: bool,
) -> TransactionMetadata:
    """Decide the outcome; returns *metadata* if the request is a retry of one that was carried out.

    :raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    if version < TransactionVersion.V2:
        _check_holder(metadata, producer)
        if metadata.state.is_deciding:
            raise _concurrent(metadata)
        repeated = not _is_open(metadata)
        from_rest = False
    else:
        if metadata.state.is_deciding:
            # Checked first: the producer received its next epoch or producer id with the outcome, and may have to abort
            # again before the markers are written (KAFKA-18464).
            raise _concurrent(metadata)
        repeated = _is_repeated(metadata, producer)
        _check_holder_of_version_2(metadata, producer, repeated=repeated)
        # In version 2 no epoch is used twice, so at rest a request with the present epoch is not a retry. Nothing was
        # written in that epoch, so only an abort is valid.
        from_rest = not repeated and not _is_open(metadata) and not committed
    if _is_open(metadata) or from_rest:
        exhausted = version >= TransactionVersion.V2 and metadata.is_epoch_exhausted
        next_producer_id = new_producer_id() if exhausted else NO_PRODUCER_ID
        return metadata.prepared(committed=committed, version=version, next_producer_id=next_producer_id, now_ms=now_ms)
    decided = metadata.state is not TransactionState.EMPTY and repeated
    if not decided or metadata.state.is_commit != committed:
        raise _refused(metadata, ErrorCode.INVALID_TXN_STATE, f"cannot be {'committed' if committed else 'aborted'}")
    return metadata


def _is_open(metadata: TransactionMetadata) -> bool:
    return metadata.state is TransactionState.ONGOING


def _is_repeated(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer did not receive the epoch that its EndTxn returned, and so retries the request."""
    if metadata.state is TransactionState.ONGOING or metadata.state is TransactionState.EMPTY:
        return False
    return metadata.producer_epoch == producer.epoch + 1 or _is_repeated_over_rotation(metadata, producer)


def _is_repeated_over_rotation(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """As :func:`_is_repeated`, if the response also had a new producer id."""
    last = ProducerIdAndEpoch(metadata.previous_producer_id, LAST_PRODUCER_EPOCH)
    return producer == last and metadata.producer_epoch == 0


def _check_holder_of_version_2(metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, repeated: bool) -> None:
    if metadata.producer_id != producer.producer_id and not _is_repeated_over_rotation(metadata, producer):
        text = f"producer id {producer.producer_id} is not {metadata.producer_id}"
        raise _refused(metadata, ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    if metadata.producer_epoch != producer.epoch and not repeated:
        text = f"epoch {producer.epoch} is not {metadata.producer_epoch}"
        raise _refused(metadata, ErrorCode.PRODUCER_FENCED, text)
