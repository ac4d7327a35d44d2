"""Limits the records that one task passes to its producer per second, for backfills beside other work.

Used in the task, on its thread. Rows are passed on in pieces of a tenth of a second; time without rows is not made up
for. A wait ends at once when the task's thread is interrupted.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from kafka_sink.common.clock import Clock

_PIECES_PER_S: Final = 10


class RateLimit:
    """At most *records_per_s* records per second, and one piece more at once."""

    def __init__(self, records_per_s: int, clock: Clock) -> None:
        self._records_per_s = records_per_s
        self._clock = clock
        self._piece_rows = max(records_per_s // _PIECES_PER_S, 1)
        #: Nobody notifies it: a wait ends by time, or by an interrupt.
        self._condition = threading.Condition()
        self._due_ms = float(clock.monotonic_ms())

    def pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of *batches* in their order, each piece when its time has come; the pieces are views."""
        for batch in batches:
            for start in range(0, batch.num_rows, self._piece_rows):
                piece = batch.slice(start, self._piece_rows)
                self._await_turn()
                self._due_ms += piece.num_rows * 1000 / self._records_per_s
                yield piece

    def _await_turn(self) -> None:
        with self._condition:
            while (now_ms := self._clock.monotonic_ms()) < self._due_ms:
                # Rounded up, because a wait of 0 ms would not end the loop.
                self._clock.wait(self._condition, math.ceil(self._due_ms - now_ms))
        self._due_ms = max(self._due_ms, float(now_ms))
