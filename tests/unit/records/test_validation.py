"""What a broker lets in: every way in which a batch can be wrong, and its code."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.records import layout
from kafka_sink.records.compression import CompressionType
from tests.fakes.record_batches import make_batch, validated
from tests.hostile.batches import batch_of, record_of
from tests.support.cases import with_each

GOOD = bytes(make_batch([b"a", b"b", b"c"]))
CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]


def edited(at: int, form: str, value: int, batch: bytes = GOOD, *, sum_up: bool = True) -> bytes:
    data = bytearray(batch)
    struct.pack_into(form, data, at, value)
    if sum_up:
        struct.pack_into(">I", data, layout.CRC_AT, crc32c(bytes(data[layout.ATTRIBUTES_AT :])))
    return bytes(data)


def counted(count: int, batch: bytes = GOOD) -> bytes:
    """*batch* with another number of records in its header, the last offset to fit."""
    return edited(23, ">i", count - 1, edited(57, ">i", count, batch))


def refusal(data: Buffer | None, **rules: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        validated(data, **rules)  # type: ignore[arg-type]
    assert str(caught.value)
    return caught.value.code


@with_each("codec", CompressionType)
@with_each("count", [1, 3, 128, 129, 3000])
@with_each("size", [0, 50, 100, 9000])
def test_what_a_producer_sends_is_let_in(codec: CompressionType, count: int, size: int) -> None:
    # Lengths of one, two and three bytes; few records where they are large.
    count = min(count, 129) if size == 9000 else count
    assert validated(make_batch([b"v" * size] * count, compression=codec)).record_count == count


@pytest.mark.behaviour("Log", "Every wrong batch header has its error code")
@with_each(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD[:60], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (edited(30, ">b", 1, sum_up=False), ErrorCode.CORRUPT_MESSAGE),
        (edited(16, ">b", 0), ErrorCode.INVALID_RECORD),
        (edited(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (edited(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        (edited(8, ">i", -5), ErrorCode.CORRUPT_MESSAGE),
        (edited(8, ">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (edited(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (edited(21, ">h", layout.CONTROL_BIT), ErrorCode.INVALID_RECORD),
        (edited(21, ">h", layout.TRANSACTIONAL_BIT), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (edited(21, ">h", layout.TIMESTAMP_TYPE_BIT), ErrorCode.INVALID_TIMESTAMP),
        (edited(43, ">q", 5), ErrorCode.INVALID_RECORD),
        (edited(57, ">i", 2), ErrorCode.INVALID_RECORD),
        (edited(23, ">i", -1), ErrorCode.INVALID_RECORD),
    ],
)
def test_every_wrong_header_has_its_code(data: bytes | None, code: ErrorCode) -> None:
    assert refusal(data) is code


@pytest.mark.behaviour("Log", "A wrong record count is noticed")
@with_each("count", [-1, 0, 2, 4, 128, 129, 2**31 - 1])
def test_a_wrong_count_is_noticed(count: int) -> None:
    assert refusal(counted(count)) is ErrorCode.INVALID_RECORD


@with_each("codec", CODECS)
@with_each("count", [-1, 0, 999, 1001, 2**31 - 1])
def test_a_wrong_count_of_compressed_records_is_noticed(codec: CompressionType, count: int) -> None:
    assert refusal(counted(count, bytes(make_batch([b"x"] * 1000, compression=codec)))) is ErrorCode.INVALID_RECORD


def test_large_uncompressed_batch_detects_only_impossible_count() -> None:
    # Walking it costs more than storing it; who reads it notices.
    data = bytes(make_batch([b"x" * 20] * 1000))
    assert validated(counted(999, data)).record_count == 999
    assert refusal(counted(1 + (len(data) - layout.HEADER_BYTES) // 7, data)) is ErrorCode.INVALID_RECORD


@with_each("length", [b"\x01", b"\x0a", b"\x7e", b"\xfe\x7f", b"\xff\xff\xff\xff\x0f", b"\xff" * 6])
def test_lengths_that_no_record_has(length: bytes) -> None:
    # One of -1, too short for its own fields, longer than what is left, the most negative one, none at all.
    data = bytearray(make_batch([b"abcdef"]))
    data[layout.HEADER_BYTES : layout.HEADER_BYTES + len(length)] = length
    assert refusal(edited(8, ">i", len(data) - 12, bytes(data))) is ErrorCode.INVALID_RECORD


def test_negative_length_with_a_matching_end_is_detected() -> None:
    # Zig-zag: the lowest bit is the sign.
    assert refusal(edited(layout.HEADER_BYTES, ">B", GOOD[layout.HEADER_BYTES] | 1)) is ErrorCode.INVALID_RECORD


@pytest.mark.behaviour("Log", "A damaged payload is a fatal error")
@with_each("codec", CODECS)
def test_a_damaged_payload_is_final(codec: CompressionType) -> None:
    data = bytes(make_batch([b"abc" * 50], compression=codec))
    for at in (layout.HEADER_BYTES, layout.HEADER_BYTES + 9):
        assert refusal(edited(at, ">q", 0x0123_4567_89AB_CDEF, data)) is ErrorCode.INVALID_RECORD
    cut = data[:-5]
    assert refusal(edited(8, ">i", len(cut) - 12, cut)) is ErrorCode.INVALID_RECORD


@with_each("codec", CODECS)
def test_a_batch_may_unpack_to_so_much_and_no_more(codec: CompressionType) -> None:
    data = bytes(make_batch([bytes(100_000)], compression=codec))
    plain = len(make_batch([bytes(100_000)])) - layout.HEADER_BYTES
    assert validated(data, max_decompressed_bytes=plain).record_count == 1
    assert refusal(data, max_decompressed_bytes=plain - 1) is ErrorCode.INVALID_RECORD


def test_a_batch_may_be_so_large_and_no_larger() -> None:
    assert validated(GOOD, max_message_bytes=len(GOOD)).record_count == 3
    assert refusal(GOOD, max_message_bytes=len(GOOD) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_a_version_that_knows_it() -> None:
    data = make_batch([b"a"], compression=CompressionType.ZSTD)
    assert validated(data, produce_version=7).record_count == 1
    with pytest.raises(ApiError) as caught:
        validated(data, produce_version=6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.behaviour("Log", "Timestamps outside the topic's limits are refused")
def test_times_lie_within_their_limits_or_are_not_said() -> None:
    rules = {"timestamp_before_max_ms": 100, "timestamp_after_max_ms": 10}
    # Three records, from this time on, one a millisecond.
    for start in (900, 950, 1008):
        assert validated(make_batch([b"x"] * 3, base_timestamp=start), wall_ms=1000, **rules).record_count == 3
    for start in (899, 1009, 10**12):
        assert refusal(make_batch([b"x"] * 3, base_timestamp=start), wall_ms=1000, **rules) is (
            ErrorCode.INVALID_TIMESTAMP
        )
    assert validated(make_batch([b"x"], base_timestamp=-1), wall_ms=10**12, **rules).record_count == 1
    # Whatever they say, the log's own time goes over them.
    assert validated(make_batch([b"x"], base_timestamp=5), wall_ms=10**12, log_append_time=True, **rules)


@pytest.mark.behaviour("Log", "The records of a compressed batch have the offsets from 0 on, as Kafka demands")
@with_each("codec", CODECS)
def test_offsets_within_a_compressed_batch(codec: CompressionType) -> None:
    for offsets in ([0, 0, 0], [0, 2, 1], [0, 1, 2**31 - 1], [-5, 1, 2], [1, 2, 3]):
        batch = batch_of([record_of(offset) for offset in offsets], codec)
        assert refusal(batch) is ErrorCode.INVALID_RECORD
    assert validated(batch_of([record_of(offset) for offset in range(3)], codec)).record_count == 3
    # Kafka stores what an uncompressed batch has.
    assert validated(batch_of([record_of(2**31 - 1)])).record_count == 1


def test_deltas_of_every_width() -> None:
    """Offsets of one to four bytes beside timestamps of one to ten; the one that is wrong is named, and both bounds of
    the time count.
    """
    widths = [encode_varint(delta) for delta in (0, -1, 63, -64, 64, -8192, 8191, 8192, -(2**40), 2**45)]
    for first in (0, 60, 8190, 16_000):
        numbers = range(first, first + 40)
        records = [record_of(number, b"", timestamp=widths[number % len(widths)]) for number in range(first + 40)]
        assert validated(batch_of(records, CompressionType.LZ4)).record_count == len(records)
        for number in (first, numbers[-1]):
            for wrong in (number - 1, number + 1, -number - 1, number | 1 << 20, number + (1 << 30)):
                damaged = [*records[:number], record_of(wrong, b""), *records[number + 1 :]]
                with pytest.raises(ApiError, match=f"record {number} of a compressed batch has the offset {wrong}$"):
                    validated(batch_of(damaged, CompressionType.LZ4))
    batch = batch_of(records, CompressionType.LZ4)
    assert refusal(batch, wall_ms=2**45, timestamp_after_max_ms=999) is ErrorCode.INVALID_TIMESTAMP
    assert validated(batch, wall_ms=2**45, timestamp_after_max_ms=1000)
    assert refusal(batch, timestamp_before_max_ms=2**40 - 1001) is ErrorCode.INVALID_TIMESTAMP
    # Beyond the bytes of their types, and beyond the data.
    for timestamp, offset in ((b"\x80" * 10 + b"\0", b"\0"), (b"\0", b"\x80" * 5 + b"\0"), (b"\x80" * 5, b"\x80" * 5)):
        body = b"\0" + timestamp + offset + b"\1\1\0"
        for codec in (CompressionType.NONE, CompressionType.LZ4):
            record = encode_varint(len(body)) + body
            assert refusal(batch_of([record], codec)) is ErrorCode.INVALID_RECORD


@with_each("codec", CompressionType)
def test_times_of_records_are_within_those_that_are_allowed(codec: CompressionType) -> None:
    batch = batch_of([record_of(0), record_of(1, timestamp=encode_varint(5_000))], codec)
    assert refusal(batch, wall_ms=2_000, timestamp_after_max_ms=3_999) is ErrorCode.INVALID_TIMESTAMP
    assert validated(batch, wall_ms=2_000, timestamp_after_max_ms=4_000).record_count == 2
    assert validated(batch, wall_ms=2_000, timestamp_after_max_ms=0, log_append_time=True).record_count == 2
