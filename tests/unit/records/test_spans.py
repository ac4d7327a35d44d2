"""Records are found by their lengths, however their bytes are split into pieces."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.spans import record_runs, record_spans
from tests.support.cases import with_each


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    at = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 1, 3, min(len(data), 2000)])))
    return [data[start:end] for start, end in pairwise([0, *at, len(data)])]


@with_each("seed", range(20))
def test_records_in_any_pieces(seed: int) -> None:
    rng = random.Random(seed)
    sizes = rng.choice([[6], [6, 7], [6, 63, 64, 65], [9, 9, 9, 300], [20_000, 6]])
    records = [rng.randbytes(rng.choice(sizes)) for _ in range(rng.randrange(1, 60))]
    data = b"".join(encode_varint(len(record)) + record for record in records)
    for first in {0, 1, rng.randrange(len(records)), len(records)}:
        found = [plain[start:end] for plain, start, end in record_spans(cut(rng, data), len(records), first)]
        assert found == records[first:]
    with pytest.raises(CorruptRecordError, match="bytes follow the last"):
        list(record_spans(cut(rng, data), len(records) - 1))
    with pytest.raises(CorruptRecordError, match=r"does not fit|announces|impossible"):
        list(record_spans(cut(rng, data[: -rng.randrange(1, 6)]), len(records)))


def spans(pieces: Iterable[bytes], count: int, first: int = 0) -> list[bytes]:
    return [data[start:end] for data, start, end in record_spans(pieces, count, first)]


def encoded(records: Iterable[bytes]) -> bytes:
    return b"".join(encode_varint(len(record)) + record for record in records)


# Few and many records of one length, then of the next one, and a large one; their own bytes look like lengths.
@with_each("size", [6, 7, 61, 62, 63, 64])
@with_each("count", [1, 8, 9, 20])
def test_records_of_one_length_are_passed_over(size: int, count: int) -> None:
    for filling in {0, min(2 * size, 0x80), min(2 * size + 2, 0x80), 0x80}:
        lengths = [*[size] * count, *[size + 1] * count, 100 * size, 7]
        records = [bytes([filling]) * length for length in lengths]
        data, groups = encoded(records), len(encoded(records[: 2 * count]))
        for first in {0, 1, count - 1, count, count + 1, 2 * count - 1, 2 * count, 2 * count + 1, 2 * count + 2}:
            for at in {0, 1, size, size + 1, groups - size, groups - 1, groups, groups + 1, len(data) - 1}:
                assert spans([data[:at], data[at:]], len(records), first) == records[first:]


@with_each("size", [8191, 8192, 8193, 16384, 1_048_575, 1_048_576])
def test_long_lengths_that_are_cut_anywhere(size: int) -> None:
    records = [bytes(6), bytes(size), bytes(7)]
    data = encoded(records)
    for at in (6, 7, 8, 9, 10, 11, 12, size + 9, size + 10, size + 11, size + 12):
        assert spans([data[:at], data[at:]], 3) == records
    assert spans([data[:8], data[8:9], b"", data[9:10], data[10:]], 3) == records


def test_a_length_in_more_bytes_than_it_needs() -> None:
    data = b"\x8c\x80\0" + b"record"
    for at in range(len(data)):
        assert spans([data[:at], data[at:]], 1) == [b"record"]


def test_a_run_is_of_some_records() -> None:
    data = encoded([b"record", b"longer record"] * 3)
    for first in range(7):
        runs = list(record_runs([data[:30], data[30:]], 6, first))
        assert all(starts and len(starts) == len(ends) for _, starts, ends in runs)
        assert sum(len(starts) for _, starts, _ in runs) == 6 - first


GOOD = encoded([b"record"])


@with_each("count", [0, 1])
def test_what_follows_the_last_record(count: int) -> None:
    assert spans([GOOD * count], count) == spans([b"", GOOD * count, b""], count) == [b"record"] * count
    for behind in (b"x", b"\0", b"\x0c"):
        with pytest.raises(CorruptRecordError, match=f"1 bytes follow the last of {count} records"):
            spans([GOOD * count + behind], count)
    with pytest.raises(CorruptRecordError, match=f"batch announces {count + 1} records but holds {count}"):
        spans([GOOD * count], count + 1)


@with_each(
    ("length", "message"),
    [
        (b"\x0a" + bytes(5), "record {} has an impossible length of 5 bytes"),
        (b"\x0d" + bytes(6), "record {} has an impossible length of -7 bytes"),
        (b"\0" + bytes(9), "record {} has an impossible length of 0 bytes"),
        (b"\x8d\0" + bytes(9), "record {} has an impossible length of -7 bytes"),
        (b"\x8d\x80\0" + bytes(9), "record {} has an impossible length of -7 bytes"),
        (b"\x80\x80\0" + bytes(9), "record {} has an impossible length of 0 bytes"),
        (b"\x82\x80\0" + bytes(9), "record {} has an impossible length of 1 bytes"),
        (b"\x8a\x80\0" + bytes(9), "record {} has an impossible length of 5 bytes"),
        (b"\xff" * 5, "longer than 5 bytes"),
        (b"\xff" * 9, "longer than 5 bytes"),
        (b"\x80" * 4, "record {} of 11 bytes does not fit into 4"),
        (b"\x8c\x80", "record {} of 9 bytes does not fit into 2"),
        (b"\x80\x80\1\0", "record {} of 8195 bytes does not fit into 4"),
        (b"\x80\x80\x7f", "record {} of 1040387 bytes does not fit into 3"),
        (b"\x0c" + bytes(5), "record {} of 7 bytes does not fit into 6"),
        (b"\xfe\xff\xff\xff\x0f", "record {} of 2147483652 bytes does not fit into 5"),
        (b"\x80\x80\x80\x80\x10", "record {} of 2147483648 bytes is larger than the limit of 2147483647"),
    ],
)
def test_lengths_that_cannot_be(length: bytes, message: str) -> None:
    """One such length, or many, also where records are skipped; and after a valid record, which is returned first."""
    for data, first in ((length, 0), (length * 20, 0), (length * 20, 15)):
        if data == length or "fit into" not in message:
            with pytest.raises(CorruptRecordError, match=message.format(0)):
                spans([data], 20, first)
    found = record_spans([GOOD + length], 2)
    assert next(found) == (GOOD + length, 1, 7)
    with pytest.raises(CorruptRecordError, match=message.format(1)):
        next(found)


def test_a_record_of_the_limit_in_two_pieces() -> None:
    data = encoded([bytes(100)])
    for at in range(len(data)):
        assert len(list(record_spans([data[:at], data[at:]], 1, most_bytes=100))) == 1


@pytest.mark.behaviour("Log reader", "A negative number of records is refused before anything is decompressed")
def test_a_negative_number_of_records_is_refused() -> None:
    taken: list[bytes] = []
    pieces = (taken.append(b"") or bytes(9) for _ in range(3))
    with pytest.raises(CorruptRecordError, match="announces -1 records"):
        next(record_spans(pieces, -1))
    assert not taken


@pytest.mark.behaviour("Log reader", "A record costs what is shown of it, however many its batch announces")
def test_records_that_are_passed_over_are_not_looked_at() -> None:
    """Ten million records of seven bytes are skipped by their lengths alone, a MiB at a time."""
    one = encode_varint(6) + b"\0\0\0\1\1\0"
    pieces, taken = 70, [0]

    def counted() -> object:
        for _ in range(pieces):
            taken[0] += 1
            yield one * (1 << 17)

    count = pieces << 17
    assert len(list(record_spans(counted(), count, count - 2))) == 2  # type: ignore[arg-type]
    taken[0] = 0
    next(record_spans(counted(), count))  # type: ignore[arg-type]
    assert taken == [1]


def test_a_record_above_the_limit_ends_the_batch() -> None:
    record = encode_varint(100) + bytes(100)
    assert len(list(record_spans([record], 1, most_bytes=100))) == 1
    with pytest.raises(CorruptRecordError, match="record 0 of 100 bytes is larger than the limit of 99"):
        list(record_spans([record[:4]], 1, most_bytes=99))
