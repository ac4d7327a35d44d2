"""The states of a transactional producer, the transitions between them, and the results that callers wait for.

Calling threads create results and wait for them; the sender thread completes them. Nothing here sends anything. The
table of transitions exists only here. :class:`TransactionStateMachine` belongs to the transaction manager, which holds
its lock at every call; the plain attributes may be read without the lock. It depends neither on requests nor on
brokers: the manager reports the outcomes of calls, and the machine never waits.

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

**Transitions.** A call of the application changes the state at once, on the calling thread: ``init_transactions`` to
INITIALIZING, ``begin_transaction`` to IN_TRANSACTION, ``commit_transaction`` to COMMITTING_TRANSACTION,
``abort_transaction`` to ABORTING_TRANSACTION. Outcomes change it on the sender thread: InitProducerId leads to READY or
back to UNINITIALIZED if it was refused for a reason that can be fixed; EndTxn leads to READY. A failed batch or record
leads to ABORTABLE_ERROR. Both threads hold the manager's lock. A producer that joined a transaction of another producer
is READY and IN_TRANSACTION at once, and never ends it. A producer without a transactional id only uses UNINITIALIZED,
INITIALIZING, READY and FATAL_ERROR.

**A call and its result.** ``commit_transaction`` may time out although EndTxn is in flight. It is then unknown whether
the transaction is committed, so only the same call is allowed, and it waits for the same result. A result is settled
when its caller has seen it, or when it is an error.

**Errors.** The table in :mod:`request_queue` maps each error code of each request to one of the reactions of
:mod:`kafka_sink.client.requests.outcomes`. A lost connection has the effect of LOOK_UP: every request may be
repeated, and a coordinator recognizes the repetition by the epoch. At ABORT and BUMP, IN_TRANSACTION and
COMMITTING_TRANSACTION become ABORTABLE_ERROR; waiting requests fail, and batches that were not sent are dropped. Both
are fatal as the answer to the EndTxn of an abort, and BUMP is always fatal if the coordinator cannot return a new epoch
(before KIP-360).

**The end of a transaction.** EndTxn is sent when every batch of the transaction has an outcome. If the coordinator does
not know of the transaction, because no partition or group was added, there is nothing to end and EndTxn is not sent. If
it may or may not know (the first AddPartitionsToTxn was lost), an abort is sent, INVALID_TXN_STATE counts as success,
and a new epoch keeps a late AddPartitionsToTxn out of the next transaction.

Source: apache/kafka ``TransactionManager`` (State, TxnRequestHandler); KIP-98, KIP-360, KIP-588, KIP-890, KIP-1050.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import (
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from kafka_sink.common.locks import leaves
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.futures import Completion


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


class TransactionalResult(Completion):
    """The outcome of one transactional call, completed once (apache/kafka ``TransactionalRequestResult``)."""

    def __init__(self, operation: str, clock: Clock, *, after_timeout: str = "call it again") -> None:
        super().__init__(clock)
        self.operation = operation
        #: The last answer that led to a retry: the reason for a delay.
        self.last_answer: Exception | None = None
        self._after_timeout = after_timeout
        self._error: Exception | None = None
        self._is_acknowledged = False

    @property
    def is_settled(self) -> bool:
        """Whether the caller has seen the outcome, or the call failed, so that other calls may follow. A success has to
        be seen first."""
        return self._is_acknowledged or self._error is not None

    def done(self) -> None:
        self._complete(None)

    def fail(self, error: Exception) -> None:
        self._complete(error)

    @leaves("_condition")
    def _complete(self, error: Exception | None) -> None:
        with self._condition:
            if not self.is_done:
                self._error = error
                self.complete()

    def await_outcome(self, timeout_ms: int) -> None:
        """Wait for the outcome.

        :raises KafkaTimeoutError: if there is none after *timeout_ms*; the operation continues.
        :raises KafkaError: if the operation failed.
        """
        if not self.wait(timeout_ms):
            answer = f"; the brokers' last answer: {self.last_answer}" if self.last_answer else ""
            raise KafkaTimeoutError(
                f"{self.operation} did not complete within {timeout_ms} ms{answer}; {self._after_timeout}"
            )
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
        #: The partitions to request from the coordinator.
        self.wanted: set[TopicPartition] = set()
        #: A request is sent by which the coordinator may know the transaction.
        self.is_start_requested = False
        #: The coordinator knows the transaction, or will learn of it by the next write (transaction version 2).
        self.is_started = False

    @property
    def may_not_have_begun(self) -> bool:
        """Whether the transaction was sent to the coordinator without a confirmation that it has begun."""
        return self.is_start_requested and not self.is_started

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Allow writes to *partitions*."""
        self.partitions.update(partitions)
        self.is_started = True

    def clear(self) -> None:
        """Clear everything at the end of the transaction."""
        self.is_started = self.is_start_requested = False
        self.wanted.clear()
        self.partitions.clear()


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call whose outcome the caller has not seen: only the same call is allowed."""

    result: TransactionalResult
    target: State


class TransactionStateMachine:
    """See the module; only this class changes the attributes.

    :param transactional_id: None for a producer that is only idempotent.
    """

    def __init__(self, transactional_id: str | None, clock: Clock, log: ContextLogger) -> None:
        self.transactional_id = transactional_id
        self._clock = clock
        self._log = log
        self.state = State.UNINITIALIZED
        #: The cause of an error state; None otherwise.
        self.last_error: KafkaError | None = None
        self.pending_call: PendingCall | None = None
        #: Whether the transaction belongs to another producer.
        self.is_guest = False

    def transition(self, target: State, error: KafkaError | None = None) -> None:
        """Change to the state *target*, because of *error* if that is an error state.

        :raises TransactionStateError: if *target* may not follow the current state.
        """
        self._check_can_follow(target)
        self._log.debug("%s -> %s", self.state.name, target.name)
        self._stand_at(target, error)

    def _check_can_follow(self, target: State) -> None:
        if target not in TRANSITIONS[self.state]:
            raise TransactionStateError(
                f"a producer that is {self.state.value} cannot become {target.value}; "
                "the order is init_transactions once, then begin_transaction, and commit_transaction or "
                "abort_transaction"
            )

    def _stand_at(self, target: State, error: KafkaError | None) -> None:
        self.state, self.last_error = target, error

    def call(
        self,
        operation: str,
        target: State,
        start: Callable[[TransactionalResult], None],
        *,
        after_abortable_error: bool = False,
    ) -> TransactionalResult:
        """Change to *target*, call *start*, and return the outcome; a repeated call returns the result of the first
        one.

        After an exception on the way, for example a KeyboardInterrupt, either the call has no effect or it has
        taken full effect; *start* may be called twice for that.

        :raises TransactionStateError: if *operation* is not possible now.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """
        self.check_no_other_call(operation, target)
        if self.is_guest:
            raise TransactionStateError(f"{operation} is not possible: the owner of the joined transaction ends it")
        if self.pending_call is not None:
            return self.pending_call.result
        if not (after_abortable_error and self.state is State.ABORTABLE_ERROR):
            self._check_no_error()
        self._check_can_follow(target)
        call = PendingCall(TransactionalResult(operation, self._clock), target)
        try:
            self._log.debug("%s -> %s", self.state.name, target.name)
            # This one step makes the call effective.
            self.pending_call = call
            self._carry_out(call, start)
        except BaseException:
            if self.pending_call is call:
                self._carry_out(call, start)
            raise
        return call.result

    def _carry_out(self, call: PendingCall, start: Callable[[TransactionalResult], None]) -> None:
        self._stand_at(call.target, None)
        start(call.result)

    def begin(self) -> None:
        """Begin a transaction that this producer ends."""
        self.check_no_other_call("begin_transaction")
        self._check_no_error()
        self.transition(State.IN_TRANSACTION)

    def join(self) -> None:
        """Join a transaction that another producer began and will end, as the first one or after another such one."""
        self.check_no_other_call("join_transaction")
        self._check_no_error()
        if self.is_guest and self.state is State.IN_TRANSACTION:
            return
        self._check_can_follow(State.INITIALIZING)
        # This comes first: the producer must never end a transaction of another producer.
        self.is_guest = True
        self.transition(State.INITIALIZING)
        self.transition(State.READY)
        self.transition(State.IN_TRANSACTION)

    def fail_call(self, error: KafkaError) -> None:
        """Fail the pending call with *error*."""
        if self.pending_call is not None:
            self.pending_call.result.fail(error)

    def check_no_other_call(self, operation: str, target: State | None = None) -> None:
        """:raises TransactionStateError: if another call, which does not lead to *target*, has to be repeated first."""
        if self.transactional_id is None:
            raise TransactionStateError(f"{operation} needs a producer with a transactional.id")
        pending = self.pending_call
        if pending is not None and pending.result.is_settled:
            pending = self.pending_call = None
        if pending is not None and pending.target is not target:
            raise TransactionStateError(
                f"{operation} is not possible: {pending.result.operation} timed out before, and must be called again"
            )

    def check_can_add(self, operation: str) -> None:
        """:raises TransactionStateError: if no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted."""
        self.check_no_other_call(operation)
        self._check_no_error()
        if self.state is not State.IN_TRANSACTION:
            needed = (
                "call init_transactions once, then begin_transaction"
                if self.state in (State.UNINITIALIZED, State.INITIALIZING)
                else "call begin_transaction first"
            )
            raise TransactionStateError(
                f"{operation} is not possible outside a transaction (the producer is {self.state.value}); {needed}"
            )

    def _check_no_error(self) -> None:
        error = self.last_error
        if error is None:
            return
        who = f"the producer with transactional.id {self.transactional_id!r}"
        if self.state is State.ABORTABLE_ERROR:
            raise TransactionAbortableError(f"{who} can only abort this transaction: {error}") from error
        kind = ProducerFencedError if isinstance(error, ProducerFencedError) else TransactionStateError
        raise kind(f"{who} cannot continue and must be closed: {error}") from error
