"""The state of a transaction as its coordinator describes it.

A plain value, made from an answer to DescribeTransactions (KIP-664) on the calling thread. It is never refreshed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import Transaction
from kafka_sink.protocol.messages.transaction_admin import TransactionState

#: The time-outs of an id whose last commit is written again because brokers lost it, the longest that the brokers allow
#: of them. No other transaction of a sink has one, so they record in the id, across crashes, that it must be committed.
COMPLETING_MS: Final = tuple(599_993 >> halvings for halvings in range(10))


#: The time-outs of the id that records a lost commit: this and the epoch of the driver's committed transaction, or that
#: none is lost. Every broker allows them.
_RECORD_MS: Final = 1_000
NO_RECORD_MS: Final = 34_000


def record_of(epoch: int) -> int:
    """The time-out that records that the driver's transaction of this *epoch* was committed."""
    return _RECORD_MS + epoch


@dataclass(frozen=True)
class TransactionDescription:
    """The coordinator's description of an id; *state* is Kafka's name (Ongoing, PrepareCommit, CompleteAbort, …).

    *partitions* are those with written records; the partitions of consumer group offsets are left out.
    """

    transaction: Transaction
    state: str
    partitions: frozenset[TopicPartition]
    timeout_ms: int = 0
    #: Wall time at which the transaction began, ms since 1970; -1 if none is open.
    started_ms: int = -1

    @property
    def is_ongoing(self) -> bool:
        return self.state == "Ongoing"

    @property
    def is_over(self) -> bool:
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")

    @property
    def is_repair(self) -> bool:
        """Whether the commit of an earlier transaction of the id is, or was, written again."""
        return self.timeout_ms in COMPLETING_MS

    @property
    def recorded_epoch(self) -> int | None:
        """The epoch of the driver's lost commit that this id records; None if it records none."""
        return None if self.timeout_ms >= NO_RECORD_MS else self.timeout_ms - _RECORD_MS

    def proves_commit(self, epochs: Iterable[int], version: TransactionVersion) -> bool | None:
        """How the last transaction of the id, which is at rest, has ended: in a commit or not. None if the description
        does not prove that for rows of these *epochs*."""
        if self.is_repair:
            return None if self.state == "CompleteAbort" else True
        if self.state == "CompleteAbort":
            return False
        own_epoch = self.transaction.epoch - (version is TransactionVersion.V2)
        return True if self.state == "CompleteCommit" and all(each == own_epoch for each in epochs) else None

    def is_commit_of(self, transaction: Transaction, version: TransactionVersion) -> bool:
        """Whether *transaction* is described as committed, and not a later one of the same id.

        In *version* 2 the end of a transaction begins the next epoch; in version 1 each transaction of a sink has its
        own epoch. A description with that epoch therefore reports the end of exactly this transaction. A commit that is
        written again has later epochs.
        """
        if self.is_repair and self.state not in ("PrepareAbort", "CompleteAbort"):
            own = self.transaction
            return own.producer_id == transaction.producer_id and own.epoch > transaction.epoch
        if self.state not in ("PrepareCommit", "CompleteCommit"):
            return False
        at_end = replace(transaction, epoch=transaction.epoch + 1) if version is TransactionVersion.V2 else transaction
        return self.transaction == at_end

    @classmethod
    def of(cls, state: TransactionState) -> TransactionDescription:
        """The description from a coordinator's answer."""
        return cls(
            Transaction(state.transactional_id, state.producer_id, state.producer_epoch),
            state.transaction_state,
            frozenset(
                TopicPartition(topic.topic, partition)
                for topic in state.topics
                if topic.topic != "__consumer_offsets"
                for partition in topic.partitions
            ),
            state.transaction_timeout_ms,
            state.transaction_start_time_ms,
        )
