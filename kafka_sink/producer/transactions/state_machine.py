"""TransactionStateMachine: where a transactional producer stands, and which calls its application may make there.

Belongs to the transaction manager, which holds its lock at every call; the plain attributes may be read without. It
knows no request and no broker: what became of a call it is told, and nothing is waited for in it.

Source: apache/kafka ``TransactionManager`` (its states and pending transitions); KIP-98, KIP-588.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import KafkaError, ProducerFencedError, TransactionAbortableError, TransactionStateError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.producer.transactions.state import ONGOING, TRANSITIONS, State, TransactionalResult


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call whose outcome its caller has not seen: it may only be repeated."""

    result: TransactionalResult
    target: State


class TransactionStateMachine:
    """See the module; the attributes are changed here alone.

    :param transactional_id: None for a producer that is idempotent only.
    """

    def __init__(self, transactional_id: str | None, clock: Clock, log: ContextLogger) -> None:
        self.transactional_id = transactional_id
        self._clock = clock
        self._log = log
        self.state = State.UNINITIALIZED
        #: Why it is in an error state; None otherwise.
        self.last_error: KafkaError | None = None
        self.pending_call: PendingCall | None = None
        #: The transaction belongs to somebody else.
        self.is_guest = False

    @property
    def has_own_transaction(self) -> bool:
        """One is open that is this producer's to end."""
        return self.transactional_id is not None and self.state in ONGOING and not self.is_guest

    def transition(self, target: State, error: KafkaError | None = None) -> None:
        """Stand at *target* from now on, because of *error* where that is an error state.

        :raises TransactionStateError: *target* cannot follow.
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

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        operation: str,
        target: State,
        start: Callable[[TransactionalResult], None],
        *,
        after_abortable_error: bool = False,
    ) -> TransactionalResult:
        """Go to *target*, *start* what leads on from there, and give the outcome; a call made again joins the first.

        An exception that appears on the way, as a KeyboardInterrupt may, comes before the call or after it: what was
        begun is brought to its end, and *start* may be called twice for that.

        :raises TransactionStateError: *operation* is not possible now.
        :raises TransactionAbortableError: the open transaction can only be aborted.
        """
        self.check_no_other_call(operation, target)
        if self.is_guest:
            raise TransactionStateError(f"{operation} is not possible: who began the joined transaction ends it")
        if self.pending_call is not None:
            return self.pending_call.result
        if not (after_abortable_error and self.state is State.ABORTABLE_ERROR):
            self._check_no_error()
        self._check_can_follow(target)
        call = PendingCall(TransactionalResult(operation, self._clock), target)
        try:
            self._log.debug("%s -> %s", self.state.name, target.name)
            # The one step that makes the call.
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
        """Open a transaction of this producer's own."""
        self.check_no_other_call("begin_transaction")
        self._check_no_error()
        self.transition(State.IN_TRANSACTION)

    def join(self) -> None:
        """Be in a transaction that somebody else began and will end."""
        self.check_no_other_call("join_transaction")
        self._check_can_follow(State.INITIALIZING)
        # First of all: what is not this producer's own it must never end.
        self.is_guest = True
        self.transition(State.INITIALIZING)
        self.transition(State.READY)
        self.transition(State.IN_TRANSACTION)

    def fail_call(self, error: KafkaError) -> None:
        """Whoever waits for the outcome of a call will get no other than *error*."""
        if self.pending_call is not None:
            self.pending_call.result.fail(error)

    # --- checks ------------------------------------------------------------------------------------------------------

    def check_no_other_call(self, operation: str, target: State | None = None) -> None:
        """:raises TransactionStateError: another call, one that does not lead to *target*, has to be repeated first."""
        if self.transactional_id is None:
            raise TransactionStateError(f"{operation} needs a producer with a transactional.id")
        pending = self.pending_call
        if pending is not None and pending.result.is_settled:
            pending = self.pending_call = None
        if pending is not None and pending.target is not target:
            raise TransactionStateError(
                f"{operation} is not possible: {pending.result.operation} timed out or was interrupted before, and "
                "has to be called again"
            )

    def check_can_add(self, operation: str) -> None:
        """:raises TransactionStateError: no transaction is open.
        :raises TransactionAbortableError: the open one can only be aborted.
        """
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
        raise kind(f"{who} cannot go on and must be closed: {error}") from error
