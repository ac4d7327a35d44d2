"""Compares two sequences of records by 64-bit hashes of the records and of their keys.

Pure functions of the hashes. A record takes 18 bytes and is not kept itself, so more records can be compared than fit
in memory; the comparison takes about the same amount again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.int64]

#: Represents "no key"; the order of such records is not compared.
_NO_KEY: Final = np.iinfo(np.int64).min
#: The maximum number of examples in a verdict.
_SHOWN: Final = 5


class Fingerprint:
    """The records of one side in their order; filled once, by one thread."""

    def __init__(self) -> None:
        self._records = array("q")
        self._keys = array("q")
        self._partitions = array("h")

    def __len__(self) -> int:
        return len(self._records)

    def add(self, key: bytes | None, value: bytes | None, partition: int = 0) -> None:
        # Python's hash of bytes is SipHash with a secret of this process, which is the same for both sides.
        self._records.append(hash((key, value)))
        self._keys.append(_NO_KEY if key is None else hash(key))
        self._partitions.append(partition)

    @property
    def records(self) -> Hashes:
        return np.frombuffer(self._records, np.int64)

    @property
    def keys(self) -> Hashes:
        return np.frombuffer(self._keys, np.int64)

    @property
    def partitions(self) -> NDArray[np.int16]:
        return np.frombuffer(self._partitions, np.int16)


@dataclass(frozen=True)
class Verdict:
    """The differences between two sides. ``twice`` counts records that occur more often than expected, ``extra``
    records that are not expected at all. The order is checked for keys with the correct records, if these are in one
    partition."""

    expected: int
    written: int
    missing: int
    twice: int
    extra: int
    keys: int
    keys_judged: int
    keys_out_of_order: int
    keys_in_several_partitions: int
    #: The positions of the first missing records in the input, counted from 0.
    missing_rows: tuple[int, ...]

    @property
    def has_the_same_records(self) -> bool:
        return not (self.missing or self.twice or self.extra)

    @property
    def is_in_order(self) -> bool:
        return not (self.keys_out_of_order or self.keys_in_several_partitions)


def compare(expected: Fingerprint, written: Fingerprint) -> Verdict:
    """The differences between *written* and *expected*."""
    known, counts = np.unique(expected.records, return_counts=True)
    actual, actual_counts = np.unique(written.records, return_counts=True)
    there = _counts_of(known, actual, actual_counts)
    wanted = _counts_of(actual, known, counts)
    missing = np.maximum(counts - there, 0)
    surplus = np.maximum(actual_counts - wanted, 0)
    keys = np.unique(expected.keys[expected.keys != _NO_KEY])
    wrong = np.union1d(
        expected.keys[np.isin(expected.records, known[missing > 0])],
        written.keys[np.isin(written.records, actual[surplus > 0])],
    )
    judged = np.setdiff1d(keys, wrong, assume_unique=True)
    several = _in_several_partitions(written, judged)
    rows = np.flatnonzero(np.isin(expected.records, known[missing > 0])) if missing.any() else np.empty(0, np.int64)
    return Verdict(
        expected=len(expected),
        written=len(written),
        missing=int(missing.sum()),
        twice=int(surplus[wanted > 0].sum()),
        extra=int(surplus[wanted == 0].sum()),
        keys=len(keys),
        keys_judged=len(judged),
        keys_out_of_order=_out_of_order(expected, written, np.setdiff1d(judged, several, assume_unique=True)),
        keys_in_several_partitions=len(several),
        missing_rows=tuple(int(row) for row in rows[:_SHOWN]),
    )


def _counts_of(hashes: Hashes, others: Hashes, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of *hashes* occurs in *others*; both are sorted and without repetitions."""
    if not len(others):
        return np.zeros(len(hashes), np.int64)
    places: Any = np.minimum(np.searchsorted(others, hashes), len(others) - 1)
    return np.where(others[places] == hashes, counts[places], 0)


def _by_key(side: Fingerprint, keys: Hashes) -> tuple[Hashes, Hashes, NDArray[np.int16]]:
    """Keys, records and partitions of the records with one of *keys*, sorted by key; the records of a key keep their
    order."""
    chosen = np.flatnonzero(np.isin(side.keys, keys))
    chosen = chosen[np.argsort(side.keys[chosen], kind="stable")]
    return side.keys[chosen], side.records[chosen], side.partitions[chosen]


def _in_several_partitions(written: Fingerprint, keys: Hashes) -> Hashes:
    of_key, _, partitions = _by_key(written, keys)
    moved = (of_key[1:] == of_key[:-1]) & (partitions[1:] != partitions[:-1])
    return np.unique(of_key[1:][moved])


def _out_of_order(expected: Fingerprint, written: Fingerprint, keys: Hashes) -> int:
    """The number of *keys* whose records, which are the same on both sides, have a different order."""
    of_key, wanted, _ = _by_key(expected, keys)
    _, actual, _ = _by_key(written, keys)
    return len(np.unique(of_key[wanted != actual]))
