"""The states of a transactional producer, the transitions between them, and the results that callers wait for.

Calling threads create results and wait for them; the sender thread completes them. Nothing here sends anything. The
table of transitions exists only here.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.locks import leaves
from kafka_sink.common.model import TopicPartition


class State(Enum):
    """The state of a producer with an id (apache/kafka ``TransactionManager.State``)."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING_TRANSACTION = "committing a transaction"
    ABORTING_TRANSACTION = "aborting a transaction"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "unable to go on"


#: State → the states that may follow. FATAL_ERROR may follow all, and nothing follows it.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    # Via INITIALIZING if the next transaction requires a new epoch that EndTxn does not return.
    State.COMMITTING_TRANSACTION: frozenset(
        {State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.ABORTING_TRANSACTION: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING_TRANSACTION, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}

#: States in which the brokers may consider a transaction open.
ONGOING: Final = frozenset(
    {State.IN_TRANSACTION, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR}
)


class TransactionalResult:
    """The outcome of one transactional call, completed once (apache/kafka ``TransactionalRequestResult``)."""

    def __init__(self, operation: str, clock: Clock, *, after_timeout: str = "call it again") -> None:
        self.operation = operation
        #: The last answer that led to a retry: the reason for a delay.
        self.last_answer: Exception | None = None
        self._clock = clock
        self._after_timeout = after_timeout
        self._condition = threading.Condition()
        self._is_completed = False
        self._error: Exception | None = None
        self._is_acknowledged = False

    @property
    def is_completed(self) -> bool:
        return self._is_completed

    @property
    def is_settled(self) -> bool:
        """Whether the caller has seen the outcome, or the call failed, so that other calls may follow. A success has to
        be seen first.
        """
        return self._is_acknowledged or self._error is not None

    def done(self) -> None:
        self._complete(None)

    def fail(self, error: Exception) -> None:
        self._complete(error)

    @leaves("_condition")
    def _complete(self, error: Exception | None) -> None:
        with self._condition:
            if not self._is_completed:
                self._is_completed, self._error = True, error
                self._condition.notify_all()

    @leaves("_condition")
    def wait(self, timeout_ms: int) -> None:
        """Wait for the outcome.

        :raises KafkaTimeoutError: if there is none after *timeout_ms*; the operation continues.
        :raises KafkaError: if the operation failed.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        with self._condition:
            while not self._is_completed:
                left = deadline - self._clock.monotonic_ms()
                if left <= 0:
                    answer = f"; the brokers' last answer: {self.last_answer}" if self.last_answer else ""
                    raise KafkaTimeoutError(
                        f"{self.operation} did not end within {timeout_ms} ms{answer}; {self._after_timeout}"
                    )
                self._clock.wait(self._condition, left)
        self._is_acknowledged = True
        if self._error is not None:
            raise self._error.with_traceback(None)


class TransactionScope:
    """The partitions of the open transaction, and whether its coordinator may know it. All of it is cleared at the end
    of the transaction.

    Belongs to the transaction manager, which holds its lock at every change; :attr:`partitions` may be read without the
    lock.

    Source: apache/kafka ``TransactionManager`` (newPartitionsInTransaction, transactionStarted); KIP-98, KIP-890.
    """

    def __init__(self) -> None:
        #: The partitions that may be written to; they stay until the sender thread ends the transaction.
        self.partitions: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._start_requested = False
        self._started = False

    @property
    def may_be_known(self) -> bool:
        """Whether a broker may know the transaction, so that it has to be ended there."""
        return self._started or self._start_requested

    @property
    def may_not_have_begun(self) -> bool:
        """Whether the transaction was sent to the coordinator without a confirmation that it has begun."""
        return self._start_requested and not self._started

    def start_requested(self) -> None:
        """Record that the coordinator may know the transaction from now on, because a request is about to be sent."""
        self._start_requested = True

    def started(self) -> None:
        """Record that the coordinator knows the transaction, or will learn of it by the next write (transaction version
        2).
        """
        self._started = True

    def want(self, topic_partition: TopicPartition) -> None:
        """Mark the partition as to be added to the transaction by the coordinator."""
        self._new.add(topic_partition)

    def take_wanted(self) -> set[TopicPartition]:
        """The partitions to request from the coordinator now; each is returned once."""
        wanted, self._new = self._new, set()
        return wanted

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Allow writes to *partitions*."""
        self.partitions.update(partitions)
        self._started = True

    def drop_wanted(self) -> None:
        """Forget the partitions to request, because the transaction will be aborted."""
        self._new = set()

    def clear(self) -> None:
        """Clear everything at the end of the transaction."""
        self._started = self._start_requested = False
        self._new = set()
        self.partitions.clear()
