"""A broker's validation of batches: every way in which a batch can be invalid, and its error code."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from crc32c import crc32c

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import ApiError, ErrorCode, InvalidRecordError
from kafka_sink.records import layout
from kafka_sink.records.compression import XERIAL_HEADER, CompressionType
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
    """*batch* with another number of records in its header, and the last offset to match."""
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
    # Walking the batch costs more than storing it; a reader detects the error.
    data = bytes(make_batch([b"x" * 20] * 1000))
    assert validated(counted(999, data)).record_count == 999
    assert refusal(counted(1 + (len(data) - layout.HEADER_BYTES) // 7, data)) is ErrorCode.INVALID_RECORD


#: The smallest record: no key, no value, no headers.
LEAST = b"\x0c\0\0\0\1\1\0"


def test_up_to_128_uncompressed_records_are_followed() -> None:
    for count in (127, 128, 129, 130):
        batch = batch_of([LEAST] * (count - 1) + [b"\x0e" + LEAST[1:]])
        if count > 128:
            assert validated(batch).record_count == count
        else:
            assert refusal(batch) is ErrorCode.INVALID_RECORD


def test_no_more_uncompressed_records_than_have_room() -> None:
    batch = batch_of([LEAST] * 200)
    assert validated(batch).record_count == 200
    with pytest.raises(ApiError, match="201 records do not fit into 1400 bytes"):
        validated(counted(201, batch))


@with_each("length", [b"\x01", b"\x0a", b"\x7e", b"\xfe\x7f", b"\xff\xff\xff\xff\x0f", b"\xff" * 6])
def test_lengths_that_no_record_has(length: bytes) -> None:
    # A length of -1, too short for its own fields, longer than the remaining bytes, the most negative one, and none.
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


def test_an_uncompressed_batch_is_not_unpacked() -> None:
    # Few records, which are walked, and more.
    for count in (1, 129):
        assert validated(make_batch([bytes(100)] * count), max_decompressed_bytes=10).record_count == count


@with_each("size", [1, 16, 17, 60])
def test_less_than_a_header(size: int) -> None:
    for data in (GOOD[:size], bytes(size), b"\xff" * size):
        with pytest.raises(ApiError, match=f"^{size} bytes are too few for a record batch$") as caught:
            validated(data)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_header_without_records() -> None:
    for count in (0, -1):
        with pytest.raises(ApiError, match=f"{count} records do not match the last offset delta {count - 1}") as caught:
            validated(edited(8, ">i", 61 - 12, counted(count)[:61]))
        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_an_unknown_format_is_named() -> None:
    for magic in (3, 127):
        with pytest.raises(ApiError, match=f"^unknown record format {magic}$"):
            validated(edited(16, ">b", magic))


def test_a_producer_id_needs_an_epoch_and_a_sequence() -> None:
    for is_transactional in (False, True):
        for epoch, sequence in ((0, 0), (2**15 - 1, 2**31 - 1)):
            batch = make_batch(
                [b"a"],
                producer_id=0,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
            assert validated(batch).has_producer_id
    for epoch, sequence in ((0, -1), (-1, 0), (-1, -1)):
        batch = make_batch([b"a"], producer_id=0, producer_epoch=epoch, base_sequence=sequence)
        with pytest.raises(ApiError, match="needs an epoch and a sequence") as caught:
            validated(batch)
        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_only_zstd_needs_a_version_that_knows_it() -> None:
    data = make_batch([b"a"], compression=CompressionType.ZSTD)
    assert validated(data, produce_version=7).record_count == 1
    for codec in (CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4):
        assert validated(make_batch([b"a"], compression=codec), produce_version=3).record_count == 1
    with pytest.raises(ApiError) as caught:
        validated(data, produce_version=6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.behaviour("Log", "Timestamps outside the topic's limits are refused")
def test_times_lie_within_their_limits_or_are_not_said() -> None:
    rules = {"timestamp_before_max_ms": 100, "timestamp_after_max_ms": 10}
    # Three records, the first one at this time, one per millisecond.
    for start in (900, 950, 1008):
        assert validated(make_batch([b"x"] * 3, base_timestamp=start), wall_ms=1000, **rules).record_count == 3
    for start in (899, 1009, 10**12):
        assert refusal(make_batch([b"x"] * 3, base_timestamp=start), wall_ms=1000, **rules) is (
            ErrorCode.INVALID_TIMESTAMP
        )
    assert validated(make_batch([b"x"], base_timestamp=-1), wall_ms=10**12, **rules).record_count == 1
    # With log append time, the log replaces any timestamp.
    assert validated(make_batch([b"x"], base_timestamp=5), wall_ms=10**12, log_append_time=True, **rules)


@pytest.mark.behaviour("Log", "The records of a compressed batch have the offsets from 0 on, as Kafka demands")
@with_each("codec", CODECS)
def test_offsets_within_a_compressed_batch(codec: CompressionType) -> None:
    for offsets in ([0, 0, 0], [0, 2, 1], [0, 1, 2**31 - 1], [-5, 1, 2], [1, 2, 3]):
        batch = batch_of([record_of(offset) for offset in offsets], codec)
        assert refusal(batch) is ErrorCode.INVALID_RECORD
    assert validated(batch_of([record_of(offset) for offset in range(3)], codec)).record_count == 3
    # Kafka does not check the offsets of an uncompressed batch.
    assert validated(batch_of([record_of(2**31 - 1)])).record_count == 1


def test_deltas_of_every_width() -> None:
    """Offsets of one to four bytes with timestamps of one to ten; the error names the wrong one, and both bounds of
    the timestamp apply.
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


