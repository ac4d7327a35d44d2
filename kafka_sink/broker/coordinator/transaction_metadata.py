"""The coordinator's state of one transactional id: transaction states, transitions and producer epochs.

Immutable values that the coordinator replaces as a whole under its lock. This module must not have side effects;
:mod:`kafka_sink.broker.coordinator.transaction_rules` decides whether a request may cause a transition.

Source: KIP-98, KIP-360, KIP-890; apache/kafka ``TransactionMetadata`` and ``TransactionState``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from kafka_sink.common.model import LAST_PRODUCER_EPOCH, NO_TIMESTAMP, TopicPartition, TransactionVersion

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

    def without_partitions(self, partitions: Set[TopicPartition]) -> Self:
        """The transaction without these participants, which have their markers."""
        return replace(self, partitions=self.partitions - partitions)

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

    def dead(self, now_ms: int) -> Self:
        """The id in its final state, after it has expired."""
        return self.moved_to(TransactionState.DEAD, now_ms)
