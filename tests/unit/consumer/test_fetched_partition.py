"""From the bytes of a fetch response to records: control batches, aborted transactions, damage, limits."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Header, TopicPartition
from kafka_sink.consumer.fetched_partition import AbortedTransactions, ConsumedRecord, FetchedPartition
from kafka_sink.records.batch import write_header
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import write_record
from tests.support.cases import with_each

EVENTS_3 = TopicPartition("events", 3)
ABORT, COMMIT = 0, 1
Row = tuple[bytes | None, bytes | None, tuple[Header, ...]]


def batch(
    base_offset: int,
    values: Sequence[bytes | Row | None],
    *,
    producer_id: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    compression: CompressionType = CompressionType.NONE,
) -> bytes:
    records = bytearray()
    for index, row in enumerate(values):
        key, value, headers = row if isinstance(row, tuple) else (None, row, ())
        write_record(records, index, index, key, value, headers)
    body = compress(compression, records, None) if compression else bytes(records)
    header = bytearray(HEADER_BYTES)
    write_header(
        header,
        [body],
        last_offset_delta=len(values) - 1,
        base_timestamp=1_000,
        max_timestamp=1_000 + len(values) - 1,
        record_count=len(values),
        compression=compression,
        is_transactional=is_transactional,
        is_control=is_control,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 and not is_control else -1,
    )
    return bytes(header) + bytes(body)


def data(base_offset: int, producer_id: int, *values: bytes) -> bytes:
    return batch(base_offset, values, producer_id=producer_id, is_transactional=True)


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    row: Row = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), ())
    return batch(offset, [row], producer_id=producer_id, is_transactional=True, is_control=True)


def values(fetched: FetchedPartition) -> list[bytes | None]:
    return [record.value for record in fetched]


def test_records_carry_where_they_are_and_all_they_hold() -> None:
    row: Row = (b"k", b"v", (("h", b"1"), ("n", None)))
    fetched = FetchedPartition(EVENTS_3, batch(10, [row, None]), 10)
    assert list(fetched) == [
        ConsumedRecord("events", 3, 10, 1_000, b"k", b"v", (("h", b"1"), ("n", None))),
        ConsumedRecord("events", 3, 11, 1_001, None, None, ()),
    ]
    assert fetched.next_offset == 12


def test_records_before_the_position_are_left_out() -> None:
    # Brokers return whole batches, from the batch that contains the fetch offset on.
    fetched = FetchedPartition(EVENTS_3, batch(0, [b"a", b"b"]) + batch(2, [b"c", b"d"]), 3)
    assert values(fetched) == [b"d"]
    assert fetched.next_offset == 4


@with_each("codec", [codec for codec in CompressionType if codec])
def test_every_codec(codec: CompressionType) -> None:
    assert values(FetchedPartition(EVENTS_3, batch(0, [b"a" * 100] * 3, compression=codec), 0)) == [b"a" * 100] * 3


def test_truncated_last_batch_is_left_for_the_next_answer() -> None:
    whole, cut = batch(0, [b"a"]), batch(1, [b"b"])
    for size in range(len(cut)):
        fetched = FetchedPartition(EVENTS_3, whole + cut[:size], 0)
        assert values(fetched) == [b"a"]
        assert fetched.next_offset == 1


def test_no_data_is_no_records_and_no_progress() -> None:
    fetched = FetchedPartition(EVENTS_3, b"", 7)
    assert values(fetched) == []
    assert fetched.next_offset == 7


@pytest.mark.parametrize("answer", [batch(5, [b"a"])[:30], batch(5, [b"a"])[:-1], batch(0, [b"a"])])
def test_answer_without_a_complete_batch_is_refused(answer: bytes) -> None:
    with pytest.raises(
        CorruptRecordError, match=rf"events-3 at offset 5: no complete batch in an answer of {len(answer)}"
    ):
        list(FetchedPartition(EVENTS_3, answer, 5))


def test_flipped_bit_is_detected_and_earlier_records_are_kept() -> None:
    damaged = bytearray(batch(0, [b"a"]) + batch(1, [b"b"]))
    damaged[-1] ^= 1
    seen: list[bytes | None] = []
    with pytest.raises(CorruptRecordError, match=r"events-3 at offset 1: .*CRC"):
        seen.extend(record.value for record in FetchedPartition(EVENTS_3, damaged, 0))
    fetched = iter(FetchedPartition(EVENTS_3, damaged, 0))
    assert next(fetched).value == b"a"


def test_checksums_are_not_verified_if_told_so() -> None:
    damaged = bytearray(batch(0, [b"ab"]))
    damaged[-2] ^= 1
    assert values(FetchedPartition(EVENTS_3, damaged, 0, check_crcs=False)) == [b"ac"]


@pytest.mark.behaviour("Compression", "A decompression bomb is refused")
def test_a_batch_that_decompresses_to_too_much_is_refused() -> None:
    bomb = batch(0, [b"\0" * 100_000], compression=CompressionType.GZIP)
    with pytest.raises(CorruptRecordError, match="events-3 at offset 0"):
        list(FetchedPartition(EVENTS_3, bomb, 0, max_decompressed_bytes=10_000))


def test_control_batches_are_passed_over() -> None:
    log = data(0, 7, b"a") + marker(1, 7, COMMIT) + batch(2, [b"b"])
    fetched = FetchedPartition(EVENTS_3, log, 0)
    assert values(fetched) == [b"a", b"b"]
    assert fetched.next_offset == 3


@pytest.mark.behaviour("Log reader", "The position moves past an answer without records")
def test_the_position_moves_past_an_answer_of_markers_only() -> None:
    fetched = FetchedPartition(EVENTS_3, marker(4, 7, COMMIT), 4)
    assert values(fetched) == []
    assert fetched.next_offset == 5


def test_aborted_records_are_returned_without_read_committed() -> None:
    assert values(FetchedPartition(EVENTS_3, data(0, 7, b"a") + marker(1, 7, ABORT), 0)) == [b"a"]


def test_aborted_records_are_skipped_up_to_their_abort_marker() -> None:
    log = b"".join(
        (
            data(0, 7, b"committed"),
            marker(1, 7, COMMIT),
            data(2, 7, b"aborted", b"too"),
            data(4, 8, b"other producer"),
            batch(5, [b"no transaction"]),
            marker(6, 7, ABORT),
            data(7, 7, b"next transaction"),
            marker(8, 8, COMMIT),
            marker(9, 7, COMMIT),
        )
    )
    fetched = FetchedPartition(EVENTS_3, log, 0, aborted=AbortedTransactions([(7, 2)]))
    assert values(fetched) == [b"committed", b"other producer", b"no transaction", b"next transaction"]
    assert fetched.next_offset == 10


@pytest.mark.behaviour("Log reader", "Aborted transactions are left out, in whatever order the answer lists them")
def test_two_aborted_transactions_of_one_producer_in_one_answer() -> None:
    log = data(0, 7, b"x") + marker(1, 7, ABORT) + data(2, 7, b"ok") + marker(3, 7, COMMIT)
    log += data(4, 7, b"y") + marker(5, 7, ABORT)
    # The list of aborted transactions has no particular order.
    assert values(FetchedPartition(EVENTS_3, log, 0, aborted=AbortedTransactions([(7, 4), (7, 0)]))) == [b"ok"]


@pytest.mark.behaviour("Log reader", "Aborted transactions are left out, in whatever order the answer lists them")
def test_second_abort_marker_of_a_producer_changes_nothing() -> None:
    log = data(0, 7, b"x") + marker(1, 7, ABORT) + marker(2, 7, ABORT) + data(3, 7, b"ok") + marker(4, 7, COMMIT)
    log += data(5, 7, b"y") + marker(6, 7, ABORT) + marker(7, 7, ABORT) + marker(8, 9, ABORT) + data(9, 7, b"end")
    fetched = FetchedPartition(EVENTS_3, log, 0, aborted=AbortedTransactions([(7, 5), (7, 0)]))
    assert values(fetched) == [b"ok", b"end"]
    assert fetched.next_offset == 10


def test_an_aborted_transaction_that_began_before_this_answer() -> None:
    log = data(10, 7, b"x") + marker(11, 7, ABORT) + data(12, 7, b"y")
    assert values(FetchedPartition(EVENTS_3, log, 10, aborted=AbortedTransactions([(7, 3)]))) == [b"y"]


@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4),
    codec=st.sampled_from(CompressionType),
    check_crcs=st.booleans(),
)
def test_damage_is_a_corrupt_record_error_and_nothing_else(
    flips: list[tuple[int, int]], codec: CompressionType, check_crcs: bool
) -> None:
    log = bytearray(data(0, 7, b"a" * 50, b"b") + marker(2, 7, ABORT) + batch(3, [b"c" * 200, None], compression=codec))
    for place, mask in flips:
        log[place % len(log)] ^= mask
    aborted = AbortedTransactions([(7, 0)])
    fetched = FetchedPartition(EVENTS_3, log, 0, aborted=aborted, max_decompressed_bytes=10_000, check_crcs=check_crcs)
    with contextlib.suppress(CorruptRecordError):
        assert all(isinstance(record, ConsumedRecord) for record in fetched)
        assert fetched.next_offset > 0
