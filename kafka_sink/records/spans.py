"""Locates the records of a batch by their lengths alone, piece by piece, without decoding them.

Readers and brokers call it on their own threads. It holds one piece of decompressed data and the record that extends
beyond it, however many records a batch has: a few kB may announce millions.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from kafka_sink.columns.varint import MAX_VARINT_BYTES, read_varint
from kafka_sink.common.errors import CorruptRecordError

#: Bytes that contain a record, the position at which it begins after its length, and the position at which it ends.
Span = tuple[bytes, int, int]
#: Bytes that contain records, and the positions at which they begin and end.
Run = tuple[bytes, list[int], list[int]]
#: A record without its length: attributes, two deltas, two null lengths and the number of headers, one byte each.
LEAST_BYTES: Final = 6
_MOST_BYTES: Final = 2**31 - 1
#: The maximum number of records of a run: their positions take some hundred kB.
_RUN_RECORDS: Final = 4096
_FEW: Final = 8


def record_spans(pieces: Iterable[bytes], count: int, first: int = 0, most_bytes: int = _MOST_BYTES) -> Iterator[Span]:
    """The records from number *first* on of the *count* records in *pieces*, each of at most *most_bytes* bytes.

    :raises CorruptRecordError: where a length is impossible or too large, or if *count* is not the number of records.
    """
    for data, starts, ends in record_runs(pieces, count, first, most_bytes):
        yield from zip(repeat(data), starts, ends)


def record_runs(pieces: Iterable[bytes], count: int, first: int = 0, most_bytes: int = _MOST_BYTES) -> Iterator[Run]:
    """The same records, in runs of some thousands.

    :raises CorruptRecordError: like :func:`record_spans`, after the preceding records were returned.
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
    """The starts and ends of at most *most* records from *position* on, as far as they are complete and valid."""
    starts: list[int] = []
    ends: list[int] = []
    last = len(data) - LEAST_BYTES
    for _ in range(most):
        if position >= last:
            break
        # Zig-zag: twice the length. The loop reads lengths of up to two bytes without a call.
        double = data[position]
        if double < 0x80:
            start = position + 1
        elif (more := data[position + 1]) < 0x80:
            double, start = double & 0x7F | more << 7, position + 2
        elif ends:
            # The length may be invalid; that error is raised after the preceding records were returned.
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
    """The parts of a record that extends beyond one piece; they are joined once all of them are present."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = 0

    def add(self, piece: bytes) -> bytes:
        """All bytes that are present, or none until the record is complete."""
        if not self._parts:
            return piece
        self._parts.append(piece)
        self._held += len(piece)
        return b"".join(self._parts) if self._held >= self._needed else b""

    def keep(self, data: bytes, position: int, needed: int) -> None:
        """Keep *data* from *position* on: the beginning of a record of *needed* bytes."""
        if data:
            self._parts = [data[position:]] if position < len(data) else []
            self._held, self._needed = len(data) - position, needed

    def check_end(self, index: int, count: int) -> None:
        """:raises CorruptRecordError: if record number *index* is incomplete, or not the last of *count*."""
        if self._parts:
            raise CorruptRecordError(f"record {index} of {self._needed} bytes does not fit into {self._held}")
        if index < count:
            raise CorruptRecordError(f"batch announces {count} records but holds {index}")


def _long_length(data: bytes, position: int) -> tuple[int, int]:
    """The length at *position*, and the start of the record; that is beyond *data* if the length is truncated."""
    left = len(data) - position
    if left < MAX_VARINT_BYTES and min(data[position:]) > 0x7F:
        return LEAST_BYTES, len(data) + 1
    return read_varint(data, position)


def _needed(data: bytes, position: int, index: int, most_bytes: int) -> int:
    """The size of the incomplete record at *position*, including its length."""
    size, start = _long_length(data, position)
    if size < LEAST_BYTES:
        raise CorruptRecordError(f"record {index} has an impossible length of {size} bytes")
    if size > most_bytes:
        raise CorruptRecordError(f"record {index} of {size} bytes is larger than the limit of {most_bytes}")
    return start - position + size


def _of_one_length(data: bytes, position: int, most: int) -> int:
    """The number of consecutive records, at most *most*, with the same length of one byte as the one at *position*; 0
    if there are few. It serves to skip millions of small records."""
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
