"""The producer state of a partition: the last five batches of each producer, and transactions.

Guarded by the partition's lock. Rebuilt when the log is opened, from the newest snapshot and the batches after it. A
check must not change the state: only batches in the log count (:meth:`ProducerStateManager.check`, then append, then
:meth:`ProducerStateManager.update` or :meth:`ProducerStateManager.complete`).

Source: KIP-98, KIP-890, KIP-1228; apache/kafka ``ProducerAppendInfo``, ``ProducerStateEntry``, ``VerificationGuard``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_sink.common.bounded import json_number, parsed_json
from kafka_sink.common.errors import ApiError, ErrorCode, OutOfOrderSequenceError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, TransactionVersion
from kafka_sink.records.batch import BatchHeader
from kafka_sink.records.control import EndTransactionMarker

#: The maximum number of in-flight requests of an idempotent producer (max.in.flight.requests.per.connection).
BATCHES_REMEMBERED: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
_SEQUENCES: Final = 2**31
_FORMAT: Final = 2


class AppendedBatch(NamedTuple):
    """A batch of a producer in the log: its first and last sequences and offsets, and its largest timestamp."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class AbortedRange(NamedTuple):
    """Records of *producer_id* from *first_offset* to the marker at *last_offset* are hidden from read_committed."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class KnownProducer:
    """One producer id on one partition."""

    epoch: int
    last_wall_ms: int
    #: The newest batches, at most :data:`BATCHES_REMEMBERED`; a list, because a deque takes half a kilobyte.
    batches: list[AppendedBatch] = field(default_factory=list)
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    #: Timestamp of its newest record or marker, ms since 1970.
    last_timestamp: int = NO_TIMESTAMP
    #: First offset of its open transaction in this log; :data:`NO_OFFSET` if none is open.
    transaction_first_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The last sequence number; −1 if the epoch has none yet."""
        return self.batches[-1].last_sequence if self.batches else -1


@dataclass(frozen=True, slots=True, eq=False)
class VerificationGuard:
    """Represents one verification with the transaction coordinator; guards are compared by identity."""

    producer_id: int
    epoch: int
    transaction_version: TransactionVersion = TransactionVersion.V1

    def ends_the_previous(self, marker: EndTransactionMarker) -> bool:
        """Whether *marker* ends the transaction before the one that is being verified: in version 2 it has the epoch of
        the next transaction."""
        return self.transaction_version is TransactionVersion.V2 and self.epoch == marker.producer_epoch


@dataclass(slots=True)
class _VerificationState:
    """The lowest sequence among the batches of an epoch that are being verified (Kafka's ``VerificationStateEntry``).
    It is kept until a batch is appended, so that a later batch cannot be appended before a retried earlier one."""

    epoch: int
    lowest_sequence: int
    last_wall_ms: int


