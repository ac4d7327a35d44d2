"""Message sets that are damaged, or that no version of Kafka has written; golden bytes cover valid ones."""

from __future__ import annotations

import struct
import zlib

import lz4.frame
import pytest

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.fetched_partition import FetchedPartition
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.message_sets import read_all_formats
from kafka_sink.records.reader import Looking, Record
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int, value: bytes | None = b"v", *, magic: int = 1, codec: int = 0, body: bytes | None = None
) -> bytes:
    time = b"" if magic == 0 else struct.pack(">q", 1000 + offset)
    told = struct.pack(">BB", magic, codec) + time + (field(None) + field(value) if body is None else body)
    return struct.pack(">qiI", offset, 4 + len(told), zlib.crc32(told)) + told


def packed(offset: int, *inner: bytes, magic: int = 1) -> bytes:
    return message(offset, bytes(compress(CompressionType.GZIP, b"".join(inner))), magic=magic, codec=1)


DAMAGED = {
    "does not match its CRC": message(5)[:-1] + b"x",
    "field of 9 bytes does not fit into 1": message(5, body=field(None) + struct.pack(">ib", 9, 1)),
    "field of -2 bytes": message(5, body=struct.pack(">ii", -2, 0)),
    "cannot be gzip": message(5, None, codec=1),
    "cannot be zstd": message(5, codec=4),
    "unknown compression codec 5": message(5, codec=5),
    "it holds no message": packed(5),
    "or one of format 0": packed(5, message(0, magic=0)),
    "it holds a compressed message": packed(5, packed(0, message(0))),
    "its offset is less than those of its messages, by 1": packed(5, message(6)),
    "its offset is 2, expected 4 to 5": packed(5, message(3, magic=0), message(2, magic=0), magic=0),
    "its offset is 6, expected 0 to 5": packed(5, message(6, magic=0), magic=0),
    "announces a length of 3 bytes": packed(5, struct.pack(">qiIBB", 0, 3, 0, 1, 0)),
    "gzip data cannot be decompressed": message(5, b"junk", codec=1),
    "more than the limit of 1000 bytes": packed(5, message(0, bytes(2000))),
}


@pytest.mark.behaviour("Log reader", "Logs that begin with the record formats 0 and 1 are read")
@with_each("said", DAMAGED)
def test_damaged_message_is_named_and_stepped_over(said: str) -> None:
    data = DAMAGED[said] + message(6, b"next") + struct.pack(">q", 7) + make_batch([b"last"])[8:]
    with pytest.raises(CorruptRecordError, match=said):
        list(FetchedPartition(TopicPartition("t", 0), data, 5, max_decompressed_bytes=1000))
    looking = Looking(most_record_bytes=1000)
    fetched = FetchedPartition(TopicPartition("t", 0), data, 5, looking=looking)
    *shown, following, last = list(fetched)
    assert [(each.offset, said in each.problem) for each in shown if each.problem] == [(5, True)]
    assert (following.value, following.timestamp, last.value) == (b"next", 1006, b"last")
    assert fetched.next_offset == 8


def test_message_that_is_not_complete_is_left_for_the_next_fetch() -> None:
    data = packed(5, message(0), message(1))
    fetched = FetchedPartition(TopicPartition("t", 0), data + data[:-1], 0)
    assert [each.offset for each in fetched] == [4, 5]
    assert fetched.next_offset == 6


@with_each("magic", [0, 1])
@with_each(("key", "value"), [(None, None), (b"", b""), (b"k", None), (None, b"v")])
def test_the_least_messages(magic: int, key: bytes | None, value: bytes | None) -> None:
    data = message(5, magic=magic, body=field(key) + field(value))
    (view,) = read_all_formats(data)
    assert (view.data, view.header.record_count, view.verify_crc()) == (data, 1, True)
    assert list(view.records()) == [Record(5, -1 if magic == 0 else 1005, key, value, ())]


@with_each(("magic", "size"), [(0, 13), (1, 21)])
def test_a_message_that_is_too_short(magic: int, size: int) -> None:
    head = struct.pack(">qiIBB", 6, size, 0, magic, 0) + bytes(20)
    with pytest.raises(CorruptRecordError, match=f"message at byte 34 announces a length of {size} bytes"):
        list(read_all_formats(message(5, None) + head))


@with_each("following", [message(6, magic=0), message(6), bytes(make_batch([b"v"]))])
def test_what_is_cut_off_anywhere_is_left_out(following: bytes) -> None:
    for size in range(len(following)):
        assert [view.base_offset for view in read_all_formats(message(5) + following[:size])] == [5]


def test_offsets_in_a_message_from_the_first_one_on() -> None:
    (view,) = read_all_formats(packed(1, message(0), message(1)))
    assert [each.offset for each in view.records()] == [0, 1]
    (view,) = read_all_formats(packed(0))
    with pytest.raises(CorruptRecordError, match="the message of offset 0: it holds no message"):
        list(view.records())


@with_each(("codec", "timestamps"), [(1, [1000, 1001]), (1 | 8, [1009, 1009])])
def test_the_brokers_time_goes_over_those_inside(codec: int, timestamps: list[int]) -> None:
    inner = bytes(compress(CompressionType.GZIP, message(0) + message(1)))
    (view,) = read_all_formats(message(9, inner, codec=codec))
    assert [(each.offset, each.timestamp) for each in view.records()] == [(8, timestamps[0]), (9, timestamps[1])]


def lz4_frame(data: bytes, *, has_size: bool, has_dictionary: bool, is_right: bool) -> bytes:
    """*data* with a checksum in the header that is right, or wrong by one."""
    frame = bytearray(lz4.frame.compress(data, store_size=has_size))
    at = 14 if has_size else 6
    if has_dictionary:
        frame[4] |= 1
        frame[at:at] = b"dict"
        at += 4
    # A library that verifies the checksum is used to find the right one.
    right = next(each for each in range(256) if is_head(bytes(frame[:at]) + bytes([each]) + bytes(frame[at + 1 :])))
    frame[at] = right if is_right else (right + 1) % 256
    return bytes(frame)


def is_head(frame: bytes) -> bool:
    try:
        lz4.frame.get_frame_info(frame)
    except RuntimeError:
        return False
    return True


@with_each("has_size", [False, True])
@with_each("has_dictionary", [False, True])
@with_each("is_right", [False, True])
@with_each("magic", [0, 1])
def test_lz4_of_format_0_may_have_a_wrong_checksum(
    has_size: bool, has_dictionary: bool, is_right: bool, magic: int
) -> None:
    inner = message(0, b"a" * 500, magic=magic)
    frame = lz4_frame(inner, has_size=has_size, has_dictionary=has_dictionary, is_right=is_right)
    (view,) = read_all_formats(message(0, frame, magic=magic, codec=3))
    if is_right or magic == 0:
        assert [(each.offset, each.value) for each in view.records()] == [(0, b"a" * 500)]
        return
    with pytest.raises(CorruptRecordError, match="lz4 data cannot be decompressed"):
        list(view.records())


@with_each("size", [0, 3, 4, 5, 6, 7, 14, 30])
def test_lz4_that_is_cut_off_is_damage(size: int) -> None:
    frame = lz4_frame(message(0, bytes(99), magic=0), has_size=True, has_dictionary=False, is_right=True)
    for damaged in (frame[:size], b"junk" + frame[4:]):
        (view,) = read_all_formats(message(0, damaged, magic=0, codec=3))
        with pytest.raises(CorruptRecordError, match="the message of offset 0: lz4 data"):
            list(view.records())
