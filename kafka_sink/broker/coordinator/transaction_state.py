"""The coordinator's state of one transactional id, and the effect of each request on it, or the error that refuses it.

Immutable values that the coordinator replaces as a whole under its lock, and pure functions from a state and a request
to the next state. They must not store or send anything: a new producer id, if one is needed, comes from a function that
is passed in.

Source: KIP-98, KIP-360, KIP-890; apache/kafka ``TransactionMetadata`` and ``TransactionState``; the answers were
measured on Apache Kafka 4.1 and 4.3 at both transaction versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import (
    LAST_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1


class TransactionState(StrEnum):
    """The state of a transaction, with the names of DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def is_deciding(self) -> bool:
        """Whether the outcome is decided, but not every participant has its marker yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether no transaction is open and no marker is missing."""
        return self in _AT_REST

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


_AT_REST: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

#: State → the states from which it may be reached.
TRANSITIONS: Final[Mapping[TransactionState, Set[TransactionState]]] = MappingProxyType(
    {
        TransactionState.EMPTY: _AT_REST,
        TransactionState.ONGOING: _AT_REST | {TransactionState.ONGOING},
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
        # From rest: in version 2 a producer may abort a transaction to which no partition was added.
        TransactionState.PREPARE_ABORT: _AT_REST | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: _AT_REST,
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
    }
)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id. Times in ms since 1970; *start_ms* is when the first partition was added.

    *previous_producer_id* and *last_producer_epoch* are the previous values of its producer and identify a retried
    request; *next_producer_id* replaces the producer id when the transaction is complete. *partitions* are the
    participants or, once the outcome is decided, those without a marker; *groups* are those whose offsets are committed
    in the transaction.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = TransactionState.EMPTY
    start_ms: int = NO_TIMESTAMP
    #: The transaction version of the requests that opened the transaction.
    version: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_PRODUCER_EPOCH

    def moved_to(self, state: TransactionState, now_ms: int, **changes: Any) -> Self:
        """:raises RuntimeError: if no transition leads to *state*; see :data:`TRANSITIONS`."""
        if self.state not in TRANSITIONS[state]:
            raise RuntimeError(f"{self.transactional_id}: no transition leads from {self.state} to {state}")
        return replace(self, state=state, last_update_ms=now_ms, **changes)

    def with_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Self:
        """Assign the id to a producer, under *epoch*."""
        return self._emptied(now_ms, timeout_ms, producer_epoch=epoch, last_producer_epoch=last_epoch)

    def with_producer_id(self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool) -> Self:
        """As :meth:`with_epoch`, with a new producer id, because the epochs of the old one are exhausted."""
        last_epoch = self.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        return self._emptied(
            now_ms,
            timeout_ms,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=0,
            last_producer_epoch=last_epoch,
        )

    def _emptied(self, now_ms: int, timeout_ms: int, **changes: int) -> Self:
        return self.moved_to(
            TransactionState.EMPTY,
            now_ms,
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
            partitions=frozenset(),
            groups=frozenset(),
            **changes,
        )

    def fenced(self, version: int, now_ms: int, *, next_producer_id: int = NO_PRODUCER_ID) -> Self:
        """Begin to abort the open transaction, under an epoch that its producer does not have."""
        fence = self.moved_to(TransactionState.PREPARE_EPOCH_FENCE, now_ms)
        last_epoch = self.producer_epoch if version >= TransactionVersion.V2 else NO_PRODUCER_EPOCH
        return fence.moved_to(
            TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            version=version,
        )

    def with_partitions(self, partitions: Set[TopicPartition], groups: Set[str], version: int, now_ms: int) -> Self:
        """The open transaction with these participants added."""
        begun = self.state is TransactionState.ONGOING
        return self.moved_to(
            TransactionState.ONGOING,
            now_ms,
            start_ms=self.start_ms if begun else now_ms,
            partitions=self.partitions | partitions,
            groups=self.groups | groups,
            version=version,
        )

    def prepared(self, *, committed: bool, version: int, next_producer_id: int, now_ms: int) -> Self:
        """The transaction with a decided outcome. In version 2 this bumps the epoch for the next transaction."""
        bump = version >= TransactionVersion.V2
        return self.moved_to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1 if bump else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bump else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            version=version,
        )

    def is_same_transaction(self, other: Self) -> bool:
        """Whether both are the same transaction in the same state; participants may differ."""
        mine = (self.producer_id, self.producer_epoch, self.start_ms, self.state)
        return mine == (other.producer_id, other.producer_epoch, other.start_ms, other.state)

    def completed(self, now_ms: int) -> Self:
        """The complete transaction: every participant has its marker."""
        state = TransactionState.COMPLETE_COMMIT if self.state.is_commit else TransactionState.COMPLETE_ABORT
        changes: dict[str, Any] = {"partitions": frozenset(), "groups": frozenset()}
        if self.next_producer_id != NO_PRODUCER_ID:
            changes |= {
                "producer_id": self.next_producer_id,
                "previous_producer_id": self.producer_id,
                "next_producer_id": NO_PRODUCER_ID,
                "producer_epoch": 0,
            }
        return self.moved_to(state, now_ms, **changes)


def _refused(metadata: TransactionMetadata, code: ErrorCode, reason: str) -> ApiError:
    return ApiError(f"transactional id {metadata.transactional_id!r}, {metadata.state}: {reason}", code)


def _concurrent(metadata: TransactionMetadata) -> ApiError:
    return _refused(metadata, ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction has not completed yet")


def init_producer_id(
    metadata: TransactionMetadata,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    fence_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """Assign the id to a producer; an open transaction is aborted first, and the producer has to retry.

    *expected* is the producer's present identity (KIP-360); *fence_version* is the transaction version of the abort.

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


def _check_holder(
    metadata: TransactionMetadata, producer: ProducerIdAndEpoch, *, rotated: bool = False, repeated: bool = False
) -> None:
    """:raises ApiError: if *producer* has another id, unless the id was *rotated*, or another epoch, unless its request
    is *repeated*."""
    if metadata.producer_id != producer.producer_id and not rotated:
        text = f"producer id {producer.producer_id} is not {metadata.producer_id}"
        raise _refused(metadata, ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    if metadata.producer_epoch != producer.epoch and not repeated:
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
        rotated = _is_repeated_over_rotation(metadata, producer)
        _check_holder(metadata, producer, rotated=rotated, repeated=repeated)
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
