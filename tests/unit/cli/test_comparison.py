"""The differences that ``kafkalite verify`` finds between two sequences of records."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafka_sink.cli.comparing import Fingerprint, Verdict, compare

Record = tuple[bytes | None, bytes | None, int]


def fingerprint(records: Sequence[Record]) -> Fingerprint:
    side = Fingerprint()
    for key, value, partition in records:
        side.add(key, value, partition)
    return side


def verdict(expected: Sequence[Record], written: Sequence[Record]) -> Verdict:
    return compare(fingerprint(expected), fingerprint(written))


INPUT: list[Record] = [(b"k%d" % (n % 3), b"v%d" % n, n % 3) for n in range(30)]


def test_same_records_interleaved_over_partitions_are_equal() -> None:
    found = verdict(INPUT, sorted(INPUT, key=lambda record: record[2]))
    assert (found.missing, found.twice, found.extra, found.keys, found.keys_judged) == (0, 0, 0, 3, 3)
    assert found.has_the_same_records
    assert found.is_in_order


@pytest.mark.behaviour(
    "kafkalite verify", "Missing, repeated and extra rows are counted apart, and the order of the other keys is judged"
)
def test_missing_repeated_and_extra_rows_are_counted_apart() -> None:
    written = [record for record in INPUT if record[1] != b"v4"]
    written += [INPUT[0], INPUT[0], (b"other", b"x", 0)]
    found = verdict(INPUT, written)
    assert (found.missing, found.twice, found.extra) == (1, 2, 1)
    assert found.missing_rows == (4,)
    assert (found.keys, found.keys_judged, found.keys_out_of_order) == (3, 1, 0)
    assert not found.has_the_same_records


def test_rows_that_the_input_has_twice_are_expected_twice() -> None:
    doubled = [*INPUT, *INPUT]
    assert verdict(doubled, doubled).has_the_same_records
    assert verdict(doubled, INPUT).missing == 30
    assert verdict(INPUT, doubled).twice == 30


def test_two_records_of_a_key_that_changed_places() -> None:
    written = [*INPUT]
    written[0], written[3] = written[3], written[0]
    found = verdict(INPUT, written)
    assert found.has_the_same_records
    assert (found.keys_out_of_order, found.is_in_order) == (1, False)


def test_a_key_in_several_partitions_has_no_order() -> None:
    written = [*INPUT[:-1], (*INPUT[-1][:2], 7)]
    found = verdict(INPUT, written)
    assert (found.keys_in_several_partitions, found.keys_out_of_order, found.is_in_order) == (1, 0, False)


def test_null_and_empty_differ_and_keyless_rows_have_no_order() -> None:
    records: list[Record] = [(None, b"", 0), (b"", None, 0), (None, None, 1), (b"", b"", 0)]
    assert verdict(records, records).has_the_same_records
    assert verdict(records[:1], records).extra == 3
    rows: list[Record] = [(None, b"%d" % n, 0) for n in range(5)]
    assert verdict(rows, rows[::-1]).is_in_order


@pytest.mark.parametrize("side", ["expected", "written"])
def test_one_side_is_empty(side: str) -> None:
    found = verdict(INPUT, []) if side == "expected" else verdict([], INPUT)
    assert (found.missing, found.extra) == ((30, 0) if side == "expected" else (0, 30))


@pytest.mark.behaviour("kafkalite verify", "Random damage is counted as a plain count does it")
def test_random_damage_is_counted_as_a_plain_count_does() -> None:
    rng = random.Random(3)
    for _ in range(200):
        expected = [(b"%d" % rng.randrange(4), b"%d" % rng.randrange(6), 0) for _ in range(rng.randrange(12))]
        written = [record for record in expected for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        written += [(b"9", b"9", 0)] * rng.randrange(2)
        found = verdict(expected, written)
        missing = [*expected]
        surplus = [record for record in written if record not in missing or missing.remove(record)]
        assert found.missing == len(missing)
        assert found.twice == sum(record in expected for record in surplus)
        assert found.extra == sum(record not in expected for record in surplus)
