"""The sparse index, in memory and as a file."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.broker.log.segment import OffsetIndex, Seal

BATCHES = st.lists(st.tuples(st.integers(1, 50), st.integers(61, 5000), st.integers(0, 10**6)), max_size=60)


def build(batches: list[tuple[int, int, int]], interval: int) -> tuple[OffsetIndex, list[tuple[int, int, int]]]:
    """Index of batches (records, bytes, timestamp), and the beginning of each: (offset, position, timestamp)."""
    index, placed = OffsetIndex(interval), []
    offset = position = 0
    latest = -1
    for records, size, timestamp in batches:
        index.add(offset, position, latest)
        index.add_epoch(records // 10, offset)
        placed.append((offset, position, timestamp))
        offset, position, latest = offset + records, position + size, max(latest, timestamp)
    return index, placed


@given(BATCHES, st.integers(0, 8192), st.integers(0, 4000))
def test_index_position_is_within_one_interval_before_the_batch(
    batches: list[tuple[int, int, int]], interval: int, offset: int
) -> None:
    index, placed = build(batches, interval)
    entry = index.entry_for_offset(offset)
    assert (entry is None) == (not placed)
    first, found = entry or (0, 0)
    assert entry is None or (first, found) in [(base, position) for base, position, _ in placed]
    holding = max((position for first, position, _ in placed if first <= offset), default=0)
    assert found <= holding
    assert holding - found < max(interval, 1)


@pytest.mark.behaviour("Log", "A search by time passes over older batches only")
@given(BATCHES, st.integers(0, 8192), st.integers(-5, 10**6 + 5))
def test_all_batches_before_timestamp_position_are_older(
    batches: list[tuple[int, int, int]], interval: int, timestamp: int
) -> None:
    index, placed = build(batches, interval)
    found = index.position_for_timestamp(timestamp)
    assert all(stamped < timestamp for _, position, stamped in placed if position < found)


@given(BATCHES, st.integers(0, 4096))
def test_offset_index_is_read_back_from_its_file(batches: list[tuple[int, int, int]], interval: int) -> None:
    index, _ = build(batches, interval)
    seal = Seal(123456, 77, 99, 55)
    assert OffsetIndex.from_bytes(index.to_bytes(seal), interval) == (index, seal)


def test_damage_anywhere_is_noticed() -> None:
    index, _ = build([(3, 100, 5), (4, 100, 6), (5, 200, 7)], 0)
    data = index.to_bytes(Seal(400, 12, 7, 7))
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        assert OffsetIndex.from_bytes(bytes(damaged), 0) is None
    for end in range(len(data)):
        assert OffsetIndex.from_bytes(data[:end], 0) is None


def test_leader_epochs_are_kept_with_their_first_offsets() -> None:
    index = OffsetIndex(4096)
    assert (index.last_epoch, index.epochs()) == (-1, [])
    for epoch, offset in [(0, 5), (0, 6), (3, 9), (3, 12), (4, 20)]:
        index.add_epoch(epoch, offset)
    assert (index.last_epoch, index.epochs()) == (4, [(0, 5), (3, 9), (4, 20)])


@pytest.mark.parametrize("interval", [0, 4096])
def test_an_empty_index_says_begin_at_the_start(interval: int) -> None:
    index = OffsetIndex(interval)
    assert (index.entry_for_offset(10), index.position_for_timestamp(10)) == (None, 0)


def test_an_entry_is_added_an_interval_after_the_last_one() -> None:
    index = OffsetIndex(100)
    for offset, position, latest in [(5, 50, -1), (6, 149, 10), (7, 150, 20), (8, 249, 30), (9, 250, 40)]:
        index.add(offset, position, latest)
    assert len(index) == 3
    found = [index.entry_for_offset(offset) for offset in range(4, 11)]
    assert found == [None, (5, 50), (5, 50), (7, 150), (7, 150), (9, 250), (9, 250)]
    found_times = {stamp: index.position_for_timestamp(stamp) for stamp in (-2, -1, 0, 20, 21, 40, 41)}
    assert found_times == {-2: 0, -1: 0, 0: 50, 20: 50, 21: 150, 40: 150, 41: 250}


def test_the_epoch_at_an_offset_is_the_one_that_began_before() -> None:
    index = OffsetIndex(100)
    assert index.epoch_at(5) == -1
    index.add_epoch(2, 5)
    index.add_epoch(4, 9)
    assert [index.epoch_at(offset) for offset in (4, 5, 8, 9, 100)] == [-1, 2, 2, 4, 4]


def index_file(count: int, epochs: int, numbers: Sequence[int], magic: bytes = b"KLX2") -> bytes:
    """An index file with a valid checksum, whatever sizes it states."""
    body = struct.pack(">qqqqii", 400, 12, 7, 6, count, epochs) + struct.pack(f">{len(numbers)}q", *numbers)
    return magic + struct.pack(">I", crc32c(body)) + body


def test_the_bytes_of_an_index_file() -> None:
    index, seal = OffsetIndex(100), Seal(400, 12, 7, 6)
    assert index.to_bytes(seal) == index_file(0, 0, [])
    assert OffsetIndex.from_bytes(index_file(0, 0, []), 100) == (index, seal)
    index.add(5, 0, -1)
    assert OffsetIndex.from_bytes(index_file(1, 0, [5, 0, -1]), 100) == (index, seal)
    index.add(7, 100, 20)
    index.add_epoch(3, 5)
    data = index_file(2, 1, [5, 7, 0, 100, -1, 20, 3, 5])
    assert index.to_bytes(seal) == data
    assert OffsetIndex.from_bytes(data, 100) == (index, seal)


@pytest.mark.parametrize(
    ("count", "epochs", "numbers"),
    [(-2, 3, 0), (2, -3, 0), (-1, 0, 0), (0, -1, 0), (1, 0, 2), (1, 0, 4), (0, 1, 1), (0, 1, 3), (2, 1, 7), (2, 1, 9)],
)
def test_counts_that_contradict_the_size_are_damage(count: int, epochs: int, numbers: int) -> None:
    assert OffsetIndex.from_bytes(index_file(count, epochs, range(numbers)), 100) is None
    assert OffsetIndex.from_bytes(index_file(2, 1, range(8)), 100) is not None
    assert OffsetIndex.from_bytes(index_file(2, 1, range(8), b"KLX1"), 100) is None