def test_times_of_the_header_are_checked_for_themselves() -> None:
    """No record has the wrong timestamp: the largest one is wrong, or there are too many records to check each."""
    late = batch_of([record_of(0)], most_ms=9_000)
    assert refusal(late, wall_ms=1_000, timestamp_after_max_ms=7_999) is ErrorCode.INVALID_TIMESTAMP
    assert validated(late, wall_ms=1_000, timestamp_after_max_ms=8_000)
    many = batch_of([record_of(0)] * 129, most_ms=9_000)
    assert refusal(many, wall_ms=9_000, timestamp_before_max_ms=7_999) is ErrorCode.INVALID_TIMESTAMP
    assert validated(many, wall_ms=9_000, timestamp_before_max_ms=8_000)


def test_an_offset_of_one_byte_that_is_negative_is_named() -> None:
    # The most negative offset in one byte.
    with pytest.raises(ApiError, match=r"record 0 of a compressed batch has the offset -64$"):
        validated(batch_of([record_of(-64)], CompressionType.LZ4))


@with_each("codec", CompressionType)
def test_the_record_whose_offset_is_cut_off_is_named(codec: CompressionType) -> None:
    for body in (b"\0" + b"\x80" * 4 + b"\0", b"\0\x80\x80\0\x80\x80", b"\0" + b"\x80" * 3 + b"\0\x80"):
        records = [record_of(0), encode_varint(len(body)) + body]
        with pytest.raises(ApiError, match="data ends within the offset of record 1") as caught:
            validated(batch_of(records, codec))
        assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.behaviour("Log", "A compacted topic takes no record without a key")
@with_each("codec", CompressionType)
@with_each("count", [1, 3, 129, 5_000])
def test_a_compacted_topic_needs_keys(codec: CompressionType, count: int) -> None:
    """Also with many uncompressed records, which are not walked elsewhere. An empty key is a key."""
    keys: list[bytes | None] = [b"" if number % 2 else b"key" for number in range(count)]
    for missing in ([], [0], [count - 1], [*range(0, count, 2)], [*range(count)]):
        keyed = [None if number in missing else key for number, key in enumerate(keys)]
        batch = make_batch([None] * count, keys=keyed, compression=codec)
        assert validated(batch).record_count == count
        if missing:
            with pytest.raises(InvalidRecordError, match="takes no record without a key") as caught:
                validated(batch, needs_key=True)
            assert caught.value.code is ErrorCode.INVALID_RECORD
            assert list(caught.value.numbers) == sorted(set(missing))
        else:
            assert validated(batch, needs_key=True).record_count == count


def test_ten_thousand_records_without_a_key_are_named() -> None:
    """Records after them are not checked: their keys may be damaged."""
    plain = [record_of(number) for number in range(10_000)]
    blocks = [plain, [record_of(10_000), record_of(10_001, key=b"\x7e")]]
    stream = XERIAL_HEADER
    for block in blocks:
        packed = pa.Codec("snappy").compress(b"".join(block), asbytes=True)
        stream += len(packed).to_bytes(4, "big") + packed
    batch = bytearray(batch_of([b""] * 10_002, CompressionType.SNAPPY)[: layout.HEADER_BYTES]) + stream
    with pytest.raises(InvalidRecordError, match="takes no record without a key") as caught:
        validated(edited(8, ">i", len(batch) - 12, bytes(batch)), needs_key=True)
    assert list(caught.value.numbers) == [*range(10_000)]
    # One block, whose last run has some records beyond the limit.
    with pytest.raises(InvalidRecordError) as caught:
        validated(batch_of([record_of(number) for number in range(10_002)]), needs_key=True)
    assert list(caught.value.numbers) == [*range(10_000)]
    with pytest.raises(InvalidRecordError) as caught:
        validated(batch_of(plain[:9_999]), needs_key=True)
    assert list(caught.value.numbers) == [*range(9_999)]
