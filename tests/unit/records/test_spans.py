"""Records found by their lengths, however their bytes are cut into pieces."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.spans import record_spans
from tests.support.cases import with_each


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    at = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 1, 3, len(data)])))
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


@pytest.mark.behaviour("Log reader", "A negative number of records is refused before anything is decompressed")
def test_a_negative_number_of_records_is_refused() -> None:
    taken: list[bytes] = []
    pieces = (taken.append(b"") or bytes(9) for _ in range(3))
    with pytest.raises(CorruptRecordError, match="announces -1 records"):
        next(record_spans(pieces, -1))
    assert not taken


@pytest.mark.behaviour("Log reader", "A record costs what is shown of it, however many its batch announces")
def test_records_that_are_passed_over_are_not_looked_at() -> None:
    """Ten million records of seven bytes are passed over by their lengths alone, a MiB at a time."""
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
