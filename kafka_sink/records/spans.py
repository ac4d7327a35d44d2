"""Where the records of a batch are: found by their lengths alone, piece by piece, and nothing is made of them.

Readers and brokers call it on their own threads. It holds one piece of decompressed data and the record that goes
beyond it, however many records a batch has: a few kB may announce millions.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from kafka_sink.columns.varint import MAX_VARINT_BYTES, read_varint
from kafka_sink.common.errors import CorruptRecordError

#: The bytes that a record is in, where it begins in them behind its length, and where it ends.
Span = tuple[bytes, int, int]
#: The bytes that records are in, and where each begins and ends.
Run = tuple[bytes, list[int], list[int]]
#: A record without its length: attributes, two deltas, two null lengths and the number of headers, one byte each.
LEAST_BYTES: Final = 6
_MOST_BYTES: Final = 2**31 - 1
#: So many places are kept at a time: their lists take some hundred kB.
_RUN_RECORDS: Final = 4096
_FEW: Final = 8


def record_spans(pieces: Iterable[bytes], count: int, first: int = 0, most_bytes: int = _MOST_BYTES) -> Iterator[Span]:
    """The records from number *first* on of the *count* that *pieces* hold, of at most *most_bytes* bytes each.

    :raises CorruptRecordError: where a length is impossible or too large, or if the records are not as many.
    """
    for data, starts, ends in record_runs(pieces, count, first, most_bytes):
        yield from zip(repeat(data), starts, ends)


def record_runs(pieces: Iterable[bytes], count: int, first: int = 0, most_bytes: int = _MOST_BYTES) -> Iterator[Run]:
    """The same records, some thousands at a time.

    :raises CorruptRecordError: like :func:`record_spans`, behind the records before.
    """
    if count < 0:
        raise CorruptRecordError(f"batch announces {count} records")
    index, joined = 0, _Joined()
    for piece in pieces:
        data = joined.add(piece)
        position, held, needed = 0, len(data), 0
        while index < count and position < held:
            if index < first and (passed := _of_one_length(data, position, min(first, count) - index)):
                index, position = index + passed, position + passed * (1 + (data[position] >> 1))
                continue
            starts, ends = _run(data, position, min(count - index, _RUN_RECORDS), most_bytes)
            if not ends:
                needed = _needed(data, position, index, most_bytes)
                break
            if index + len(ends) > first:
                passed = max(first - index, 0)
                yield data, starts[passed:], ends[passed:]
            index, position = index + len(ends), ends[-1]
        if index == count and position < held:
            raise CorruptRecordError(f"{held - position} bytes follow the last of {count} records")
        joined.keep(data, position, needed)
    joined.check_end(index, count)


def _run(data: bytes, position: int, most: int, most_bytes: int) -> tuple[list[int], list[int]]:
    """Where the records from *position* on begin and end, at most *most*, and as far as they are whole and possible."""
    starts: list[int] = []
    ends: list[int] = []
    last = len(data) - LEAST_BYTES
    for _ in range(most):
        if position >= last:
            break
        # Zig-zag: twice the length. The loop takes those of two bytes without a call.
        double = data[position]
        if double < 0x80:
            start = position + 1
        elif (more := data[position + 1]) < 0x80:
            double, start = double & 0x7F | more << 7, position + 2
        elif ends:
            # It may be damaged, which is raised behind the records before.
            break
        else:
            size, start = _long_length(data, position)
            double = size << 1 if size > 0 else 1
        position = start + (double >> 1)
        if double & 1 or position > len(data) or not LEAST_BYTES <= double >> 1 <= most_bytes:
            break
        starts.append(start)
        ends.append(position)
    return starts, ends


class _Joined:
    """The pieces of a record that goes beyond one, which are put together when all are there."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = 0

    def add(self, piece: bytes) -> bytes:
        """All that is there, or nothing until it is enough."""
        if not self._parts:
            return piece
        self._parts.append(piece)
        self._held += len(piece)
        return b"".join(self._parts) if self._held >= self._needed else b""

    def keep(self, data: bytes, position: int, needed: int) -> None:
        """Keep what is in *data* from *position* on, of a record of *needed* bytes."""
        if data:
            self._parts = [data[position:]] if position < len(data) else []
            self._held, self._needed = len(data) - position, needed

    def check_end(self, index: int, count: int) -> None:
        """:raises CorruptRecordError: if record number *index* is not whole, or not the last of *count*."""
        if self._parts:
            raise CorruptRecordError(f"record {index} of {self._needed} bytes does not fit into {self._held}")
        if index < count:
            raise CorruptRecordError(f"batch announces {count} records but holds {index}")


def _long_length(data: bytes, position: int) -> tuple[int, int]:
    """The length at *position*, and where the record begins; if the length is cut off, it goes on behind the data."""
    left = len(data) - position
    if left < MAX_VARINT_BYTES and min(data[position:]) > 0x7F:
        return LEAST_BYTES, len(data) + 1
    return read_varint(data, position)


def _needed(data: bytes, position: int, index: int, most_bytes: int) -> int:
    """The bytes of the record at *position*, with its length, which is not whole."""
    size, start = _long_length(data, position)
    if size < LEAST_BYTES:
        raise CorruptRecordError(f"record {index} has an impossible length of {size} bytes")
    if size > most_bytes:
        raise CorruptRecordError(f"record {index} of {size} bytes is larger than the limit of {most_bytes}")
    return start - position + size


def _of_one_length(data: bytes, position: int, most: int) -> int:
    """How many records, at most *most*, have the length of the one at *position*, which takes a byte, and follow one
    another; none if they are few. Millions of small ones are passed over so."""
    length = data[position : position + 1]
    stride = 1 + (length[0] >> 1)
    if length[0] > 0x7F or length[0] & 1 or stride <= LEAST_BYTES:
        return 0
    most = min(most, (len(data) - position) // stride)
    count, step = 0, _FEW
    while count < most:
        at = position + count * stride
        lengths = data[at : at + step * stride : stride]
        same = len(lengths) - len(lengths.lstrip(length))
        count += same
        if same < step:
            break
        step *= 8
    return min(count, most) if count > _FEW else 0