class ProducerStateManager:
    """Decides whether a producer's batch is the next one, a duplicate, or out of order.

    Also tracks the open and the aborted transactions of the partition.
    """

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._states: dict[int, KnownProducer] = {}
        # Producer id → first offset, in offset order, because a new transaction begins after all others.
        self._open: dict[int, int] = {}
        # In order of last offset.
        self._aborted: list[AbortedRange] = []
        # Producer id → guards that are still valid.
        self._guards: dict[int, set[VerificationGuard]] = {}
        # Producer id → its batches that are being verified, of a transaction that is not open in this log yet.
        self._verification_states: dict[int, _VerificationState] = {}

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Returns the earlier copy of this batch if it is a duplicate, None if it may be appended.

        :raises ApiError: INVALID_PRODUCER_EPOCH (a newer epoch was seen), OUT_OF_ORDER_SEQUENCE_NUMBER (a batch
            before this one is missing) or INVALID_TXN_STATE (not transactional, while a transaction is open).
        """
        state = self._states.get(header.producer_id)
        if state is None:
            # The producer is new here, or its state has expired: any first sequence is accepted, as in Kafka.
            self._check_lowest_sequence(header)
            return None
        self._check_epoch(state, header.producer_id, header.producer_epoch)
        if header.producer_epoch > state.epoch:
            expected = 0
        else:
            for batch in state.batches:
                if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                    return batch
            expected = (state.last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence}, "
                f"expected {expected}"
            )
        if state.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise ApiError(
                f"producer {header.producer_id} wrote outside its open transaction", ErrorCode.INVALID_TXN_STATE
            )
        return None

    def _check_lowest_sequence(self, header: BatchHeader) -> None:
        # The batch with the lowest sequence is not appended yet and will be retried. After this one it would be out of
        # order (KIP-890).
        verifying = self._verification_states.get(header.producer_id)
        if verifying is None or not header.is_transactional or verifying.epoch != header.producer_epoch:
            return
        if header.base_sequence > verifying.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} "
                f"comes after sequence {verifying.lowest_sequence}, which is not stored yet"
            )

    @staticmethod
    def _check_epoch(state: KnownProducer, producer_id: int, epoch: int) -> None:
        if epoch < state.epoch:
            text = f"epoch {epoch} of producer {producer_id} is older than {state.epoch}"
            raise ApiError(text, ErrorCode.INVALID_PRODUCER_EPOCH)

    def update(self, header: BatchHeader, base_offset: int, wall_ms: int) -> None:
        """Record a data batch that is in the log at *base_offset*; a batch without a producer id is ignored."""
        if not header.has_producer_id:
            return
        state = self._state_in_epoch(header.producer_id, header.producer_epoch, wall_ms)
        last_offset = base_offset + header.last_offset_delta
        state.last_timestamp = header.max_timestamp
        sequences = header.base_sequence, header.last_sequence
        state.batches.append(AppendedBatch(*sequences, base_offset, last_offset, header.max_timestamp))
        del state.batches[:-BATCHES_REMEMBERED]
        self._verification_states.pop(header.producer_id, None)
        if header.is_transactional and state.transaction_first_offset == NO_OFFSET:
            state.transaction_first_offset = self._open[header.producer_id] = base_offset

    def _state_in_epoch(self, producer_id: int, epoch: int, wall_ms: int) -> KnownProducer:
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = KnownProducer(epoch, wall_ms)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.batches.clear()
        state.last_wall_ms = wall_ms
        return state

    def check_marker(
        self, marker: EndTransactionMarker, *, transaction_version: TransactionVersion = TransactionVersion.V1
    ) -> None:
        """Check whether *marker* may be appended; in version 2 its epoch is the next transaction's (KIP-1228).

        :raises ApiError: INVALID_PRODUCER_EPOCH (a newer producer, or the next transaction, has written here),
            TRANSACTION_COORDINATOR_FENCED (a newer coordinator has written here).
        """
        state = self._states.get(marker.producer_id)
        if state is None:
            return
        self._check_epoch(state, marker.producer_id, marker.producer_epoch)
        is_open = state.transaction_first_offset != NO_OFFSET
        if transaction_version is TransactionVersion.V2 and is_open and state.epoch == marker.producer_epoch:
            # The marker was written before and the next transaction has begun; a repeated marker must not end that one.
            text = (
                f"the marker of epoch {state.epoch} of producer {marker.producer_id} belongs to the previous "
                "transaction"
            )
            raise ApiError(text, ErrorCode.INVALID_PRODUCER_EPOCH)
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise ApiError(
                f"coordinator epoch {marker.coordinator_epoch} is older than {state.coordinator_epoch}",
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            )

    def complete(self, marker: EndTransactionMarker, offset: int, wall_ms: int) -> None:
        """End the transaction whose *marker* is in the log at *offset*; the marker's epoch fences older producers."""
        state = self._state_in_epoch(marker.producer_id, marker.producer_epoch, wall_ms)
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = wall_ms
        self._verification_states.pop(marker.producer_id, None)
        for guard in tuple(self._guards.get(marker.producer_id, ())):
            if not guard.ends_the_previous(marker):
                self.end_verification(guard)
        if state.transaction_first_offset == NO_OFFSET:
            return
        first_offset, state.transaction_first_offset = state.transaction_first_offset, NO_OFFSET
        del self._open[marker.producer_id]
        if not marker.committed:
            self._aborted.append(AbortedRange(marker.producer_id, first_offset, offset))

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction, None if none is open."""
        return next(iter(self._open.values()), None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer, in this epoch, has written to a transaction that has no marker yet."""
        state = self._states.get(producer_id)
        return state is not None and state.transaction_first_offset != NO_OFFSET and state.epoch == epoch

    def aborted_between(self, start: int, end: int) -> list[AbortedRange]:
        """Aborted transactions with records from *start* to before *end*, in order of their first offset."""
        first = bisect_left(self._aborted, start, key=lambda aborted: aborted.last_offset)
        transactions = [aborted for aborted in self._aborted[first:] if aborted.first_offset < end]
        return sorted(transactions, key=lambda aborted: aborted.first_offset)

    def forget_aborted_before(self, start_offset: int) -> None:
        """Drop the aborted transactions whose records are all deleted, because they are before *start_offset*."""
        if self._aborted and self._aborted[0].last_offset < start_offset:
            self._aborted = [aborted for aborted in self._aborted if aborted.last_offset >= start_offset]

    @property
    def aborted(self) -> Sequence[AbortedRange]:
        """The aborted transactions of the log, in order of their markers; read only."""
        return self._aborted

    def forget_aborted(self, gone: Collection[AbortedRange]) -> None:
        """Drop the aborted transactions in *gone*, of which no record remains: without the marker a reader could not
        determine the end of one."""
        if gone:
            self._aborted = [aborted for aborted in self._aborted if aborted not in gone]

    def begin_verification(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        wall_ms: int,
        *,
        transaction_version: TransactionVersion = TransactionVersion.V1,
    ) -> VerificationGuard:
        """See :meth:`PartitionLog.begin_verification`; the end of the transaction in question invalidates the guard.

        Until a batch is appended, :meth:`check` rejects those after the lowest *sequence* that is being verified, in
        version 2 all but the first: an earlier one may have been refused before it was verified (KAFKA-18202).
        A client of version 2 begins its next transaction as soon as the outcome of the last one is decided, possibly
        before the marker is in this log: a marker with the epoch in question belongs to the last transaction.
        """
        if (state := self._states.get(producer_id)) is not None:
            self._check_epoch(state, producer_id, epoch)
        sequence = 0 if transaction_version is TransactionVersion.V2 else sequence
        if (verifying := self._verification_states.get(producer_id)) is None or epoch > verifying.epoch:
            self._verification_states[producer_id] = _VerificationState(epoch, sequence, wall_ms)
        elif epoch == verifying.epoch:
            verifying.lowest_sequence = min(verifying.lowest_sequence, sequence)
            verifying.last_wall_ms = wall_ms
        guard = VerificationGuard(producer_id, epoch, transaction_version=transaction_version)
        self._guards.setdefault(producer_id, set()).add(guard)
        return guard

    def is_verified(self, guard: VerificationGuard | None) -> bool:
        """Whether the coordinator's answer under *guard* is still valid."""
        return guard is not None and guard in self._guards.get(guard.producer_id, ())

    def end_verification(self, guard: VerificationGuard) -> None:
        """Invalidate *guard*; later batches under it are rejected. A second call does nothing."""
        guards = self._guards.get(guard.producer_id, set())
        guards.discard(guard)
        if not guards:
            self._guards.pop(guard.producer_id, None)

    @property
    def states(self) -> Mapping[int, KnownProducer]:
        """The producer states by producer id; read only."""
        return self._states

    def expire(self, wall_ms: int) -> None:
        """Remove producers without writes for ``producer.id.expiration.ms``, except those with open transactions."""
        oldest = wall_ms - self._expiration_ms
        gone = [
            producer
            for producer, state in self._states.items()
            if state.last_wall_ms < oldest and state.transaction_first_offset == NO_OFFSET
        ]
        for producer in gone:
            del self._states[producer]
        self._verification_states = {
            producer: verifying
            for producer, verifying in self._verification_states.items()
            if verifying.last_wall_ms >= oldest
        }

    def to_bytes(self) -> bytes:
        """A snapshot for :meth:`load`."""
        rows = [
            [
                producer,
                state.epoch,
                state.last_wall_ms,
                state.batches,
                state.coordinator_epoch,
                state.last_timestamp,
                state.transaction_first_offset,
            ]
            for producer, state in self._states.items()
        ]
        content = {"format": _FORMAT, "producers": rows, "aborted": self._aborted}
        return json.dumps(content, separators=(",", ":")).encode()

    def load(self, snapshot: bytes) -> bool:
        """Replace the whole state by *snapshot*; False, without changes, if it is damaged or has another format."""
        try:
            content = parsed_json(snapshot)
            if content["format"] != _FORMAT:
                return False
            states = {
                json_number(producer): KnownProducer(
                    json_number(epoch),
                    json_number(wall_ms),
                    [AppendedBatch(*map(json_number, batch)) for batch in batches[-BATCHES_REMEMBERED:]],
                    *map(json_number, transaction),
                )
                for producer, epoch, wall_ms, batches, *transaction in content["producers"]
            }
            aborted = [AbortedRange(*map(json_number, entry)) for entry in content["aborted"]]
        except (ValueError, TypeError, KeyError):
            return False
        self._states = states
        self._aborted = aborted
        first_offsets = [(state.transaction_first_offset, producer) for producer, state in states.items()]
        self._open = {producer: offset for offset, producer in sorted(first_offsets) if offset != NO_OFFSET}
        return True
