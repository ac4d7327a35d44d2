"""Timestamps and durations as the messages of seconds and nanoseconds that every library of Protobuf has.

Called on the task's thread.

Source: https://protobuf.dev/reference/protobuf/google.protobuf/#timestamp, apache/spark ``ProtobufSerializer.scala``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kafka_sink.columns.binary_column import Int64s
from kafka_sink.columns.gather import Piece, unsigned_varint_fields
from kafka_sink.formats.fields import Absent, numbers
from kafka_sink.formats.protobuf.leaves import without_defaults
from kafka_sink.formats.protobuf.wire import VARINT, framed, tag_of, tagged
from kafka_sink.formats.refusals import refuse_rows

_NANOS: Final = 1_000_000_000
_SECONDS_TAG: Final = tag_of(1, VARINT)
_NANOS_TAG: Final = tag_of(2, VARINT)


@dataclass(frozen=True, slots=True)
class MomentWriter:
    """google.protobuf.Timestamp and Duration, from units of which *per_second* are a second. Seconds from *low* to
    *high* are allowed. The nanoseconds of a Duration have the sign of its seconds, *is_signed*; those of a Timestamp
    are never negative.
    """

    path: str
    per_second: int
    low: int
    high: int
    allowed: str
    is_signed: bool

    def pieces(self, array: pa.Array, absent: Absent, tag: bytes, *, is_implicit: bool) -> Sequence[Piece]:
        """See :class:`~kafka_sink.formats.protobuf.leaves.Value`; a message has no default value."""
        units: Int64s = numbers(array, np.int64)
        seconds, rest = np.divmod(units, self.per_second)
        wrong = (seconds < self.low) | (seconds > self.high)
        if wrong.any():
            problem = f"but {self.allowed}; correct the row, or choose another type in the schema"
            # Python has no dates for such values.
            refuse_rows(wrong, absent, array.cast(pa.int64()), self.path, problem)
        if self.is_signed:
            is_split = (seconds < 0) & (rest != 0)
            seconds, rest = seconds + is_split, rest - is_split * self.per_second
        nanos = rest * (_NANOS // self.per_second)
        inside = [*_part(_SECONDS_TAG, seconds, absent), *_part(_NANOS_TAG, nanos, absent)]
        return framed(tag, inside, absent)


def _part(tag: bytes, values: Int64s, absent: Absent) -> list[Piece]:
    return tagged(tag, unsigned_varint_fields(values.view(np.uint64)), without_defaults(absent, values == 0))
