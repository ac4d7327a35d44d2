"""The states of a transactional producer, the transitions between them, and the results that callers wait for.

Calling threads create results and wait for them; the sender thread completes them. Nothing here sends anything. The
table of transitions exists only here.

The state machine
-----------------

::

    UNINITIALIZED ──▶ INITIALIZING ──▶ READY ──▶ IN_TRANSACTION ──▶ COMMITTING_TRANSACTION ──▶ READY
          ◀─────────────────┘            ▲          │       │              │
                                         │          │       ▼              ▼
                                         │          │   ABORTABLE_ERROR ◀──┘
                                         │          ▼       ▼
                                         └────── ABORTING_TRANSACTION

``FATAL_ERROR`` may follow every state, and only ``close`` follows it. A transaction whose end requires a new epoch goes
back to ``READY`` by way of ``INITIALIZING``.

**Who moves it.** A call of the application moves it at once, on the calling thread: ``init_transactions`` to
INITIALIZING, ``begin_transaction`` to IN_TRANSACTION, ``commit_transaction`` to COMMITTING_TRANSACTION,
``abort_transaction`` to ABORTING_TRANSACTION. Outcomes move it on the sender thread: InitProducerId leads to READY, or
back to UNINITIALIZED if it was refused for a reason that can be fixed; EndTxn leads to READY. A failed batch or record
leads to ABORTABLE_ERROR. Both threads hold the manager's lock. A producer that joined a transaction of another producer
is READY and IN_TRANSACTION at once, and never ends it. A producer without a transactional id only uses UNINITIALIZED,
INITIALIZING, READY and FATAL_ERROR.

**A call and its result.** ``commit_transaction`` may time out although EndTxn is on its way. Then nobody knows whether
the transaction is committed, so only the same call is allowed, and it waits for the same result. A result is settled
when its caller has seen it, or when it is an error.

**What an error does.** The table in :mod:`reactions` gives each error code of each request one of seven reactions:

* *Retry*: the state does not change, and the request is sent again after a pause. It may be dropped meanwhile, if the
  transaction is aborted.
* *Look up*: likewise, after the coordinator was found again. A lost connection has the same effect: every request may
  be repeated, and a coordinator recognizes the repetition by the epoch.
* *Abort*: this transaction has failed, the producer has not. IN_TRANSACTION and COMMITTING_TRANSACTION become
  ABORTABLE_ERROR; waiting requests fail, and batches that were not sent are dropped. In ABORTING_TRANSACTION there is
  no milder reaction left than a fatal error.
* *Bump*: likewise, and the next transaction requires a new epoch, because the sequences may have a gap. If the
  coordinator cannot give one (before KIP-360), the error is fatal.
* *Uninitialize*: InitProducerId was refused; the call may be repeated after a permission was granted.
* *Fenced*: another producer holds the transactional id. Fatal, and reported as PRODUCER_FENCED whatever the code.
* *Fatal*: the producer cannot know what became of its transaction, or can never continue.

**What ends a transaction.** EndTxn is sent when every batch of the transaction has an outcome. If the coordinator does
not know of the transaction, because no partition or group was added, there is nothing to end and EndTxn is not sent. If
it may or may not know (the first AddPartitionsToTxn was lost), an abort is sent, INVALID_TXN_STATE counts as success,
and a new epoch keeps a late AddPartitionsToTxn out of the next transaction.

**Epochs.** In transaction version 2 the answer to EndTxn contains the epoch of the next transaction, so late writes of
one transaction never reach the next. In version 1 the epoch stays; only after an error is a new one requested. The
version changes between two transactions only (:mod:`epochs`).

Source: apache/kafka ``TransactionManager`` (State, TxnRequestHandler); KIP-98, KIP-360, KIP-588, KIP-890, KIP-1050.
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
    FATAL_ERROR = "unable to continue"


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
                        f"{self.operation} did not complete within {timeout_ms} ms{answer}; {self._after_timeout}"
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
