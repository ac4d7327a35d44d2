"""What a partition remembers of its idempotent producers: the last five batches of each.

Guarded by the partition's lock. Rebuilt from the log when it is opened, from the newest snapshot onwards. Must never
change on a check: only a batch that is in the log counts (:meth:`ProducerStateManager.check`, then append, then
:meth:`ProducerStateManager.update`).

Source: KIP-98, apache/kafka ``ProducerAppendInfo`` and ``ProducerStateEntry``.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.common.errors import ApiError, ErrorCode, OutOfOrderSequenceError
from kafka_sink.records.batch import BatchHeader

#: As many as a client may have in flight with idempotence (max.in.flight.requests.per.connection).
BATCHES_REMEMBERED: Final = 5
_SEQUENCES: Final = 2**31


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """Where a batch of a producer went: its sequences and its offsets, first and last."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerState:
    """One producer id on one partition."""

    epoch: int
    last_wall_ms: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class ProducerStateManager:
    """Decides whether a producer's batch is the next one, one that is already there, or has lost its predecessor."""

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._states: dict[int, ProducerState] = {}

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """The earlier copy of this batch when it is a duplicate, None when it may be appended.

        :raises ApiError: INVALID_PRODUCER_EPOCH (a newer epoch was seen) or OUT_OF_ORDER_SEQUENCE_NUMBER (a batch
            before this one is missing).
        """
        state = self._states.get(header.producer_id)
        if state is None:
            # Nothing is known of it (new here, or forgotten): any sequence may start, as in Kafka.
            return None
        if header.producer_epoch < state.epoch:
            raise ApiError(
                f"epoch {header.producer_epoch} of producer {header.producer_id} is older than {state.epoch}",
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
        if header.producer_epoch > state.epoch:
            expected = 0
        else:
            duplicate = self._duplicate(state, header)
            if duplicate is not None:
                return duplicate
            expected = (state.batches[-1].last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} epoch {header.producer_epoch}: "
                f"sequence {header.base_sequence} where {expected} was expected"
            )
        return None

    @staticmethod
    def _duplicate(state: ProducerState, header: BatchHeader) -> AppendedBatch | None:
        for batch in state.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch
        return None

    def update(self, header: BatchHeader, base_offset: int, wall_ms: int) -> None:
        """Remember a batch that is in the log at *base_offset*. Batches without a producer id are nothing to it."""
        if not header.has_producer_id:
            return
        state = self._states.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch:
            state = self._states[header.producer_id] = ProducerState(header.producer_epoch, wall_ms)
        state.last_wall_ms = wall_ms
        state.batches.append(
            AppendedBatch(
                header.base_sequence, header.last_sequence, base_offset, base_offset + header.last_offset_delta
            )
        )

    def expire(self, wall_ms: int) -> None:
        """Forget producers that have not written for ``producer.id.expiration.ms``."""
        oldest = wall_ms - self._expiration_ms
        gone = [producer for producer, state in self._states.items() if state.last_wall_ms < oldest]
        for producer in gone:
            del self._states[producer]

    def to_bytes(self) -> bytes:
        """A snapshot for :meth:`load`."""
        rows = [
            [
                producer,
                state.epoch,
                state.last_wall_ms,
                [[b.first_sequence, b.last_sequence, b.base_offset, b.last_offset] for b in state.batches],
            ]
            for producer, state in self._states.items()
        ]
        return json.dumps(rows, separators=(",", ":")).encode()

    def load(self, snapshot: bytes) -> bool:
        """Replace everything by *snapshot*; False (and nothing changed) when it is damaged."""
        try:
            states = {
                int(producer): ProducerState(
                    int(epoch),
                    int(wall_ms),
                    deque((AppendedBatch(*map(int, batch)) for batch in batches), maxlen=BATCHES_REMEMBERED),
                )
                for producer, epoch, wall_ms, batches in json.loads(snapshot)
            }
        except (ValueError, TypeError):
            return False
        if not all(state.batches for state in states.values()):
            return False
        self._states = states
        return True
