"""Producer id, epoch and sequence numbers: brokers use them to drop duplicates and refuse gaps (KIP-98, KIP-360).

Only the sender thread uses the sequences, so they have no lock. This module never sends anything: it reports which id
or epoch is needed, and receives the answers. If a gap cannot be closed, an idempotent producer starts an epoch itself;
a transactional producer gets one from its coordinator after the transaction has been aborted.

In transaction version 2 every EndTxn answer contains the next epoch. In version 1 a failed transaction requires a new
epoch from InitProducerId, if the coordinator supports that. :class:`TransactionEpochs` belongs to the transaction
manager, which holds its lock where transactions begin and end; the version may be read without the lock.

Source: apache/kafka ``TransactionManager``; KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_sink.client.connection.api_versions import ApiVersions
from kafka_sink.client.requests.transactional_requests import INIT_PRODUCER_ID_BUMP_VERSION
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import (
    NO_OFFSET,
    TRANSACTION_VERSION_FEATURE,
    Node,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.producer.batching.producer_batch import ProducerBatch, sequence_after, sequence_precedes
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.records.layout import NO_SEQUENCE

_EPOCH_MAX = 2**15 - 1

#: How many batches of a producer a broker remembers for each partition. A broker cannot distinguish the retry of an
#: older batch from a gap, so at most this many sequences are assigned from the oldest batch without an outcome on.
_BATCHES_REMEMBERED = 5


@dataclass(slots=True)
class _PartitionState:
    """The sequences of one partition.

    ``in_flight`` holds the batches that have a sequence and no outcome yet, sent or waiting for a retry, in the order
    of their sequences. Its values are the number of batches before each.
    """

    identity: ProducerIdAndEpoch
    #: Whether the broker has stored a batch of this producer id, so that it knows the next sequence.
    is_known_to_broker: bool = False
    next_sequence: int = 0
    #: How many batches have been given a sequence.
    numbered: int = 0
    last_acked_sequence: int = NO_SEQUENCE
    last_acked_offset: int = NO_OFFSET
    in_flight: dict[ProducerBatch, int] = field(default_factory=dict)

    @property
    def oldest(self) -> ProducerBatch | None:
        return next(iter(self.in_flight), None)


class IdempotenceManager:
    """Sequence bookkeeping of an idempotent producer (Kafka's ``TransactionManager`` without transactions).

    :param transactional: whether epochs come from the transaction coordinator only.
    """

    def __init__(self, log: ContextLogger, *, transactional: bool = False) -> None:
        self._log = log
        self._transactional = transactional
        self._identity = ProducerIdAndEpoch()
        self._partitions: dict[TopicPartition, _PartitionState] = {}
        self._unresolved: set[TopicPartition] = set()
        self._to_rewrite: set[TopicPartition] = set()
        self._epoch_bump_required = False

    @property
    def identity(self) -> ProducerIdAndEpoch:
        return self._identity

    def assign_producer_id(self, producer_id: int, epoch: int) -> None:
        """Adopt the id and epoch of an InitProducerId answer, or of an EndTxn answer with an epoch."""
        self._log.debug("producer id %d, epoch %d", producer_id, epoch)
        self._adopt(ProducerIdAndEpoch(producer_id, epoch))

    def bump_epoch_if_required(self) -> None:
        """Start a new epoch if a gap or lost state requires it; after the last epoch a new id must be requested."""
        if not self._epoch_bump_required:
            return
        self._epoch_bump_required = False
        if self._identity.epoch == _EPOCH_MAX:
            self._identity = ProducerIdAndEpoch()
        elif self._identity.is_valid:
            # Without an id there is no epoch to increment: the requested id starts at the beginning in any case.
            self._adopt(ProducerIdAndEpoch(self._identity.producer_id, self._identity.epoch + 1))

    def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        self._identity = identity
        for topic_partition in self._to_rewrite:
            self._start_sequences_at_beginning(topic_partition)
            self._unresolved.discard(topic_partition)
        self._to_rewrite.clear()

    def request_epoch_bump(self, topic_partition: TopicPartition) -> None:
        """Require a new epoch because *topic_partition* cannot continue its sequences; its batches in flight get new
        ones.

        This is only allowed for a gap before the oldest batch in flight, because then none of them is stored. A batch
        that the broker has stored would be stored twice under a new sequence.
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

    def must_wait(self, first: ProducerBatch) -> bool:
        """Whether the partition of *first*, the head of its queue, must not be drained now."""
        if not self._identity.is_valid:
            return True
        state = self._state(first.topic_partition)
        oldest = state.oldest
        if first.has_sequence:
            # A retry waits until it is the oldest batch in flight: with one batch in flight no other batch can overtake
            # it.
            return oldest is not None and oldest is not first
        if first.topic_partition in self._unresolved:
            return True
        if oldest is None:
            return False
        # A broker accepts any first sequence of an unknown producer. If it refused the first batch for now and accepted
        # the second one, the first could only be stored after the second. So the first batch is sent alone.
        is_unknown = not state.is_known_to_broker
        has_stale_identity = state.identity != self._identity
        # The oldest batch may be stored although its answer is unknown. With as many batches after it, the broker
        # would take its retry for an out-of-order batch, and under a new sequence the batch would be stored twice.
        is_window_full = state.numbered - state.in_flight[oldest] >= _BATCHES_REMEMBERED
        return is_unknown or has_stale_identity or is_window_full

    def assign_sequence(self, batch: ProducerBatch) -> None:
        """Assign a sequence to a batch at its first drain; a retry keeps its sequence."""
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

    def completed(self, batch: ProducerBatch, base_offset: int = NO_OFFSET) -> None:
        """Record that the broker stored *batch*, from *base_offset* on if it is known."""
        state = self._state(batch.topic_partition)
        state.in_flight.pop(batch, None)
        state.is_known_to_broker = True
        acked = state.last_acked_sequence
        if acked == NO_SEQUENCE or sequence_precedes(acked, batch.last_sequence):
            state.last_acked_sequence = batch.last_sequence
        if base_offset != NO_OFFSET:
            state.last_acked_offset = max(state.last_acked_offset, base_offset + batch.record_count - 1)

    def failed(self, batch: ProducerBatch) -> None:
        """Record that *batch* failed, which may leave a gap in the sequences of its partition.

        The batches after it keep their sequences until their answers show whether there is a gap: under new sequences,
        a batch that the broker stored, but whose answer was lost, would be stored twice. An answer that refuses this
        batch is not enough: an earlier attempt of it, or a batch after it, may be stored.
        """
        if batch.has_sequence:
            self._state(batch.topic_partition).in_flight.pop(batch, None)
            self._unresolved.add(batch.topic_partition)

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """Replace *batch* by *pieces*, with consecutive sequences."""
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
        """Resolve the partitions that have no batch in flight any more; returns those with a gap."""
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
        """Whether *batch* may be sent again after *code*; requests an epoch bump if that is necessary.

        If an older batch is in flight, the broker misses that batch; for the oldest batch there is a real gap.
        """
        if code not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            return code.is_retriable
        state = self._state(batch.topic_partition)
        # A broker that answers UNKNOWN_PRODUCER_ID without a log start offset did so while the partition moved: send
        # again.
        is_moving = code is ErrorCode.UNKNOWN_PRODUCER_ID and log_start_offset == NO_OFFSET
        if is_moving or batch.reopened_sequence or state.oldest is not batch:
            return True
        if batch.may_be_stored:
            # The batch that the broker misses, or has stored beyond, may be the whole batch that this one was split
            # from.
            return False
        is_forgotten = code is ErrorCode.UNKNOWN_PRODUCER_ID
        state.is_known_to_broker &= not is_forgotten
        if not self._transactional:
            self.request_epoch_bump(batch.topic_partition)
            return True
        if is_forgotten and state.last_acked_offset < log_start_offset:
            # All batches of this producer were deleted with the oldest records, so the broker expects the first
            # sequence.
            self._start_sequences_at_beginning(batch.topic_partition)
            return True
        return False

    def _state(self, topic_partition: TopicPartition) -> _PartitionState:
        state = self._partitions.get(topic_partition)
        if state is None:
            state = self._partitions[topic_partition] = _PartitionState(self._identity)
        return state


class TransactionEpochs:
    """See the module."""

    def __init__(self, api_versions: ApiVersions) -> None:
        self._api_versions = api_versions
        #: Set only between two transactions, so that a transaction never mixes the two versions.
        self.version = TransactionVersion.V1
        self._coordinator_bumps_epochs = False
        #: Whether the next transaction requires a new epoch; no longer once an answer contained one.
        self.is_new_one_needed = False

    @property
    def can_be_renewed(self) -> bool:
        """Whether a new epoch can be obtained after a failed transaction."""
        return self._coordinator_bumps_epochs or self.version is TransactionVersion.V2

    def coordinator_ready(self, node: Node) -> None:
        """Read the capabilities of *node*, the transaction coordinator, which is connected."""
        versions = self._api_versions.get(node.connection_id)
        if versions is not None:
            supported = versions.versions.get(ApiKey.INIT_PRODUCER_ID)
            self._coordinator_bumps_epochs = supported is not None and supported.max >= INIT_PRODUCER_ID_BUMP_VERSION

    def need_new_one(self) -> None:
        """Require a new epoch from InitProducerId for the next transaction, if the coordinator supports it and EndTxn
        returns none."""
        self.is_new_one_needed |= self._coordinator_bumps_epochs and self.version is TransactionVersion.V1

    def settle_version(self) -> bool:
        """Adopt the cluster's transaction version, while no transaction is open; True if it rose to 2."""
        before, self.version = (
            self.version,
            TransactionVersion.of_level(self._api_versions.feature_level(TRANSACTION_VERSION_FEATURE)),
        )
        return before < self.version
