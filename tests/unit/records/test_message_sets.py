"""Message sets that are damaged, or that no version of Kafka has written; golden bytes show how whole ones are read."""

from __future__ import annotations

import struct
import zlib

import pytest

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.fetched_partition import FetchedPartition
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.reader import Looking
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
