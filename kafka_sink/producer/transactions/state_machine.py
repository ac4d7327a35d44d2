"""TransactionStateMachine: the state of a transactional producer, and the calls that it allows the application.

Belongs to the transaction manager, which holds its lock at every call; the plain attributes may be read without the
lock. It depends neither on requests nor on brokers: the manager reports the outcomes of calls, and the machine never
waits.

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

    @property
    def has_own_transaction(self) -> bool:
        """Whether a transaction is open that this producer has to end."""
        return self.transactional_id is not None and self.state in ONGOING and not self.is_guest

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

    # --- calls -------------------------------------------------------------------------------------------------------

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

        After an exception on the way, for example a KeyboardInterrupt, either nothing has happened or the call is
        complete: what was begun is completed, and *start* may be called twice for that.

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
        """Enter a transaction that another producer began and will end, as the first one or after another such one."""
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

    # --- checks ------------------------------------------------------------------------------------------------------

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
        :raises TransactionAbortableError: if the open transaction can only be aborted.
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
        raise kind(f"{who} cannot continue and must be closed: {error}") from error
