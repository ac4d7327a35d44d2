"""The states of a transactional producer, which may follow which, and what callers wait for.

Values and one small meeting point: results are made and waited for on calling threads and completed by the sender
thread. Nothing here sends, and nobody else decides which state may follow which.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from enum import Enum, IntEnum
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.locks import leaves
from kafka_sink.common.model import TopicPartition


class State(Enum):
    """Where a producer with an id stands (apache/kafka ``TransactionManager.State``)."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING_TRANSACTION = "committing a transaction"
    ABORTING_TRANSACTION = "aborting a transaction"
    ABORTABLE_ERROR = "in a transaction that can only be aborted"
    FATAL_ERROR = "unable to go on"


#: State → what may follow. An error for good may follow all, and nothing follows it.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING, State.FATAL_ERROR}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.READY: frozenset({State.IN_TRANSACTION, State.UNINITIALIZED, State.FATAL_ERROR}),
    State.IN_TRANSACTION: frozenset(
        {State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    # By way of INITIALIZING where the next transaction needs a new epoch that EndTxn does not give.
    State.COMMITTING_TRANSACTION: frozenset(
        {State.READY, State.INITIALIZING, State.ABORTABLE_ERROR, State.FATAL_ERROR}
    ),
    State.ABORTING_TRANSACTION: frozenset({State.READY, State.INITIALIZING, State.FATAL_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING_TRANSACTION, State.FATAL_ERROR}),
    State.FATAL_ERROR: frozenset(),
}

#: States in which a transaction is open, as far as the brokers know.
ONGOING: Final = frozenset(
    {State.IN_TRANSACTION, State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR}
)


class Priority(IntEnum):
    """Which of the waiting requests goes first: each needs what those before it bring."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3


class TransactionalResult:
    """The outcome of one transactional call, completed once (apache/kafka ``TransactionalRequestResult``)."""

    def __init__(self, operation: str, clock: Clock, *, after_timeout: str = "call it again") -> None:
        self.operation = operation
        #: The last answer for which it was tried again: why it takes so long.
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
        """The caller was told, or it failed: other calls may follow. A success that nobody saw has to be seen first."""
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

        :raises KafkaTimeoutError: none after *timeout_ms*; the operation goes on.
        :raises KafkaError: it failed.
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
    """What the open transaction writes to, and whether its coordinator may have heard of it. All of it ends with the
    transaction.

    Belongs to the transaction manager, which holds its lock at every change; :attr:`partitions` may be read without.

    Source: apache/kafka ``TransactionManager`` (newPartitionsInTransaction, transactionStarted); KIP-98, KIP-890.
    """

    def __init__(self) -> None:
        #: Those that may be written to: one that has come in stays until the sender thread ends the transaction.
        self.partitions: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._start_requested = False
        self._started = False

    @property
    def may_be_known(self) -> bool:
        """Some broker may have heard of the transaction, so that it has to be ended there."""
        return self._started or self._start_requested

    @property
    def may_not_have_begun(self) -> bool:
        """The coordinator was told of the transaction, and nobody knows whether it heard of it."""
        return self._start_requested and not self._started

    def start_requested(self) -> None:
        """The coordinator is about to be told of the transaction, and from now on may know it."""
        self._start_requested = True

    def started(self) -> None:
        """It knows it, or the next write will tell it (transaction version 2)."""
        self._started = True

    def want(self, topic_partition: TopicPartition) -> None:
        """The coordinator has to be asked for the partition."""
        self._new.add(topic_partition)

    def take_wanted(self) -> set[TopicPartition]:
        """The partitions to ask for now; they are handed out once."""
        wanted, self._new = self._new, set()
        return wanted

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """*partitions* may be written to."""
        self.partitions.update(partitions)
        self._started = True

    def drop_wanted(self) -> None:
        """The transaction will be aborted: nothing comes in any more."""
        self._new = set()

    def clear(self) -> None:
        """The transaction is over."""
        self._started = self._start_requested = False
        self._new = set()
        self.partitions.clear()
