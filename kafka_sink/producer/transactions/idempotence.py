"""Producer id, epoch and sequence numbers: what lets a broker drop repeats and refuse gaps (KIP-98, KIP-360).

Driven by the sender thread alone, so it has no lock. It never sends anything: it says what must be asked for, and is
told what came back. Where a gap cannot be closed an idempotent producer begins a new epoch by itself; a transactional
one leaves that to its coordinator, after the transaction has been aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, TopicPartition
from kafka_sink.producer.batching.producer_batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerBatch,
    sequence_after,
    sequence_precedes,
)

_EPOCH_MAX = 2**15 - 1

#: How many of a producer's batches a broker remembers for each partition. An older one that comes again cannot be told
#: from a gap, so no more than these are given out beyond the oldest without an outcome.
_BATCHES_REMEMBERED = 5


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The identity under which sequences count."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_valid(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


@dataclass(slots=True)
class _PartitionState:
    """Sequences of one partition.

    ``in_flight`` holds the batches that were given a sequence and have no outcome yet, sent or waiting for a retry, in
    the order of their sequences, each with how many there were before it.
    """

    identity: ProducerIdAndEpoch
    #: The broker has stored something of this producer id, so it knows which sequence comes next.
    is_known_to_broker: bool = False
    next_sequence: int = 0
    #: How many batches were given a sequence.
    numbered: int = 0
    last_acked_sequence: int = NO_SEQUENCE
    last_acked_offset: int = NO_OFFSET
    in_flight: dict[ProducerBatch, int] = field(default_factory=dict)

    @property
    def oldest(self) -> ProducerBatch | None:
        return next(iter(self.in_flight), None)


class IdempotenceManager:
    """Sequence bookkeeping of an idempotent producer (Kafka's ``TransactionManager`` less the transactions).

    :param transactional: epochs come from the transaction coordinator alone.
    """

    def __init__(self, log: ContextLogger, *, transactional: bool = False) -> None:
        self._log = log
        self._transactional = transactional
        self._identity = ProducerIdAndEpoch()
        self._partitions: dict[TopicPartition, _PartitionState] = {}
        self._unresolved: set[TopicPartition] = set()
        self._to_rewrite: set[TopicPartition] = set()
        self._epoch_bump_required = False

    # --- identity ----------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return self._identity

    def assign_producer_id(self, producer_id: int, epoch: int) -> None:
        """The answer of InitProducerId, or of the EndTxn that brings an epoch."""
        self._log.debug("producer id %d, epoch %d", producer_id, epoch)
        self._adopt(ProducerIdAndEpoch(producer_id, epoch))

    def bump_epoch_if_required(self) -> None:
        """Begin a new epoch when a gap or lost state asked for one; at the last epoch a new id must be fetched."""
        if not self._epoch_bump_required:
            return
        self._epoch_bump_required = False
        if self._identity.epoch == _EPOCH_MAX:
            self._identity = ProducerIdAndEpoch()
        elif self._identity.is_valid:
            # Without an id there is nothing to count up: the one that is on its way begins anew by itself.
            self._adopt(ProducerIdAndEpoch(self._identity.producer_id, self._identity.epoch + 1))

    def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        self._identity = identity
        for topic_partition in self._to_rewrite:
            self._start_sequences_at_beginning(topic_partition)
            self._unresolved.discard(topic_partition)
        self._to_rewrite.clear()

    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Sequences of *topic_partition* cannot go on as they are: what is in flight there begins anew.

        Only for a gap before the oldest batch in flight, because then none of them is stored. A batch that the broker
        does have would be stored twice under a new sequence.
        """
        if self._transactional:
            raise RuntimeError("a transactional producer cannot give itself a new epoch")
        self._epoch_bump_required = True
        self._to_rewrite.add(topic_partition)

    def _start_sequences_at_beginning(self, topic_partition: TopicPartition) -> None:
        state = self._state(topic_partition)
        state.is_known_to_broker &= state.identity.producer_id == self._identity.producer_id
        state.identity = self._identity
        state.last_acked_sequence = NO_SEQUENCE
        sequence = 0
        for number, batch in enumerate(state.in_flight):
            state.in_flight[batch] = number
            batch.reset_producer_state(self._identity.producer_id, self._identity.epoch, sequence)
            sequence = sequence_after(sequence, batch.record_count)
        state.numbered = len(state.in_flight)
        state.next_sequence = sequence

    # --- draining ----------------------------------------------------------------------------------------------------

    def must_wait(self, first: ProducerBatch) -> bool:
        """Whether the partition of *first*, the head of its queue, may not be drained now."""
        if not self._identity.is_valid:
            return True
        state = self._state(first.topic_partition)
        oldest = state.oldest
        if first.has_sequence:
            # A retry waits until it is the oldest in flight: with one in flight nothing can overtake it.
            return oldest is not None and oldest is not first
        if first.topic_partition in self._unresolved:
            return True
        if oldest is None:
            return False
        # From a producer that it does not know, a broker takes any sequence: were the first batch refused for now and
        # the second taken, the first could only be stored behind it. So the first travels alone.
        is_unknown = not state.is_known_to_broker
        has_stale_identity = state.identity != self._identity
        # The oldest may be stored although nobody knows yet. With as many behind it the broker would take its retry for
        # one that comes too early, and under a new sequence it would be stored twice.
        is_window_full = state.numbered - state.in_flight[oldest] >= _BATCHES_REMEMBERED
        return is_unknown or has_stale_identity or is_window_full

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Give a batch that is drained for the first time its sequence; a retry keeps the one it has."""
        if batch.has_sequence:
            return
        state = self._state(batch.topic_partition)
        if state.identity != self._identity and state.oldest is None:
            self._start_sequences_at_beginning(batch.topic_partition)
        batch.set_producer_state(self._identity.producer_id, self._identity.epoch, state.next_sequence)
        batch.is_transactional = self._transactional
        state.next_sequence = sequence_after(state.next_sequence, batch.record_count)
        state.in_flight[batch] = state.numbered
        state.numbered += 1

    # --- answers -----------------------------------------------------------------------------------------------------

    def completed(self, batch: ProducerBatch, base_offset: int = NO_OFFSET) -> None:
        """The broker stored *batch*, from *base_offset* on as far as it said."""
        state = self._state(batch.topic_partition)
        state.in_flight.pop(batch, None)
        state.is_known_to_broker |= batch.producer_id == state.identity.producer_id
        acked = state.last_acked_sequence
        if acked == NO_SEQUENCE or sequence_precedes(acked, batch.last_sequence):
            state.last_acked_sequence = batch.last_sequence
        if base_offset != NO_OFFSET:
            state.last_acked_offset = max(state.last_acked_offset, base_offset + batch.record_count - 1)

    def failed(self, batch: ProducerBatch) -> None:
        """*batch* is given up, which may leave a gap in the sequences of its partition.

        What follows keeps its sequences until the answers tell whether there is one: under new sequences a batch that
        the broker does have, though its answer was lost, would be stored twice. An answer that refuses this batch does
        not help: an earlier attempt of it, or a batch behind it, may be stored.
        """
        if batch.has_sequence:
            self._state(batch.topic_partition).in_flight.pop(batch, None)
            self._unresolved.add(batch.topic_partition)

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """*pieces* take the place of *batch*, under consecutive sequences."""
        state = self._state(batch.topic_partition)
        in_flight: dict[ProducerBatch, int] = {}
        more = 0
        for other, number in state.in_flight.items():
            if other is batch:
                in_flight.update({piece: number + index for index, piece in enumerate(pieces)})
                more = len(pieces) - 1
            else:
                in_flight[other] = number + more
        state.in_flight = in_flight
        state.numbered += more
        sequence = batch.base_sequence
        for piece in pieces:
            piece.set_producer_state(batch.producer_id, batch.producer_epoch, sequence)
            piece.is_transactional = batch.is_transactional
            sequence = sequence_after(sequence, piece.record_count)

    def resolve_sequences(self) -> list[TopicPartition]:
        """Settle unresolved partitions that have nothing in flight any more; those of them that have a gap."""
        with_gap = []
        for topic_partition in tuple(self._unresolved):
            state = self._state(topic_partition)
            if state.oldest is None:
                if state.next_sequence != sequence_after(state.last_acked_sequence):
                    with_gap.append(topic_partition)
                    if not self._transactional:
                        self.request_epoch_bump(topic_partition)
                self._unresolved.discard(topic_partition)
        return with_gap

    def can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Whether *batch* may be sent again after *code*; asks for an epoch bump where it takes one.

        While an older batch is in flight, that one is what the broker misses; for the oldest there is a true gap.
        """
        if code not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            return code.is_retriable
        state = self._state(batch.topic_partition)
        # A broker that answered "unknown" without a log start offset did so while the partition moved: ask again.
        is_moving = code is ErrorCode.UNKNOWN_PRODUCER_ID and log_start_offset == NO_OFFSET
        if is_moving or batch.reopened_sequence or state.oldest is not batch:
            return True
        if batch.may_be_stored:
            # What the broker misses, or has beyond it, may be the whole that this was a part of.
            return False
        is_forgotten = code is ErrorCode.UNKNOWN_PRODUCER_ID
        state.is_known_to_broker &= not is_forgotten
        if not self._transactional:
            self.request_epoch_bump(batch.topic_partition)
            return True
        if is_forgotten and state.last_acked_offset < log_start_offset:
            # All that it had was deleted with the oldest records, so it expects a beginning.
            self._start_sequences_at_beginning(batch.topic_partition)
            return True
        return False

    def _state(self, topic_partition: TopicPartition) -> _PartitionState:
        state = self._partitions.get(topic_partition)
        if state is None:
            state = self._partitions[topic_partition] = _PartitionState(self._identity)
        return state
