"""TransactionManager: the requests that the producer's calls and its state require, and the effects of their answers.

Calling threads begin and end transactions and add to them. The sender thread takes the requests, one at a time, and
passes their answers back. One lock guards the state; no thread waits or runs foreign code while it holds the lock. The
manager never sends anything itself. :mod:`state_machine` holds the state of the producer, :class:`TransactionScope` the
partitions of the open transaction, :mod:`epochs` its version and epoch; :mod:`idempotence` holds the sequences, on the
sender thread.

Without a transactional id only three states and one request are used: InitProducerId, for idempotent writes.

Source: apache/kafka ``TransactionManager``; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Final

from kafka_sink.client.api_versions import ApiVersions
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, KafkaError, TransactionAbortableError
from kafka_sink.common.locks import Lock, leaves
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ConsumerGroupMetadata, Node, OffsetAndMetadata, TopicPartition
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.transactions.epochs import TransactionEpochs
from kafka_sink.producer.transactions.idempotence import IdempotenceManager, ProducerIdAndEpoch
from kafka_sink.producer.transactions.reactions import FATAL_FOR_BATCHES
from kafka_sink.producer.transactions.requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    CoordinatorKey,
    EndTxn,
    FindCoordinator,
    InitProducerId,
    TransactionalRequest,
    TransactionalRequestQueue,
    TxnOffsetCommit,
)
from kafka_sink.producer.transactions.state import ONGOING, Priority, State, TransactionalResult, TransactionScope
from kafka_sink.producer.transactions.state_machine import TransactionStateMachine
from kafka_sink.protocol.messages.find_coordinator import TRANSACTION

#: The longest possible time-out; without transactions it has no effect.
_NO_TIMEOUT_MS: Final = 2**31 - 1


class TransactionManager:
    """The transaction manager of an idempotent or transactional producer.

    :param transactional_id: None for a producer that is only idempotent.
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
        self._clock = clock
        self._log = log
        #: The prefix that the user writes before the names of options.
        self.option_prefix = option_prefix
        # Any thread, under the lock.
        self._lock = threading.RLock()
        self._machine = TransactionStateMachine(transactional_id, clock, log)
        self._scope = TransactionScope()
        self._epochs = TransactionEpochs(api_versions)
        self._requests = TransactionalRequestQueue()
        # Sender thread only.
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._initialize_at_ms = 0
        self._denied: KafkaError | None = None

    @property
    def lock(self) -> Lock:
        """The lock that the sender thread needs in every step."""
        return self._lock

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def is_transactional(self) -> bool:
        return self.transactional_id is not None

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return self.sequences.identity

    @property
    def is_version_2(self) -> bool:
        """Whether transaction version 2 is used. It changes only between two transactions, so a transaction never mixes
        versions.
        """
        return self._epochs.is_version_2

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
        return self._machine.has_own_transaction

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

    # --- calls of the application ------------------------------------------------------------------------------------

    @leaves("_lock")
    def initialize(self) -> TransactionalResult:
        """Request the id and epoch, which fences older producers and ends their open transactions."""

        def start(result: TransactionalResult) -> None:
            if not self._requests.has_for(result):
                self._requests.add(InitProducerId(self, result, expects_current=False))

        with self._lock:
            return self._machine.call("init_transactions", State.INITIALIZING, start)

    @leaves("_lock")
    def join(self, identity: ProducerIdAndEpoch, *, is_version_2: bool) -> None:
        """Join a transaction that another producer began and will end."""
        with self._lock:
            self._machine.join()
            self.sequences.assign_producer_id(identity.producer_id, identity.epoch)
            self._epochs.join(is_version_2=is_version_2)

    @leaves("_lock")
    def begin(self) -> None:
        """Begin a transaction; the brokers learn of it with its first partition."""
        with self._lock:
            self._machine.begin()

    @leaves("_lock")
    def begin_commit(self) -> TransactionalResult:
        """Commit the transaction when all its batches are acknowledged."""

        def start(result: TransactionalResult) -> None:
            if not self._requests.has_for(result):
                self._requests.add(EndTxn(self, result, commits=True))

        with self._lock:
            return self._machine.call("commit_transaction", State.COMMITTING_TRANSACTION, start)

    @leaves("_lock")
    def begin_abort(self) -> TransactionalResult:
        """Abort the transaction: batches that were not sent yet are dropped, and batches in flight are awaited."""

        def start(result: TransactionalResult) -> None:
            self._scope.drop_wanted()
            self._requests.drop(
                TransactionAbortableError("the transaction is being aborted"),
                lambda request: request.priority is Priority.ADD_PARTITIONS_OR_OFFSETS,
            )
            if not self._requests.has_for(result):
                self._requests.add(EndTxn(self, result, commits=False))

        with self._lock:
            return self._machine.call(
                "abort_transaction", State.ABORTING_TRANSACTION, start, after_abortable_error=True
            )

    @leaves("_lock")
    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionalResult:
        """Commit *offsets* of *group* with the transaction."""
        with self._lock:
            self._machine.check_can_add("send_offsets_to_transaction")
            result = TransactionalResult(
                "send_offsets_to_transaction", self._clock, after_timeout="abort the transaction"
            )
            request: TransactionalRequest
            if self._epochs.is_version_2:
                self._scope.started()
                request = TxnOffsetCommit(self, result, offsets, group)
            else:
                request = AddOffsetsToTxn(self, result, offsets, group)
            self._requests.add(request)
            return result

    def check_can_send(self) -> None:
        """:raises TransactionStateError: if no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """
        machine = self._machine
        if machine.state is State.IN_TRANSACTION and machine.pending_call is None:
            # Called once per record, so the common case takes no lock.
            return
        with self._lock:
            machine.check_can_add("send")

    @leaves("_lock")
    def add_partition(self, topic_partition: TopicPartition) -> None:
        """Add the partition of a staged record, after :meth:`check_can_send` and within the same append."""
        if topic_partition in self._scope.partitions:
            return
        with self._lock:
            if self._machine.state not in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                # The transaction was aborted meanwhile, and the staged record with it.
                return
            if self._epochs.is_version_2:
                self._scope.add((topic_partition,))
            else:
                self._scope.want(topic_partition)

    @leaves("_lock")
    def staging_failed(self, error: KafkaError) -> None:
        """Fail the transaction because a record could not be staged: a commit would leave that record out."""
        with self._lock:
            if self._machine.state is State.IN_TRANSACTION:
                self._fail_transaction(error)

    # --- requests (sender thread) ------------------------------------------------------------------------------------

    def next_request(self, *, has_incomplete: bool) -> TransactionalRequest | None:
        """The request to send next, if any; the caller reports with :meth:`taken` that it is being sent.

        :param has_incomplete: whether batches of the transaction have no outcome yet, so that it cannot end.
        """
        with self._lock:
            if wanted := self._scope.take_wanted():
                result = TransactionalResult("adding partitions", self._clock)
                self._requests.add(AddPartitionsToTxn(self, result, wanted))
            while (request := self._requests.head) is not None:
                if not isinstance(request, EndTxn):
                    return request
                if has_incomplete:
                    return None
                if self._scope.may_be_known:
                    return request
                # No broker knows this transaction.
                self._requests.remove(request)
                self._complete(request.result)
            return None

    def taken(self, request: TransactionalRequest) -> None:
        """Remove *request* from the queue, because it is about to be sent."""
        with self._lock:
            self._requests.remove(request)

    def retry(self, request: TransactionalRequest, now_ms: int, *, backoff_ms: int | None = None) -> None:
        """Send *request* again after a pause, unless the state has made it pointless."""
        pause_ms = self._retry_backoff_ms if backoff_ms is None else min(backoff_ms, self._retry_backoff_ms)
        request.not_before_ms = now_ms + pause_ms
        with self._lock:
            pointless = {
                State.FATAL_ERROR: True,
                State.ABORTABLE_ERROR: not isinstance(request, FindCoordinator),
                State.ABORTING_TRANSACTION: request.priority is Priority.ADD_PARTITIONS_OR_OFFSETS,
            }
            if pointless.get(self._machine.state, False):
                request.result.fail(self.last_error or TransactionAbortableError("the transaction is being aborted"))
                return
            self._requests.add(request)

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
            request = FindCoordinator(self, TransactionalResult("finding a coordinator", self._clock), key)
            request.not_before_ms = not_before_ms
            self._requests.add(request)

    def coordinator_found(self, key: CoordinatorKey, node: Node) -> None:
        self._coordinators[key] = node
        self._log.debug("%s coordinates %s", node, key[1])

    def coordinator_ready(self, key: CoordinatorKey, node: Node) -> None:
        """Read the capabilities of a coordinator that is connected."""
        if key[0] == TRANSACTION:
            self._epochs.coordinator_ready(node)

    # --- answers (sender thread) -------------------------------------------------------------------------------------

    def initialized(self, producer_id: int, epoch: int) -> None:
        """Adopt the identity of an InitProducerId answer."""
        with self._lock:
            if self.has_fatal_error:
                return
            self._initialize_at_ms = 0
            self.sequences.assign_producer_id(producer_id, epoch)
            self._epochs.initialized()
            self._machine.transition(State.READY)

    def initialization_failed(self, request: TransactionalRequest, error: KafkaError, now_ms: int) -> None:
        """Record that InitProducerId was refused for a reason that can be fixed, so the request may be repeated."""
        with self._lock:
            self._log.warning("no producer id: %s", error)
            self._initialize_at_ms = now_ms + self._retry_backoff_ms
            self._denied = error
            self._machine.transition(State.UNINITIALIZED)
            request.result.fail(error)

    @property
    def has_partitions(self) -> bool:
        """Whether the coordinator has added partitions to the transaction."""
        return bool(self._scope.partitions)

    def start_requested(self) -> None:
        """Record that the coordinator may know the transaction from now on, because a request is about to be sent."""
        self._scope.start_requested()

    @property
    def may_not_have_begun(self) -> bool:
        """Whether the transaction was sent to the coordinator without a confirmation that it has begun."""
        return self._scope.may_not_have_begun

    def partitions_added(self, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            self._scope.add(partitions)

    def group_added(self, commit: TxnOffsetCommit) -> None:
        with self._lock:
            self._scope.started()
            if self._machine.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                self._requests.add(commit)
            else:
                commit.result.fail(self.last_error or TransactionAbortableError("the transaction is being aborted"))

    def transaction_ended(self, result: TransactionalResult, producer_id: int, epoch: int) -> None:
        """Complete an EndTxn; from version 5 on, its answer contains the identity of the next transaction."""
        with self._lock:
            if self.has_fatal_error:
                return
            if self._scope.may_not_have_begun:
                # The request that would have begun the transaction may still be in flight: a new epoch excludes it from
                # the next one.
                self._epochs.need_new_one()
            if producer_id >= 0:
                self.sequences.assign_producer_id(producer_id, epoch)
                self._epochs.renewed()
            self._complete(result)

    def _complete(self, result: TransactionalResult) -> None:
        self._scope.clear()
        if self._epochs.transaction_ended():
            self._machine.transition(State.INITIALIZING)
            self._requests.add(InitProducerId(self, result, expects_current=True))
        else:
            self._machine.transition(State.READY)
            result.done()

    # --- failures ----------------------------------------------------------------------------------------------------

    def request_failed(self, request: TransactionalRequest, error: KafkaError, *, needs_new_epoch: bool) -> None:
        """Move the transaction of *request* to an abortable error, or to a fatal error if it requires an unavailable
        new epoch.
        """
        with self._lock:
            if needs_new_epoch:
                if not self._epochs.can_be_renewed:
                    request.result.fail(error)
                    self.fail_for_good(error)
                    return
                self._epochs.need_new_one()
            self._fail_transaction(error)
            request.result.fail(self.last_error or error)

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
        error = KafkaError(f"batches of {names} were never acknowledged and can be sent no more")
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
        self._scope.drop_wanted()
        self._requests.drop(failure, lambda request: not isinstance(request, FindCoordinator))

    def fail_for_good(self, error: KafkaError) -> None:
        """Move to a fatal error, after which the producer can only be closed."""
        with self._lock:
            if self.has_fatal_error:
                return
            self._log.error("the producer cannot go on: %s", error)
            self._machine.transition(State.FATAL_ERROR, error)
            self._requests.drop(error, lambda request: True)
            self._machine.fail_call(error)

    def close(self) -> None:
        """Fail all outstanding calls and requests, because the sender has ended."""
        with self._lock:
            error = KafkaError("the producer was closed before this transactional call ended")
            self._requests.drop(error, lambda request: True)
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
                request = InitProducerId(
                    self, TransactionalResult("getting a producer id", self._clock), expects_current=False
                )
                request.not_before_ms = max(self._initialize_at_ms, now_ms)
                self._requests.add(request)

    def take_denial(self) -> KafkaError | None:
        """The error of the last refused request for an id; returned once."""
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
