"""TransactionManager: the requests that the producer's calls and its state require, and the effects of their answers.

Calling threads begin and end transactions and add to them. The sender thread takes the requests, one at a time, and
passes their answers back; the requests and the reading of their answers are pure values, and only the manager changes
the state. One lock guards the state; no thread waits or runs foreign code while it holds the lock. The manager never
sends anything itself. :mod:`state_machine` explains and holds the state of the producer, :class:`TransactionScope` the
partitions of the open transaction, :class:`TransactionEpochs` its version and epoch; :mod:`idempotence` holds the
sequences, on the sender thread.

Source: apache/kafka ``TransactionManager``; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kafka_sink.client.connection.api_versions import ApiVersions
from kafka_sink.client.requests.outcomes import CoordinatorKey, CoordinatorRequest, FindCoordinator, Reaction, Refused
from kafka_sink.client.requests.transactional_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    TransactionAbortableError,
    UnsupportedVersionError,
    error_for,
)
from kafka_sink.common.locks import Lock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import (
    ConsumerGroupMetadata,
    Node,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.transactions.idempotence import IdempotenceManager, TransactionEpochs
from kafka_sink.producer.transactions.request_queue import (
    FATAL_FOR_BATCHES,
    Priority,
    QueuedRequest,
    RequestQueue,
    advice,
)
from kafka_sink.producer.transactions.state_machine import (
    ONGOING,
    State,
    TransactionalResult,
    TransactionScope,
    TransactionStateMachine,
)
from kafka_sink.protocol.messages.metadata import TRANSACTION
from kafka_sink.protocol.schema import Struct

#: The longest possible time-out; without transactions it has no effect.
_NO_TIMEOUT_MS: Final = 2**31 - 1

#: Partitions are busy for a moment after a transaction, so the first retry comes sooner than after an error, ms.
_CONCURRENT_TRANSACTIONS_BACKOFF_MS: Final = 20


class TransactionManager:
    """The transaction manager of an idempotent or transactional producer."""

    def __init__(self, config: ProducerConfig, api_versions: ApiVersions, clock: Clock, log: ContextLogger) -> None:
        #: None for a producer that is only idempotent.
        self.transactional_id = config.transactional_id
        self.sequences = IdempotenceManager(log, transactional=self.is_transactional)
        self._config = config
        self._clock = clock
        self._log = log
        # Any thread, under the lock.
        self._lock = threading.RLock()
        self._machine = TransactionStateMachine(self.transactional_id, clock, log)
        self._scope = TransactionScope()
        self._epochs = TransactionEpochs(api_versions)
        self._requests = RequestQueue()
        # Sender thread only.
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._initialize_at_ms = 0
        self._denied: KafkaError | None = None

    @property
    def lock(self) -> Lock:
        """The lock that the sender thread needs in every step."""
        return self._lock

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def _name(self) -> str:
        """The transactional id of requests that only a transactional producer sends."""
        return self.transactional_id or ""

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return self.sequences.identity

    @property
    def transaction_version(self) -> TransactionVersion:
        """The version in use. It changes only between two transactions, so a transaction never mixes versions."""
        return self._epochs.version

    @property
    def last_error(self) -> KafkaError | None:
        """The cause of an error state; None otherwise."""
        return self._machine.last_error

    @property
    def has_fatal_error(self) -> bool:
        return self._machine.state is State.FATAL_ERROR

    @property
    def has_ongoing_transaction(self) -> bool:
        """Whether a transaction is open that this producer has to end."""
        return self.is_transactional and self._machine.state in ONGOING and not self._machine.is_guest

    @property
    def is_completing(self) -> bool:
        return self._machine.state in (State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)

    @property
    def is_given_up(self) -> bool:
        """Whether batches that have not been sent yet must not be sent any more."""
        return self._machine.state in (State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION)

    def is_send_allowed(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of the partition may be sent: it is part of the transaction, as far as that is required."""
        return not self.has_fatal_error and topic_partition in self._scope.partitions

    def _init_producer_id(self, expected: ProducerIdAndEpoch | None = None) -> InitProducerId:
        config = self._config
        return InitProducerId(
            self.transactional_id,
            config.transaction_timeout_ms,
            expected,
            two_phase=config.transaction_two_phase_commit_enable,
        )

    # --- calls of the application ------------------------------------------------------------------------------------

    def initialize(self) -> TransactionalResult:
        """Request the id and epoch, which fences older producers and ends their open transactions."""
        return self._call("init_transactions", State.INITIALIZING, self._init_producer_id)

    def _call(
        self,
        operation: str,
        target: State,
        make_request: Callable[[], CoordinatorRequest[Any]],
        *,
        after_abortable_error: bool = False,
    ) -> TransactionalResult:
        def start(result: TransactionalResult) -> None:
            if not self._requests.has_for(result):
                self._requests.add(QueuedRequest(make_request(), result))

        with self._lock:
            return self._machine.call(operation, target, start, after_abortable_error=after_abortable_error)

    def join(
        self, identity: ProducerIdAndEpoch, transaction_version: TransactionVersion, transactional_id: str | None = None
    ) -> None:
        """Join a transaction that another producer began and will end, under *transactional_id* or this producer's own;
        no batch of an earlier one is without an outcome."""
        with self._lock:
            self._machine.join()
            self._scope.clear()
            self.transactional_id = self._machine.transactional_id = transactional_id or self.transactional_id
            self.sequences.assign_producer_id(identity.producer_id, identity.epoch)
            self._epochs.version = transaction_version

    def begin(self) -> None:
        """Begin a transaction; the brokers learn of it with its first partition."""
        with self._lock:
            self._machine.begin()

    def begin_commit(self) -> TransactionalResult:
        """Commit the transaction when all its batches are acknowledged."""
        return self._call(
            "commit_transaction",
            State.COMMITTING_TRANSACTION,
            lambda: EndTxn(self._name, self.identity, self.transaction_version, commits=True),
        )

    def begin_abort(self) -> TransactionalResult:
        """Abort the transaction: batches that were not sent yet are dropped, and batches in flight are awaited."""

        def end_txn() -> EndTxn:
            self._scope.wanted.clear()
            self._requests.drop(
                TransactionAbortableError("the transaction is being aborted"),
                lambda queued: queued.priority is Priority.ADD_PARTITIONS_OR_OFFSETS,
            )
            return EndTxn(self._name, self.identity, self.transaction_version, commits=False)

        return self._call("abort_transaction", State.ABORTING_TRANSACTION, end_txn, after_abortable_error=True)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalResult:
        """Commit *offsets* of *group* with the transaction."""
        with self._lock:
            self._machine.check_can_add("send_offsets_to_transaction")
            result = TransactionalResult(
                "send_offsets_to_transaction", self._clock, after_timeout="abort the transaction"
            )
            commit = TxnOffsetCommit(self._name, self.identity, self.transaction_version, group, offsets)
            if self.transaction_version is TransactionVersion.V2:
                self._scope.is_started = True
                self._requests.add(QueuedRequest(commit, result))
            else:
                added = AddOffsetsToTxn(self._name, self.identity, group.group_id)
                self._requests.add(QueuedRequest(added, result, then=commit))
            return result

    def check_can_send(self) -> None:
        """:raises TransactionStateError: if no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted."""
        machine = self._machine
        if machine.state is State.IN_TRANSACTION and machine.pending_call is None:
            # Called once per record, so the common case takes no lock.
            return
        with self._lock:
            machine.check_can_add("send")

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Add the partition of a staged record, after :meth:`check_can_send` and within the same append."""
        if topic_partition in self._scope.partitions:
            return
        with self._lock:
            if self._machine.state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                # The transaction was aborted since the check, and the staged record with it.
                return
            if self.transaction_version is TransactionVersion.V2:
                self._scope.add((topic_partition,))
            else:
                self._scope.wanted.add(topic_partition)

    def staging_failed(self, error: KafkaError) -> None:
        """Fail the transaction because a record could not be staged: a commit would leave that record out."""
        with self._lock:
            if self._machine.state is State.IN_TRANSACTION:
                self._fail_transaction(error)

    # --- requests (sender thread) ------------------------------------------------------------------------------------

    def next_request(self, *, has_incomplete: bool) -> QueuedRequest | None:
        """The request to send next, if any; the caller reports with :meth:`taken` that it is being sent.

        :param has_incomplete: whether batches of the transaction have no outcome yet, so that it cannot end.
        """
        with self._lock:
            if self._scope.wanted:
                request = AddPartitionsToTxn(self._name, self.identity, frozenset(self._scope.wanted))
                self._scope.wanted.clear()
                self._requests.add(QueuedRequest(request, TransactionalResult("adding partitions", self._clock)))
            while (queued := self._requests.head) is not None:
                if not isinstance(queued.request, EndTxn):
                    return queued
                if has_incomplete:
                    return None
                if self._scope.is_started or self._scope.is_start_requested:
                    return queued
                # No broker knows this transaction.
                self._requests.remove(queued)
                self._complete(queued.result)
            return None

    def taken(self, queued: QueuedRequest) -> None:
        """Remove *queued* from the queue, because it is about to be sent."""
        with self._lock:
            self._requests.remove(queued)
            if isinstance(queued.request, AddPartitionsToTxn | AddOffsetsToTxn):
                self._scope.is_start_requested = True

    def _retry(self, queued: QueuedRequest, now_ms: int, backoff_ms: int) -> None:
        """Send *queued* again after a pause, unless the state has made it pointless."""
        queued.not_before_ms = now_ms + backoff_ms
        with self._lock:
            pointless = {
                State.FATAL_ERROR: True,
                State.ABORTABLE_ERROR: not isinstance(queued.request, FindCoordinator),
                State.ABORTING_TRANSACTION: queued.priority is Priority.ADD_PARTITIONS_OR_OFFSETS,
            }
            if pointless.get(self._machine.state, False):
                queued.result.fail(self.last_error or TransactionAbortableError("the transaction is being aborted"))
                return
            self._requests.add(queued)

    # --- coordinators (sender thread) --------------------------------------------------------------------------------

    def coordinator(self, key: CoordinatorKey) -> Node | None:
        """The coordinator of *key*; None if it is unknown."""
        return self._coordinators.get(key)

    def look_up(self, key: CoordinatorKey, now_ms: int, *, not_before_ms: int = 0) -> None:
        """Forget the coordinator of *key*, and look it up."""
        self._coordinators.pop(key, None)
        with self._lock:
            if self._requests.is_sought(key):
                return
            key_type, name = key
            result = TransactionalResult("finding a coordinator", self._clock)
            request = FindCoordinator(key_type, (name,))
            self._requests.add(QueuedRequest(request, result, not_before_ms=not_before_ms))

    def coordinator_ready(self, key: CoordinatorKey, node: Node) -> None:
        """Read the capabilities of a coordinator that is connected."""
        if key[0] == TRANSACTION:
            self._epochs.coordinator_ready(node)

    # --- outcomes (sender thread) ------------------------------------------------------------------------------------

    def answered(self, queued: QueuedRequest, body: Struct, now_ms: int) -> None:
        """Process the outcome of *queued*, which was answered with *body*."""
        outcome = queued.attempts.take(body)
        if isinstance(outcome, Refused):
            self._refused(queued, outcome, now_ms)
        else:
            self._succeeded(queued, outcome.value)

    def unsupported(self, queued: QueuedRequest, mismatch: UnsupportedVersionError, now_ms: int) -> None:
        """Handle a *queued* request that was not sent, because client and broker have no common version of it."""
        request = queued.request
        detail = request.failure if isinstance(request, InitProducerId) else str(mismatch)
        self._refused(queued, queued.attempts.refuse(ErrorCode.UNSUPPORTED_VERSION, detail), now_ms)

    def lost(self, queued: QueuedRequest, now_ms: int) -> None:
        """Handle a lost connection: it is unknown whether the broker processed *queued*."""
        if queued.request.coordinator is not None:
            self.look_up(queued.request.coordinator, now_ms)
        self._retry(queued, now_ms, self._config.retry_backoff_ms)

    def _succeeded(self, queued: QueuedRequest, value: Any) -> None:
        """Change the state after the success of *queued*; *value* is the value of its outcome."""
        request, result = queued.request, queued.result
        with self._lock:
            if isinstance(request, EndTxn):
                # This may require a new epoch before the result is complete.
                self._transaction_ended(result, value)
                return
            if isinstance(request, AddOffsetsToTxn):
                self._scope.is_started = True
                if queued.then is None:
                    return
                if self._machine.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                    self._requests.add(QueuedRequest(queued.then, result))
                else:
                    result.fail(self.last_error or TransactionAbortableError("the transaction is being aborted"))
                return
            if isinstance(request, FindCoordinator):
                self._coordinators.update(value)
                for (_, name), node in value.items():
                    self._log.debug("%s coordinates %s", node, name)
            elif isinstance(request, InitProducerId):
                self._initialized(value)
            elif isinstance(request, AddPartitionsToTxn):
                self._scope.add(request.partitions)
            result.done()

    def _refused(self, queued: QueuedRequest, refused: Refused, now_ms: int) -> None:
        """Apply the reaction to an error: send the request again, or change the state."""
        request, result, reaction = queued.request, queued.result, refused.reaction
        if isinstance(request, EndTxn) and not request.commits:
            if refused.code is ErrorCode.INVALID_TXN_STATE and self._scope.may_not_have_begun:
                self._succeeded(queued, ProducerIdAndEpoch())
                return
            if reaction in (Reaction.ABORT, Reaction.BUMP):
                # The transaction is being aborted already, so there is no milder reaction.
                self._fail_call_for_good(
                    result, KafkaError(f"the transaction could not be aborted either: {refused.code.name}")
                )
                return
        detail = refused.detail + advice(request, refused.code, self._config.option_prefix)
        error = error_for(refused.code, detail)
        result.last_answer = error
        if reaction is Reaction.RETRY:
            self._retry(queued, now_ms, self._backoff_ms(request, refused.code))
        elif reaction is Reaction.LOOK_UP:
            self.lost(queued, now_ms)
        elif reaction in (Reaction.ABORT, Reaction.BUMP):
            self.request_failed(result, error, needs_new_epoch=reaction is Reaction.BUMP)
        elif reaction is Reaction.UNINITIALIZE:
            self._initialization_failed(result, error, now_ms)
        elif reaction is Reaction.FENCED:
            self._fail_call_for_good(result, error_for(ErrorCode.PRODUCER_FENCED, detail))
        else:
            self._fail_call_for_good(result, error)

    def _backoff_ms(self, request: CoordinatorRequest[Any], code: ErrorCode) -> int:
        """The pause before the next attempt. The first partitions of a transaction are requested sooner, because those
        of the transaction before are busy only for a moment."""
        is_first = isinstance(request, AddPartitionsToTxn) and not self._scope.partitions
        if is_first and code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return min(_CONCURRENT_TRANSACTIONS_BACKOFF_MS, self._config.retry_backoff_ms)
        return self._config.retry_backoff_ms

    def _initialized(self, identity: ProducerIdAndEpoch) -> None:
        if self.has_fatal_error:
            return
        self._initialize_at_ms = 0
        self.sequences.assign_producer_id(*identity)
        self._epochs.is_new_one_needed = False
        self._epochs.settle_version()
        self._machine.transition(State.READY)

    def _initialization_failed(self, result: TransactionalResult, error: KafkaError, now_ms: int) -> None:
        """Record that InitProducerId was refused for a reason that can be fixed, so the request may be repeated."""
        with self._lock:
            self._log.warning("no producer id: %s", error)
            self._initialize_at_ms = now_ms + self._config.retry_backoff_ms
            self._denied = error
            self._machine.transition(State.UNINITIALIZED)
            result.fail(error)

    def _transaction_ended(self, result: TransactionalResult, following: ProducerIdAndEpoch) -> None:
        """Complete an EndTxn; in version 2 its answer contains *following*, the identity of the next transaction."""
        if self.has_fatal_error:
            return
        if self._scope.may_not_have_begun:
            # The request that would have begun the transaction may still be in flight: a new epoch excludes it from
            # the next one.
            self._epochs.need_new_one()
        if following.is_valid:
            self.sequences.assign_producer_id(*following)
            self._epochs.is_new_one_needed = False
        self._complete(result)

    def _complete(self, result: TransactionalResult) -> None:
        self._scope.clear()
        # Only a new epoch excludes late writes of the last transaction from the next one, whose writes may not be
        # verified.
        self._epochs.is_new_one_needed |= self._epochs.settle_version()
        if self._epochs.is_new_one_needed:
            self._machine.transition(State.INITIALIZING)
            self._requests.add(QueuedRequest(self._init_producer_id(self.identity), result))
        else:
            self._machine.transition(State.READY)
            result.done()

    # --- failures ----------------------------------------------------------------------------------------------------

    def request_failed(self, result: TransactionalResult, error: KafkaError, *, needs_new_epoch: bool = False) -> None:
        """Move the transaction to an abortable error, or to a fatal error if it requires an unavailable new epoch."""
        with self._lock:
            if needs_new_epoch:
                if not self._epochs.can_be_renewed:
                    self._fail_call_for_good(result, error)
                    return
                self._epochs.need_new_one()
            self._fail_transaction(error)
            result.fail(self.last_error or error)

    def _fail_call_for_good(self, result: TransactionalResult, error: KafkaError) -> None:
        result.fail(error)
        self.fail_for_good(error)

    def batch_failed(self, error: Exception) -> None:
        """Handle the failure of a batch (sender thread)."""
        cause = error if isinstance(error, KafkaError) else KafkaError(str(error))
        with self._lock:
            if isinstance(cause, ApiError) and cause.code in FATAL_FOR_BATCHES:
                self.fail_for_good(cause)
            elif self.is_transactional:
                # It is uncertain what the brokers have stored of the batch, and the sequences may have a gap.
                self._fail_with_gap(cause)

    def sequences_have_gap(self, partitions: Collection[TopicPartition]) -> None:
        """Fail the transaction, because failed batches of *partitions* may or may not be stored (sender thread)."""
        names = ", ".join(map(str, sorted(partitions)))
        error = KafkaError(f"batches of {names} were never acknowledged and can no longer be sent")
        with self._lock:
            if self._epochs.can_be_renewed:
                self._fail_with_gap(error)
            else:
                self.fail_for_good(error)

    def _fail_with_gap(self, error: KafkaError) -> None:
        if self._machine.state in ONGOING:
            self._epochs.need_new_one()
        self._fail_transaction(error)

    def _fail_transaction(self, error: KafkaError) -> None:
        if self._machine.state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            # The transaction failed before, or is being aborted: nothing changes.
            self._log.debug("in state %s: %s", self._machine.state.name, error)
            return
        self._log.info("the transaction can only be aborted: %s", error)
        if isinstance(error, TransactionAbortableError):
            failure = error
        else:
            failure = TransactionAbortableError(f"the transaction failed and has to be aborted: {error}")
            failure.__cause__ = error
        self._machine.transition(State.ABORTABLE_ERROR, failure)
        self._scope.wanted.clear()
        self._requests.drop(failure, lambda queued: not isinstance(queued.request, FindCoordinator))

    def fail_for_good(self, error: KafkaError) -> None:
        """Move to a fatal error, after which the producer can only be closed."""
        with self._lock:
            if self.has_fatal_error:
                return
            self._log.error("the producer cannot continue: %s", error)
            self._machine.transition(State.FATAL_ERROR, error)
            self._requests.drop(error, lambda queued: True)
            self._machine.fail_call(error)

    def close(self, in_flight: QueuedRequest | None) -> None:
        """Fail all outstanding calls and requests, also that *in_flight*, because the sender has ended."""
        with self._lock:
            error = KafkaError("the producer was closed before this transactional call ended")
            if in_flight is not None:
                in_flight.result.fail(error)
            self._requests.drop(error, lambda queued: True)
            self._machine.fail_call(error)

    # --- idempotence without transactions (sender thread) ------------------------------------------------------------

    def ensure_producer_id(self, *, is_needed: bool, now_ms: int) -> None:
        """Start a new epoch if a gap requires it, and request an id if there is none.

        After a refusal the request is only repeated if there is something to send (*is_needed*), and after a pause.
        """
        if self.is_transactional:
            return
        self.sequences.bump_epoch_if_required()
        if self.sequences.identity.is_valid:
            return
        with self._lock:
            if self._machine.state is State.READY:
                # The epochs of the last id are used up.
                self._machine.transition(State.UNINITIALIZED)
            was_refused = self._initialize_at_ms > 0
            if self._machine.state is State.UNINITIALIZED and (is_needed or not was_refused):
                self._machine.transition(State.INITIALIZING)
                result = TransactionalResult("getting a producer id", self._clock)
                at_ms = max(self._initialize_at_ms, now_ms)
                self._requests.add(QueuedRequest(InitProducerId(None, _NO_TIMEOUT_MS), result, not_before_ms=at_ms))

    def take_denial(self) -> KafkaError | None:
        """The error of the last refused request for an id; returned once."""
        denied, self._denied = self._denied, None
        return denied
