"""Where the records of a batch are: found by their lengths alone, piece by piece, and nothing is made of them.

Readers and brokers call it on their own threads. It holds one piece of decompressed data and the record that goes
beyond it, however many records a batch has: a few kB may announce millions.

Source: https://kafka.apache.org/documentation/#record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.varint import MAX_VARINT_BYTES, read_varint

#: The bytes that a record is in, where it begins in them behind its length, and where it ends.
Span = tuple[bytes, int, int]
#: A record without its length: attributes, two deltas, two null lengths and the number of headers, one byte each.
LEAST_BYTES: Final = 6
_MOST_BYTES: Final = 2**31 - 1


def record_spans(pieces: Iterable[bytes], count: int, first: int = 0, most_bytes: int = _MOST_BYTES) -> Iterator[Span]:
    """The records from number *first* on of the *count* that *pieces* hold, of at most *most_bytes* bytes each.

    :raises CorruptRecordError: where a length is impossible or too large, or if the records are not as many.
    """
    index, joined = 0, _Joined()
    for piece in pieces:
        data = joined.add(piece)
        position, held, needed = 0, len(data), 0
        while index < count and position < held:
            if index < first and (passed := _of_one_length(data, position, min(first, count) - index)):
                index, position = index + passed, position + passed * (1 + (data[position] >> 1))
                continue
            size, start = data[position], position + 1
            size, start = _long_length(data, position) if size > 0x7F else ((size >> 1) ^ -(size & 1), start)
            if start + size > held or not LEAST_BYTES <= size <= most_bytes:
                needed = _needed(index, size, start - position, most_bytes)
                break
            if index >= first:
                yield data, start, start + size
            index += 1
            position = start + size
        if index == count and position < held:
            raise CorruptRecordError(f"{held - position} bytes follow the last of {count} records")
        joined.keep(data, position, needed)
    joined.check_end(index, count)


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


def _needed(index: int, size: int, length_bytes: int, most_bytes: int) -> int:
    """The bytes of a record that is not whole, with its length."""
    if size < LEAST_BYTES:
        raise CorruptRecordError(f"record {index} has an impossible length of {size} bytes")
    if size > most_bytes:
        raise CorruptRecordError(f"record {index} of {size} bytes is larger than the limit of {most_bytes}")
    return length_bytes + size


def _of_one_length(data: bytes, position: int, most: int) -> int:
    """How many records, at most *most*, have the length of the one at *position*, which takes a byte, and follow one
    another. Millions of small ones are passed over so.
    """
    length = data[position : position + 1]
    stride = 1 + (length[0] >> 1)
    if length[0] > 0x7F or length[0] & 1 or stride <= LEAST_BYTES:
        return 0
    most = min(most, (len(data) - position) // stride)
    found, step = 0, 8
    while found < most:
        at = position + found * stride
        lengths = data[at : at + step * stride : stride]
        same = len(lengths) - len(lengths.lstrip(length))
        found += same
        if same < step:
            break
        step *= 8
    return min(found, most)
