"""The transaction coordinator: the producers of transactional ids, the states of transactions, and their completion.

There is one object for all nodes. Request handlers call it, and the timer's thread for work without a request:
timed-out transactions, markers to retry, and expired transactional ids. A lock guards the states; a state is in the
file before it is visible, so a kill at any time does not change an acknowledged result. The lock must not be held while
markers are written, and a decision must never be revoked: from Prepare on, only the markers are missing.

Source: KIP-98, KIP-360, KIP-664, KIP-890; apache/kafka ``TransactionCoordinator`` and ``TransactionStateManager``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from dataclasses import replace
from itertools import islice
from typing import Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.coordinator import transaction_state as rules
from kafka_sink.broker.coordinator.store import TransactionStore
from kafka_sink.broker.coordinator.transaction_markers import OFFSETS_TOPIC, TransactionMarkers, offsets_partition
from kafka_sink.broker.coordinator.transaction_state import NO_PRODUCER_ID, TransactionMetadata, TransactionState
from kafka_sink.broker.delays import Timer
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_TIMEOUT_MS, ProducerIdAndEpoch, TopicPartition, TransactionVersion

#: Delay before markers that could not be written are retried.
MARKER_RETRY_MS: Final = 100
#: Maximum number of items per run on the timer's thread, so that other timers are not delayed.
_MOST_AT_A_TIME: Final = 50
#: First versions of TxnOffsetCommit and Produce that add their partition to the transaction implicitly (KIP-890).
_FIRST_OFFSET_COMMIT_THAT_ADDS: Final = 5
FIRST_PRODUCE_THAT_ADDS: Final = 12
#: First versions whose clients support TRANSACTION_ABORTABLE.
_FIRST_OFFSET_COMMIT_WITH_ABORTABLE: Final = 4
_FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
_NO_GROUPS: Final[frozenset[str]] = frozenset()


def offsets_participant(group_id: str) -> TopicPartition:
    """The participant of a transaction in which offsets of *group_id* are committed."""
    return TopicPartition(OFFSETS_TOPIC, offsets_partition(group_id))


class TransactionCoordinator:
    """The transactional ids of a cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        store: TransactionStore,
        markers: TransactionMarkers,
        allocate_producer_id: Callable[[], int],
        clock: Clock,
        timer: Timer,
    ) -> None:
        """Load the stored state. :raises ApiError: COORDINATOR_NOT_AVAILABLE if the file cannot be read."""
        self._config = config
        self._clock = clock
        self._timer = timer
        self._store = store
        self._markers = markers
        self._allocate_producer_id = allocate_producer_id
        self._log = ContextLogger(__name__, "transaction coordinator")
        self._lock = threading.RLock()
        # Guarded by the lock.
        self._ids = {metadata.transactional_id: metadata for metadata in self._store.load()}
        self._ongoing = {each.transactional_id for each in self._ids.values() if each.state == TransactionState.ONGOING}
        # In the order in which their markers are written; the value is not used.
        self._deciding = {each.transactional_id: True for each in self._ids.values() if each.state.is_deciding}
        self._being_written: set[str] = set()
        self._retry_is_due = False

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, *, two_phase: bool = False
    ) -> ProducerIdAndEpoch:
        """Assign the transactional id to a producer, fencing the previous one. With *two_phase*, its transactions never
        time out, whatever *timeout_ms* is.

        :raises ApiError: INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED; CONCURRENT_TRANSACTIONS while
            an open transaction of the previous producer is aborted; COORDINATOR_NOT_AVAILABLE.
        """
        if two_phase:
            timeout_ms = NO_TIMEOUT_MS
        elif not 1 <= timeout_ms <= self._config.transaction_max_timeout_ms:
            text = (
                f"a transaction time-out must be between 1 and {self._config.transaction_max_timeout_ms} ms, got "
                f"{timeout_ms}"
            )
            raise ApiError(text, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        now_ms = self._clock.wall_ms()
        with self._lock:
            metadata = self._ids.get(transactional_id)
            if metadata is None:
                metadata = TransactionMetadata(transactional_id, self._new_producer_id(), timeout_ms, now_ms)
            version = self._config.transaction_version
            changed = rules.init_producer_id(metadata, timeout_ms, expected, version, self._new_producer_id, now_ms)
            self._put(changed)
        if changed.state.is_deciding:
            self.write_markers(transactional_id)
            text = f"transactional id {transactional_id!r}: the open transaction is aborted first"
            raise ApiError(text, ErrorCode.CONCURRENT_TRANSACTIONS)
        return ProducerIdAndEpoch(changed.producer_id, changed.producer_epoch)

    def _new_producer_id(self) -> int:
        try:
            return self._allocate_producer_id()
        except OSError as error:
            text = f"cannot reserve producer ids: {error}"
            raise ApiError(text, ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Set[TopicPartition],
        version: int,
        *,
        groups: Set[str] = _NO_GROUPS,
    ) -> None:
        """Add partitions and the offsets of groups to the transaction; the first addition opens it.

        :raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
            COORDINATOR_NOT_AVAILABLE.
        """
        added = partitions | {offsets_participant(group) for group in groups}
        with self._lock:
            metadata = self._known(transactional_id)
            changed = rules.add_partitions(metadata, producer, added, groups, version, self._clock.wall_ms())
            if changed is not metadata:
                self._put(changed)

    def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, version: int, *, committed: bool
    ) -> ProducerIdAndEpoch:
        """Decide the outcome; returns the producer id and epoch for the next transaction. After answering, the caller
        calls :meth:`write_markers`.

        :raises ApiError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
            INVALID_TXN_STATE, COORDINATOR_NOT_AVAILABLE.
        """
        now_ms = self._clock.wall_ms()
        with self._lock:
            metadata = self._known(transactional_id)
            changed = rules.end_transaction(
                metadata, producer, version, self._new_producer_id, now_ms, committed=committed
            )
            if changed is not metadata:
                self._put(changed)
        if changed.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(changed.next_producer_id, 0)
        return ProducerIdAndEpoch(changed.producer_id, changed.producer_epoch)

    def _known(self, transactional_id: str) -> TransactionMetadata:
        metadata = self._ids.get(transactional_id)
        if metadata is None:
            text = f"transactional id {transactional_id!r} does not exist"
            raise ApiError(text, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Set[TopicPartition]
    ) -> Set[TopicPartition]:
        """Returns those of *partitions* that are not part of the open transaction.

        :raises ApiError: as :meth:`add_partitions`.
        """
        with self._lock:
            return rules.missing_partitions(self._known(transactional_id), producer, partitions)

    def admit_produce(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition, request_version: int
    ) -> None:
        """Return if a batch may open the transaction in *partition*; from Produce 12 on the partition is added
        implicitly.

        :raises ApiError: INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING; TRANSACTION_ABORTABLE (INVALID_TXN_STATE
            for clients that do not support it) if the partition is not part of the transaction; CONCURRENT_TRANSACTIONS
            (NOT_ENOUGH_REPLICAS for clients that do not retry it).
        """
        adds = request_version >= FIRST_PRODUCE_THAT_ADDS
        try:
            if adds:
                version = TransactionVersion.V2
                self.add_partitions(transactional_id, producer, frozenset({partition}), version)
                return
            missing = self.verify_partitions(transactional_id, producer, frozenset({partition}))
        except ApiError as error:
            raise ApiError(str(error), _code_for_produce(error.code, adds=adds)) from None
        if missing:
            knows = request_version >= _FIRST_PRODUCE_WITH_ABORTABLE
            code = ErrorCode.TRANSACTION_ABORTABLE if knows else ErrorCode.INVALID_TXN_STATE
            raise ApiError(f"{partition} has not been added to the transaction", code)

    def commit_offsets(
        self, transactional_id: str, producer: ProducerIdAndEpoch, group: str, version: int, store: Callable[[], None]
    ) -> ErrorCode:
        """Call *store* if TxnOffsetCommit in *version* may store offsets of *group*; from version 5 on the group is
        added implicitly. The transaction cannot end in the meantime, so no pending offsets are left behind."""
        participant = offsets_participant(group)
        adds = version >= _FIRST_OFFSET_COMMIT_THAT_ADDS
        with self._lock:
            try:
                if adds:
                    groups = frozenset({group})
                    self.add_partitions(transactional_id, producer, frozenset(), TransactionVersion.V2, groups=groups)
                missing = rules.missing_partitions(self._known(transactional_id), producer, {participant})
            except ApiError as error:
                return _code_for_offsets(error.code, adds=adds)
            if missing:
                knows = version >= _FIRST_OFFSET_COMMIT_WITH_ABORTABLE
                return ErrorCode.TRANSACTION_ABORTABLE if knows else ErrorCode.INVALID_TXN_STATE
            store()
        return ErrorCode.NONE

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        with self._lock:
            return self._ids.get(transactional_id)

    def all(self) -> list[TransactionMetadata]:
        """The states of all transactional ids."""
        with self._lock:
            return list(self._ids.values())

    def write_markers(self, transactional_id: str) -> None:
        """Write the markers of a decided outcome to the participants; those that are not available now are retried
        later.

        Called on any thread. If another thread is already writing the markers, the call returns at once.
        """
        with self._lock:
            metadata = self._ids.get(transactional_id)
            if metadata is None or not metadata.state.is_deciding or transactional_id in self._being_written:
                return
            self._being_written.add(transactional_id)
        marked: frozenset[TopicPartition] = frozenset()
        try:
            marked = self._markers.write(metadata)
        finally:
            self._note_marked(metadata, marked)

    def _note_marked(self, decided: TransactionMetadata, marked: frozenset[TopicPartition]) -> None:
        transactional_id = decided.transactional_id
        try:
            with self._lock:
                self._being_written.discard(transactional_id)
                present = self._ids.get(transactional_id)
                if present is not None and present.is_same_transaction(decided):
                    self._finish(present, marked)
                self._schedule_retry()
        except (ApiError, OSError) as error:
            self._log.warning("%s is not completed for now: %s", transactional_id, error)
            with self._lock:
                self._being_written.discard(transactional_id)
                self._schedule_retry()

    def _finish(self, present: TransactionMetadata, marked: frozenset[TopicPartition]) -> None:
        # Offsets are completed here, under the lock: a thread that completed them late would complete the pending
        # offsets of the producer's next transaction. The marked partitions are not stored: a second marker is harmless.
        marked |= self._markers.end_offsets(present)
        metadata = replace(present, partitions=present.partitions - marked)
        self._ids[metadata.transactional_id] = metadata
        if not metadata.partitions:
            self._put(metadata.completed(self._clock.wall_ms()))

    def _schedule_retry(self) -> None:
        if self._deciding and not self._retry_is_due:
            self._retry_is_due = True
            self._timer.schedule(self._clock.monotonic_ms() + MARKER_RETRY_MS, self._retry_markers)

    def _retry_markers(self) -> None:
        # First, so that a failure below does not prevent the retry of later decisions.
        self._retry_is_due = False
        with self._lock:
            some = [each for each in islice(self._deciding, _MOST_AT_A_TIME) if each not in self._being_written]
            for transactional_id in some:
                # Moved to the end, so that markers that have to wait for long do not delay others.
                self._deciding[transactional_id] = self._deciding.pop(transactional_id)
            self._schedule_retry()
        for transactional_id in some:
            self.write_markers(transactional_id)

    def _put(self, metadata: TransactionMetadata) -> None:
        """Store the state, then publish it."""
        self._store.save(metadata)
        transactional_id = metadata.transactional_id
        self._ids[transactional_id] = metadata
        self._ongoing.discard(transactional_id)
        self._deciding.pop(transactional_id, None)
        if metadata.state is TransactionState.ONGOING:
            self._ongoing.add(transactional_id)
        elif metadata.state.is_deciding:
            self._deciding[transactional_id] = True

    def start(self) -> None:
        """Start the periodic work on the timer; it continues for as long as the timer runs."""
        config = self._config
        self._repeat(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out)
        self._repeat(config.transaction_remove_expired_transaction_cleanup_interval_ms, self.remove_expired)
        with self._lock:
            self._schedule_retry()

    def _repeat(self, interval_ms: int, step: Callable[[], bool]) -> None:
        def run() -> None:
            more = False
            try:
                more = step()
            finally:
                self._timer.schedule(self._clock.monotonic_ms() + (0 if more else interval_ms), run)

        self._timer.schedule(self._clock.monotonic_ms() + interval_ms, run)

    def abort_timed_out(self) -> bool:
        """Abort transactions that exceed their timeout; returns True if more are left than one run may abort."""
        now_ms = self._clock.wall_ms()

        def is_over(transactional_id: str) -> bool:
            metadata = self._ids[transactional_id]
            return metadata.timeout_ms != NO_TIMEOUT_MS and metadata.start_ms + metadata.timeout_ms < now_ms

        with self._lock:
            over = [each for each in self._ongoing if is_over(each)]
        for transactional_id in over[:_MOST_AT_A_TIME]:
            with self._lock:
                if transactional_id not in self._ongoing or not is_over(transactional_id):
                    continue
                metadata = self._ids[transactional_id]
                version = self._config.transaction_version
                self._put(rules.fenced(metadata, version, self._new_producer_id, now_ms))
            self._log.info("aborting the transaction of %r, open for %d ms", transactional_id, metadata.timeout_ms)
            self.write_markers(transactional_id)
        return len(over) > _MOST_AT_A_TIME

    def remove_expired(self) -> bool:
        """Delete ids unused for ``transactional.id.expiration.ms``; returns False, as one run deletes all of them."""
        now_ms = self._clock.wall_ms()
        oldest = now_ms - self._config.transactional_id_expiration_ms
        with self._lock:
            unused = [each for each in self._ids.values() if each.last_update_ms < oldest and each.state.is_at_rest]
            gone = [each.moved_to(TransactionState.DEAD, now_ms).transactional_id for each in unused]
            if gone:
                self._store.delete(gone)
            for transactional_id in gone:
                del self._ids[transactional_id]
        return False


def _code_for_offsets(code: ErrorCode, *, adds: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _code_for_produce(code: ErrorCode, *, adds: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    retriable = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if code in retriable or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        # Older clients do not retry a batch after CONCURRENT_TRANSACTIONS.
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
