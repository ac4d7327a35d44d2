"""TransactionManager: where the producer stands, which requests that takes, and what their answers change.

Calling threads begin, end and add to transactions; the sender thread takes the requests, one at a time, and brings
their answers back. One lock guards the state; nothing is waited for and nobody else's code runs while it is held. It
never sends anything itself, and it keeps no sequences: that is :mod:`idempotence`'s part, on the sender thread alone.

Without a transactional id it knows three states and one request: a producer id for idempotent writes.

Source: apache/kafka ``TransactionManager``; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_sink.client.api_versions import ApiVersions
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ConsumerGroupMetadata, Node, OffsetAndMetadata, TopicPartition
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.idempotence import IdempotenceManager, ProducerIdAndEpoch
from kafka_sink.producer.transaction_requests import (
    INIT_PRODUCER_ID_BUMP_VERSION,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CoordinatorKey,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    TransactionalRequest,
    TxnOffsetCommit,
)
from kafka_sink.producer.transaction_state import ONGOING, TRANSITIONS, Priority, State, TransactionalResult
from kafka_sink.producer.transactional_request_queue import TransactionalRequestQueue
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.find_coordinator import TRANSACTION

#: The finalized feature that says how transactions run; from level 2 on every one has its own epoch (KIP-890).
_FEATURE: Final = "transaction.version"

#: Errors of a batch after which nothing of this producer can be written any more.
_FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

#: The longest time-out there is: without transactions it means nothing.
_NO_TIMEOUT_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _PendingCall:
    """A call whose outcome its caller has not seen: it may only be repeated."""

    result: TransactionalResult
    target: State


class TransactionManager:
    """The state machine of an idempotent or transactional producer.

    :param transactional_id: None for a producer that is idempotent only.
    """

    def __init__(
        self,
        sequences: IdempotenceManager,
        *,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        retry_backoff_ms: int,
        api_versions: ApiVersions,
        clock: Clock,
        log: ContextLogger,
        option_prefix: str = "",
    ) -> None:
        self.sequences = sequences
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms if transactional_id else _NO_TIMEOUT_MS
        self._retry_backoff_ms = retry_backoff_ms
        self._api_versions = api_versions
        self._clock = clock
        self._log = log
        #: What the user writes before the names of options.
        self.option_prefix = option_prefix
        # Any thread, under the lock.
        self._lock = threading.RLock()
        self._state = State.UNINITIALIZED
        self._last_error: KafkaError | None = None
        self._requests = TransactionalRequestQueue()
        self._pending_call: _PendingCall | None = None
        self._new_partitions: set[TopicPartition] = set()
        #: Read without the lock: a partition that has come in stays until the sender thread ends the transaction.
        self.partitions_in_transaction: set[TopicPartition] = set()
        self._start_requested = False
        self._started = False
        self._needs_new_epoch = False
        self._is_version_2 = False
        #: The transaction belongs to somebody else.
        self._is_guest = False
        # Sender thread only.
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._coordinator_bumps_epochs = False
        self._initialize_at_ms = 0
        self._denied: KafkaError | None = None

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def state(self) -> State:
        return self._state

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return self.sequences.identity

    @property
    def is_version_2(self) -> bool:
        """Which transaction version holds: settled between two transactions, so that one never mixes the two."""
        return self._is_version_2

    @property
    def last_error(self) -> KafkaError | None:
        """Why it is in an error state; None otherwise."""
        return self._last_error

    @property
    def has_fatal_error(self) -> bool:
        return self._state is State.FATAL_ERROR

    @property
    def has_ongoing_transaction(self) -> bool:
        """One is open that is this producer's to end."""
        return self.is_transactional and self._state in ONGOING and not self._is_guest

    @property
    def is_completing(self) -> bool:
        return self._state in (State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)

    @property
    def is_given_up(self) -> bool:
        """What has not left for the brokers yet must not leave any more."""
        return self._state in (State.ABORTABLE_ERROR, State.ABORTING_TRANSACTION)

    def is_send_allowed(self, topic_partition: TopicPartition) -> bool:
        """Whether batches of the partition may leave: it is part of the transaction, as far as that is needed."""
        return not self.has_fatal_error and topic_partition in self.partitions_in_transaction

    # --- calls of the application ------------------------------------------------------------------------------------

    def initialize(self) -> TransactionalResult:
        """Ask for the id and epoch, which fences older producers and ends what they left open."""

        def start(result: TransactionalResult) -> None:
            self._transition(State.INITIALIZING)
            self._requests.add(InitProducerId(self, result, expects_current=False))

        return self._call("init_transactions", State.INITIALIZING, start)

    def join(self, identity: ProducerIdAndEpoch, *, is_version_2: bool) -> None:
        """Write in a transaction that somebody else began and will end."""
        with self._lock:
            self._check_no_other_call("join_transaction")
            self._transition(State.INITIALIZING)
            self._transition(State.READY)
            self._transition(State.IN_TRANSACTION)
            self.sequences.assign_producer_id(identity.producer_id, identity.epoch)
            self._is_version_2 = is_version_2
            self._is_guest = True

    def begin(self) -> None:
        """Open a transaction; the brokers hear of it with its first partition."""
        with self._lock:
            self._check_no_other_call("begin_transaction")
            self._check_no_error()
            self._transition(State.IN_TRANSACTION)

    def begin_commit(self) -> TransactionalResult:
        """Commit, once everything sent in the transaction is acknowledged."""

        def start(result: TransactionalResult) -> None:
            self._transition(State.COMMITTING_TRANSACTION)
            self._requests.add(EndTxn(self, result, commits=True))

        return self._call("commit_transaction", State.COMMITTING_TRANSACTION, start)

    def begin_abort(self) -> TransactionalResult:
        """Abort: what has not left yet never will, the rest is waited for and then void."""

        def start(result: TransactionalResult) -> None:
            self._transition(State.ABORTING_TRANSACTION)
            self._drop_additions(TransactionAbortableError("the transaction is being aborted"))
            self._requests.add(EndTxn(self, result, commits=False))

        return self._call("abort_transaction", State.ABORTING_TRANSACTION, start, after_abortable_error=True)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalResult:
        """Commit *offsets* of *group* with the transaction."""
        with self._lock:
            self._check_can_add("send_offsets_to_transaction")
            result = TransactionalResult(
                "send_offsets_to_transaction", self._clock, after_timeout="abort the transaction"
            )
            request: TransactionalRequest
            if self._is_version_2:
                self._started = True
                request = TxnOffsetCommit(self, result, offsets, group)
            else:
                request = AddOffsetsToTxn(self, result, offsets, group)
            self._requests.add(request)
            return result

    def check_can_send(self) -> None:
        """:raises TransactionStateError: no transaction is open.
        :raises TransactionAbortableError: the open one can only be aborted.
        """
        if self._state is State.IN_TRANSACTION and self._pending_call is None:
            # Once a record: no lock for the common case.
            return
        with self._lock:
            self._check_can_add("send")

    def add_partition(self, topic_partition: TopicPartition) -> None:
        """A record was staged for the partition, after :meth:`check_can_send` and within one append."""
        if topic_partition in self.partitions_in_transaction:
            return
        with self._lock:
            if self._state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                # Aborted in the meantime: what was staged is, too.
                return
            if self._is_version_2:
                self._started = True
                self.partitions_in_transaction.add(topic_partition)
            else:
                self._new_partitions.add(topic_partition)

    def staging_failed(self, error: ApiError) -> None:
        """A record of the transaction was lost before it was staged: committing the others would leave it out."""
        with self._lock:
            if self._state is State.IN_TRANSACTION:
                self._fail_transaction(error)

    def _call(
        self,
        operation: str,
        target: State,
        start: Callable[[TransactionalResult], None],
        *,
        after_abortable_error: bool = False,
    ) -> TransactionalResult:
        with self._lock:
            self._check_no_other_call(operation, target)
            if self._is_guest:
                raise TransactionStateError(f"{operation} is not possible: who began the joined transaction ends it")
            if self._pending_call is not None:
                return self._pending_call.result
            if not (after_abortable_error and self._state is State.ABORTABLE_ERROR):
                self._check_no_error()
            result = TransactionalResult(operation, self._clock)
            start(result)
            self._pending_call = _PendingCall(result, target)
            return result

    def _check_no_other_call(self, operation: str, target: State | None = None) -> None:
        if not self.is_transactional:
            raise TransactionStateError(f"{operation} needs a producer with a transactional.id")
        pending = self._pending_call
        if pending is not None and pending.result.is_settled:
            pending = self._pending_call = None
        if pending is not None and pending.target is not target:
            raise TransactionStateError(
                f"{operation} is not possible: {pending.result.operation} timed out before, and has to be called again"
            )

    def _check_can_add(self, operation: str) -> None:
        self._check_no_other_call(operation)
        self._check_no_error()
        if self._state is not State.IN_TRANSACTION:
            needed = (
                "call init_transactions once, then begin_transaction"
                if self._state in (State.UNINITIALIZED, State.INITIALIZING)
                else "call begin_transaction first"
            )
            raise TransactionStateError(
                f"{operation} is not possible outside a transaction (the producer is {self._state.value}); {needed}"
            )

    def _check_no_error(self) -> None:
        error = self._last_error
        if error is None:
            return
        who = f"the producer with transactional.id {self.transactional_id!r}"
        if self._state is State.ABORTABLE_ERROR:
            raise TransactionAbortableError(f"{who} can only abort this transaction: {error}") from error
        kind = ProducerFencedError if isinstance(error, ProducerFencedError) else TransactionStateError
        raise kind(f"{who} cannot go on and must be closed: {error}") from error

    # --- requests (sender thread) ------------------------------------------------------------------------------------

    def next_request(self, *, has_incomplete: bool) -> TransactionalRequest | None:
        """The request to send next, if there is one; :meth:`taken` tells that it is on its way.

        :param has_incomplete: batches of the transaction have no outcome yet, so that it cannot end.
        """
        with self._lock:
            if self._new_partitions:
                self._requests.add(
                    AddPartitionsToTxn(
                        self, TransactionalResult("adding partitions", self._clock), self._new_partitions
                    )
                )
                self._new_partitions = set()
            while (request := self._requests.head) is not None:
                if not isinstance(request, EndTxn):
                    return request
                if has_incomplete:
                    return None
                if self._started or self._start_requested:
                    return request
                # No broker has heard of this transaction.
                self._requests.remove(request)
                self._complete(request.result)
            return None

    def taken(self, request: TransactionalRequest) -> None:
        """*request* is about to be sent."""
        with self._lock:
            self._requests.remove(request)

    def retry(self, request: TransactionalRequest, now_ms: int, *, backoff_ms: int | None = None) -> None:
        """Send *request* again after a pause, unless it has become pointless."""
        pause_ms = self._retry_backoff_ms if backoff_ms is None else min(backoff_ms, self._retry_backoff_ms)
        request.not_before_ms = now_ms + pause_ms
        with self._lock:
            pointless = {
                State.FATAL_ERROR: True,
                State.ABORTABLE_ERROR: not isinstance(request, FindCoordinator),
                State.ABORTING_TRANSACTION: request.priority is Priority.ADD_PARTITIONS_OR_OFFSETS,
            }
            if pointless.get(self._state, False):
                request.result.fail(self._last_error or TransactionAbortableError("the transaction is being aborted"))
                return
            self._requests.add(request)

    def _drop_additions(self, error: KafkaError) -> None:
        self._new_partitions = set()
        self._requests.drop(error, lambda request: request.priority is Priority.ADD_PARTITIONS_OR_OFFSETS)

    # --- coordinators (sender thread) --------------------------------------------------------------------------------

    def coordinator(self, key: CoordinatorKey) -> Node | None:
        """The broker that coordinates *key*; None while that is not known."""
        return self._coordinators.get(key)

    def look_up(self, key: CoordinatorKey, now_ms: int, *, not_before_ms: int = 0) -> None:
        """Forget who coordinates *key*, and ask."""
        self._coordinators.pop(key, None)
        with self._lock:
            if self._requests.is_sought(key):
                return
            request = FindCoordinator(self, TransactionalResult("finding a coordinator", self._clock), key)
            request.not_before_ms = not_before_ms
            self._requests.add(request)

    def coordinator_found(self, key: CoordinatorKey, node: Node) -> None:
        self._coordinators[key] = node
        self._log.debug("%s coordinates %s", node, key[1])

    def coordinator_ready(self, key: CoordinatorKey, node: Node) -> None:
        """It is connected: what it can do is known."""
        versions = self._api_versions.get(node.connection_id)
        if key[0] == TRANSACTION and versions is not None:
            supported = versions.versions.get(ApiKey.INIT_PRODUCER_ID)
            self._coordinator_bumps_epochs = supported is not None and supported.max >= INIT_PRODUCER_ID_BUMP_VERSION

    # --- answers (sender thread) -------------------------------------------------------------------------------------

    def initialized(self, producer_id: int, epoch: int) -> None:
        """InitProducerId gave an identity."""
        with self._lock:
            if self.has_fatal_error:
                return
            self._initialize_at_ms = 0
            self.sequences.assign_producer_id(producer_id, epoch)
            self._needs_new_epoch = False
            self._settle_version()
            self._transition(State.READY)

    def initialization_failed(self, request: TransactionalRequest, error: KafkaError, now_ms: int) -> None:
        """InitProducerId was refused in a way that somebody can put right: asking again is possible."""
        with self._lock:
            self._log.warning("no producer id: %s", error)
            self._initialize_at_ms = now_ms + self._retry_backoff_ms
            self._denied = error
            self._transition(State.UNINITIALIZED)
            request.result.fail(error)

    def start_requested(self) -> None:
        """The coordinator is about to be told of the transaction, and from now on may know it."""
        self._start_requested = True

    @property
    def may_not_have_begun(self) -> bool:
        """The coordinator was told of the transaction, and nobody knows whether it heard of it."""
        return self._start_requested and not self._started

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            self.partitions_in_transaction.update(partitions)
            self._started = True

    def group_added(self, commit: TxnOffsetCommit) -> None:
        with self._lock:
            self._started = True
            if self._state is State.IN_TRANSACTION or self._state is State.COMMITTING_TRANSACTION:
                self._requests.add(commit)
            else:
                commit.result.fail(self._last_error or TransactionAbortableError("the transaction is being aborted"))

    def transaction_ended(self, result: TransactionalResult, producer_id: int, epoch: int) -> None:
        """EndTxn was carried out; from version 5 on its answer brings the identity of the next transaction."""
        with self._lock:
            if self.has_fatal_error:
                return
            # What would have begun it may still be on its way: a new epoch keeps that out of the next transaction.
            self._needs_new_epoch |= self.may_not_have_begun and self._bumps_epochs_itself
            if producer_id >= 0:
                self.sequences.assign_producer_id(producer_id, epoch)
                self._needs_new_epoch = False
            self._complete(result)

    def _complete(self, result: TransactionalResult) -> None:
        self._started = self._start_requested = False
        self._new_partitions = set()
        self.partitions_in_transaction.clear()
        self._last_error = None
        if self._settle_version():
            # Only a new epoch keeps late writes of the last transaction out of the next, which may run without a check.
            self._needs_new_epoch = True
        if self._needs_new_epoch:
            self._transition(State.INITIALIZING)
            self._requests.add(InitProducerId(self, result, expects_current=True))
        else:
            self._transition(State.READY)
            result.done()

    def _settle_version(self) -> bool:
        """Take over the cluster's transaction version; True when it went up to 2."""
        was_version_2, self._is_version_2 = self._is_version_2, self._api_versions.feature_level(_FEATURE) >= 2
        return self._is_version_2 and not was_version_2

    # --- failures ----------------------------------------------------------------------------------------------------

    @property
    def _bumps_epochs_itself(self) -> bool:
        return self._coordinator_bumps_epochs and not self._is_version_2

    def request_failed(self, request: TransactionalRequest, error: KafkaError, *, needs_new_epoch: bool) -> None:
        """The transaction of *request* can only be aborted; without a way to a new epoch not even that."""
        with self._lock:
            if needs_new_epoch and not (self._coordinator_bumps_epochs or self._is_version_2):
                request.result.fail(error)
                self.fail_for_good(error)
                return
            self._needs_new_epoch |= needs_new_epoch and self._bumps_epochs_itself
            self._fail_transaction(error)
            request.result.fail(self._last_error or error)

    def batch_failed(self, error: Exception) -> None:
        """A batch was given up (sender thread)."""
        cause = error if isinstance(error, KafkaError) else KafkaError(str(error))
        with self._lock:
            if isinstance(cause, ApiError) and cause.code in _FATAL_FOR_BATCHES:
                self.fail_for_good(cause)
            elif self.is_transactional:
                # What the brokers have of it is not certain, and sequences may have a gap.
                self._needs_new_epoch |= self._bumps_epochs_itself and self._state in ONGOING
                self._fail_transaction(cause)

    def sequences_have_gap(self, partitions: Collection[TopicPartition]) -> None:
        """Nobody knows whether batches that were given up are stored (sender thread)."""
        names = ", ".join(map(str, sorted(partitions)))
        error = KafkaError(f"batches of {names} were never acknowledged and can be sent no more")
        with self._lock:
            if self._coordinator_bumps_epochs or self._is_version_2:
                self._needs_new_epoch |= self._bumps_epochs_itself and self._state in ONGOING
                self._fail_transaction(error)
            else:
                self.fail_for_good(error)

    def _fail_transaction(self, error: KafkaError) -> None:
        if self._state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
            # It failed before, or is being aborted: nothing changes.
            self._log.debug("in state %s: %s", self._state.name, error)
            return
        self._log.info("the transaction can only be aborted: %s", error)
        if isinstance(error, TransactionAbortableError):
            failure = error
        else:
            failure = TransactionAbortableError(f"the transaction failed and has to be aborted: {error}")
            failure.__cause__ = error
        self._transition(State.ABORTABLE_ERROR, failure)
        self._new_partitions = set()
        self._requests.drop(failure, lambda request: not isinstance(request, FindCoordinator))

    def fail_for_good(self, error: KafkaError) -> None:
        """Nothing but closing is possible any more."""
        with self._lock:
            if self._state is State.FATAL_ERROR:
                return
            self._log.error("the producer cannot go on: %s", error)
            self._transition(State.FATAL_ERROR, error)
            self._requests.drop(error, lambda request: True)
            if self._pending_call is not None:
                self._pending_call.result.fail(error)

    def close(self) -> None:
        """The sender has ended: whoever waits for an outcome will never get another."""
        with self._lock:
            error = KafkaError("the producer was closed before this transactional call ended")
            self._requests.drop(error, lambda request: True)
            if self._pending_call is not None:
                self._pending_call.result.fail(error)

    def _transition(self, target: State, error: KafkaError | None = None) -> None:
        if target not in TRANSITIONS[self._state]:
            raise TransactionStateError(
                f"a producer that is {self._state.value} cannot become {target.value}; "
                "the order is init_transactions once, then begin_transaction, and commit_transaction or "
                "abort_transaction"
            )
        self._log.debug("%s -> %s", self._state.name, target.name)
        self._state = target
        self._last_error = error

    # --- idempotence without transactions (sender thread) ------------------------------------------------------------

    def ensure_producer_id(self, *, is_needed: bool, now_ms: int) -> None:
        """Begin the epoch that a gap asked for, and ask for an id where there is none.

        After a refusal that is done only when there is something to send (*is_needed*), and not at once.
        """
        if self.is_transactional:
            return
        self.sequences.bump_epoch_if_required()
        if self.sequences.identity.is_valid:
            return
        with self._lock:
            if self._state is State.READY:
                # The last epoch was used up.
                self._transition(State.UNINITIALIZED)
            was_refused = self._initialize_at_ms > 0
            if self._state is State.UNINITIALIZED and (is_needed or not was_refused):
                self._transition(State.INITIALIZING)
                request = InitProducerId(
                    self, TransactionalResult("getting a producer id", self._clock), expects_current=False
                )
                request.not_before_ms = max(self._initialize_at_ms, now_ms)
                self._requests.add(request)

    def take_denial(self) -> KafkaError | None:
        """Why the last request for an id was refused; told once."""
        denied, self._denied = self._denied, None
        return denied


def make_transactions(
    config: ProducerConfig, api_versions: ApiVersions, clock: Clock, log: ContextLogger
) -> TransactionManager:
    """The manager of an idempotent or transactional producer, with its sequences."""
    return TransactionManager(
        IdempotenceManager(log, transactional=bool(config.transactional_id)),
        transactional_id=config.transactional_id or None,
        transaction_timeout_ms=config.transaction_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        api_versions=api_versions,
        clock=clock,
        log=log,
        option_prefix=config.option_prefix,
    )
