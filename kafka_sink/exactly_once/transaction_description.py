"""What a coordinator knows of a transaction.

A plain value, made where DescribeTransactions (KIP-664) is answered, on the asker's thread. It never asks again.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import Transaction
from kafka_sink.protocol.messages.describe_transactions import TransactionState


@dataclass(frozen=True)
class TransactionDescription:
    """What a coordinator knows of an id: *state* as Kafka names it (Ongoing, PrepareCommit, CompleteAbort, …).

    *partitions* are those written to, offsets of consumer groups left out.
    """

    transaction: Transaction
    state: str
    partitions: frozenset[TopicPartition]
    timeout_ms: int = 0
    #: Wall time at which it began, ms since 1970; -1 while none is open.
    started_ms: int = -1

    @property
    def is_ongoing(self) -> bool:
        return self.state == "Ongoing"

    @property
    def is_over(self) -> bool:
        return self.state in ("Empty", "CompleteCommit", "CompleteAbort")

    @classmethod
    def of(cls, state: TransactionState) -> TransactionDescription:
        """From a coordinator's answer."""
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
