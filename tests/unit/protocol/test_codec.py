"""The codec's rules, on a message with a field of every type; tests/golden has the real messages."""

from __future__ import annotations

import tracemalloc
import uuid

import pytest

from kafka_sink.common.errors import ProtocolError, UnsupportedVersionError
from kafka_sink.protocol.codec import decode, encode
from kafka_sink.protocol.messages.fetch import FetchResponse
from kafka_sink.protocol.messages.metadata import (
    LeaderIdAndEpoch,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_sink.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_sink.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    Records,
    Struct,
    field,
)
from tests.support.cases import with_each


class Inner(Struct):
    """Two fields, one of them from a later version on."""

    number: int = field(INT8, "0+")
    late: int = field(INT16, "2+", default=5, ignorable=True)


class Everything(Struct, versions="0-2", flexible="1+"):
    """Every type of the protocol."""

    port: int = field(UINT16, "0+")
    count: int = field(UINT32, "0+")
    ratio: float = field(FLOAT64, "0+")
    secret: bytes | None = field(BYTES, "0+", nullable="1+")
    cursor: Inner | None = field(Inner, "0+", nullable="1+", default=None)
    always: Inner = field(Inner, "0+")
    flags: list[bool] = field(Array(BOOL), "0+")
    ids: list[uuid.UUID] = field(Array(UUID), "0+")
    names: list[str] | None = field(Array(STRING), "0+", nullable="0+")
    batches: Records = field(RECORDS, "0+", nullable="1+", default=b"")
    tagged: Inner = field(Inner, "1+", tag=3)
    numbers: list[int] = field(Array(INT32), "1+", tag=0)
    maybe: Inner | None = field(Inner, "2+", nullable="2+", tag=300, default=None)
    gone: int = field(INT32, "0", ignorable=True)


def full(version: int) -> Everything:
    made = Everything(
        port=65_535,
        count=2**32 - 1,
        ratio=-0.5,
        secret=b"s",
        cursor=Inner(1),
        always=Inner(-2),
        flags=[True, False],
        ids=[uuid.UUID(int=7), uuid.UUID(int=0)],
        names=["a", "ü"],
        batches=b"rrr",
    )
    if version >= 1:
        made.tagged, made.numbers = Inner(9), [1, -1]
    if version >= 2:
        made.maybe = Inner(3, 4)
    return made


GOLDEN = {
    0: "ffff ffffffff bfe0000000000000 00000001 73 01 fe 00000002 0100"
    "00000002 00000000000000000000000000000007 00000000000000000000000000000000"
    "00000002 0001 61 0002 c3bc 00000003 727272 00000000",
    1: "ffff ffffffff bfe0000000000000 02 73 01 01 00 fe 00 03 0100"
    "03 00000000000000000000000000000007 00000000000000000000000000000000"
    "03 02 61 03 c3bc 04 727272 02 00 09 03 00000001 ffffffff 03 02 09 00",
    2: "ffff ffffffff bfe0000000000000 02 73 01 01 0005 00 fe 0005 00 03 0100"
    "03 00000000000000000000000000000007 00000000000000000000000000000000"
    "03 02 61 03 c3bc 04 727272 03 00 09 03 00000001 ffffffff 03 04 09 0005 00 ac02 05 01 03 0004 00",
}


@pytest.mark.parametrize("version", GOLDEN)
def test_every_type_by_hand(version: int) -> None:
    written = b"".join(encode(full(version), version))
    assert written.hex() == GOLDEN[version].replace(" ", "")
    assert decode(Everything, written, version) == full(version)


def test_nulls_where_the_version_has_them() -> None:
    nulls = Everything(secret=None, cursor=None, names=None, batches=None)
    written = b"".join(encode(nulls, 1))
    assert written.hex() == "0000 00000000 0000000000000000 00 ff 0000 01 01 00 00 00".replace(" ", "")
    assert decode(Everything, written, 1) == nulls


@pytest.mark.parametrize("name", ["secret", "batches"])
def test_null_is_refused_where_the_version_has_none(name: str) -> None:
    broken = full(0)
    setattr(broken, name, None)
    with pytest.raises(ValueError, match=f"{name} may not be null"):
        encode(broken, 0)


@with_each(
    ("kind", "version", "data"),
    [
        (MetadataRequest, 0, "ffffffff"),
        (MetadataRequest, 9, "02 00 00"),
        (MetadataRequest, 1, "00000001 ffff"),
        (Everything, 0, "0000 00000000 0000000000000000 ffffffff"),
    ],
)
def test_null_from_a_peer_is_refused_where_the_version_has_none(kind: type[Struct], version: int, data: str) -> None:
    with pytest.raises(ProtocolError, match="null where a value is required"):
        decode(kind, bytes.fromhex(data), version)


class TestVersions:
    def test_unknown_version(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="ProduceRequest has versions 3 to 13, not 2"):
            encode(ProduceRequest(), 2)
        with pytest.raises(UnsupportedVersionError, match="not 14"):
            decode(ProduceRequest, b"", 14)

    def test_a_struct_is_no_message(self) -> None:
        with pytest.raises(ValueError, match="not a top-level message"):
            encode(PartitionProduceData(), 9)

    def test_value_its_version_cannot_carry_is_refused_by_name(self) -> None:
        with pytest.raises(UnsupportedVersionError, match=r"version 3 cannot carry allow_auto_topic_creation$"):
            encode(MetadataRequest(allow_auto_topic_creation=False), 3)

    def test_the_refusal_reaches_into_nested_structs(self) -> None:
        partition = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(1, 1))
        response = ProduceResponse(responses=[TopicProduceResponse(partition_responses=[partition])])
        assert encode(response, 10)
        with pytest.raises(UnsupportedVersionError, match="PartitionProduceResponse version 9 cannot carry current_"):
            encode(response, 9)

    def test_an_ignorable_value_is_left_out(self) -> None:
        topic = MetadataRequestTopic(topic_id=uuid.UUID(int=1), name="t")
        assert encode(MetadataRequest([topic]), 9) == encode(MetadataRequest([MetadataRequestTopic(name="t")]), 9)


class TestValuesThatDoNotFit:
    @pytest.mark.parametrize("acks", [2**15, "all", None])
    def test_numbers(self, acks: object) -> None:
        with pytest.raises(ValueError, match="ProduceRequest version 9"):
            encode(ProduceRequest(acks=acks), 9)  # type: ignore[arg-type]

    @pytest.mark.parametrize("version", [8, 9])
    def test_strings(self, version: int) -> None:
        assert encode(ProduceRequest(transactional_id="x" * 32_767), version)
        with pytest.raises(ValueError, match="32768 bytes is longer than 32767"):
            encode(ProduceRequest(transactional_id="ö" * 16_384), version)

    def test_strings_of_a_peer(self) -> None:
        """A compact length can be larger, but such a string could not be returned in a classic one."""
        data = bytearray(b"".join(map(bytes, encode(ProduceRequest(transactional_id="x" * 32_767), 9))))
        assert data[:3] == b"\x80\x80\x02", "32,768 stands for 32,767"
        data[:3] = b"\x81\x80\x02"
        data.insert(3, ord("x"))
        with pytest.raises(ProtocolError, match="32768 bytes is longer than 32767"):
            decode(ProduceRequest, memoryview(data), 9)


class TestRecords:
    def request(self, records: Records) -> ProduceRequest:
        return ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(1, records)])])

    def test_encoding_passes_buffers_on(self) -> None:
        head, body = bytearray(b"head"), memoryview(b"body")
        segments = encode(self.request([head, body]), 9)
        assert segments[1] is head
        assert segments[2] is body
        assert b"".join(segments) == b"".join(encode(self.request(b"headbody"), 9))

    def test_decoding_gives_a_view_of_the_frame(self) -> None:
        data = bytearray(b"".join(encode(self.request(b"records"), 9)))
        (topic,) = decode(ProduceRequest, data, 9).topic_data
        (partition,) = topic.partition_data
        assert isinstance(partition.records, memoryview)
        data[data.index(b"records")] = ord("R")
        assert partition.records.tobytes() == b"Records"

    def test_empty_records_are_not_null(self) -> None:
        for records, back in ((None, None), (b"", b""), ([], b"")):
            (topic,) = decode(ProduceRequest, b"".join(encode(self.request(records), 9)), 9).topic_data
            assert topic.partition_data[0].records == back

    def test_many_partitions_are_two_segments_each(self) -> None:
        partitions = [PartitionProduceData(index, b"r") for index in range(50)]
        segments = encode(ProduceRequest(topic_data=[TopicProduceData("t", partition_data=partitions)]), 9)
        assert len(segments) == 101


class TestTags:
    # MetadataRequest version 9: no topics, two flags, then the tags.
    HEAD = bytes.fromhex("01 01 00 00")

    def test_unknown_tags_are_skipped(self) -> None:
        read = decode(MetadataRequest, self.HEAD + bytes.fromhex("02 05 03 aabbcc 8001 00"), 9)
        assert read == MetadataRequest(topics=[])

    def test_known_and_unknown_tags_in_any_order(self) -> None:
        plain = b"".join(encode(Everything(), 1))
        assert plain[-1] == 0
        read = decode(Everything, plain[:-1] + bytes.fromhex("03 07 01 ff 03 02 09 00 00 05 02 0000002a"), 1)
        assert (read.tagged, read.numbers) == (Inner(9), [42])

    @pytest.mark.parametrize("size", [1, 3])
    def test_a_known_tag_has_the_size_it_announces(self, size: int) -> None:
        plain = b"".join(encode(Everything(), 1))
        with pytest.raises(ProtocolError, match="tagged does not fill"):
            decode(Everything, plain[:-1] + bytes([1, 3, size]) + bytes.fromhex("09 00 00"), 1)

    def test_an_unknown_tag_cannot_reach_beyond_the_end(self) -> None:
        with pytest.raises(ProtocolError, match="length 4 exceeds the 3 bytes that are left"):
            decode(MetadataRequest, self.HEAD + bytes.fromhex("01 05 04 aabbcc"), 9)


class TestBadBytes:
    def test_text_that_is_not_utf8(self) -> None:
        with pytest.raises(ProtocolError, match="ProduceRequest version 3: 'utf-8' codec"):
            decode(ProduceRequest, bytes.fromhex("0001 ff 0001 00000000 00000000"), 3)

    def test_an_early_end_says_so(self) -> None:
        with pytest.raises(ProtocolError, match="MetadataRequest version 9 ends too early, after 2 bytes"):
            decode(MetadataRequest, bytes.fromhex("01 01"), 9)

    def test_a_struct_that_is_neither_null_nor_present(self) -> None:
        written = bytearray(b"".join(encode(full(1), 1)))
        written[16] = 2
        with pytest.raises(ProtocolError, match="2 is not a valid presence byte"):
            decode(Everything, written, 1)

    @pytest.mark.parametrize("length", ["fffe", "8000"])
    def test_negative_lengths(self, length: str) -> None:
        with pytest.raises(ProtocolError, match="negative length"):
            decode(ProduceRequest, bytes.fromhex(length + "0001 00000000 00000000"), 3)
        with pytest.raises(ProtocolError, match="negative length"):
            decode(MetadataRequest, bytes.fromhex(length + "0000"), 1)

    @pytest.mark.parametrize(
        ("kind", "version", "data"),
        [
            (MetadataRequest, 1, "7fffffff"),
            (MetadataRequest, 9, "ffffffff0f"),
            (MetadataResponse, 8, "00000000 7ffffff0 00"),
            (FetchResponse, 12, "00000000 0000 00000000 ffffffff07 00"),
            (Everything, 0, "0000 00000000 0000000000000000 7fffffff"),
            (Everything, 0, "0000 00000000 0000000000000000 00000000 01 01 7fffffff"),
        ],
    )
    def test_huge_counts_and_lengths_allocate_nothing(self, kind: type[Struct], version: int, data: str) -> None:
        with pytest.raises(ProtocolError):
            decode(kind, bytes.fromhex(data), version)
        tracemalloc.start()
        with pytest.raises(ProtocolError, match="exceeds the"):
            decode(kind, bytes.fromhex(data), version)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000

    def test_a_count_is_measured_against_the_smallest_element(self) -> None:
        # Three partitions of at least 18 bytes each cannot be in 50 bytes.
        head = bytes.fromhex("00000000 00000000 0000 00000000 00000001 0000 0001 74 00 00000003")
        with pytest.raises(ProtocolError, match="exceeds the"):
            decode(MetadataResponse, head + bytes(50), 3)

    def test_trailing_bytes_are_ignored(self) -> None:
        assert decode(MetadataRequest, bytes.fromhex("01 01 00 00 00 ffff"), 9) == MetadataRequest(topics=[])


@with_each("version", [8, 9])
@with_each("count", [0, 1, 7, 8, 9, 126, 127, 300])
def test_numbers_of_any_count_are_read_and_never_beyond_the_end(count: int, version: int) -> None:
    numbers = [number * 1_000_003 for number in range(count)]
    found = MetadataResponsePartition(replica_nodes=numbers, isr_nodes=[-1], offline_replicas=numbers)
    response = MetadataResponse(topics=[MetadataResponseTopic(partitions=[found])])
    data = b"".join(encode(response, version))
    assert decode(MetadataResponse, data, version) == response
    for end in (len(data) // 3, len(data) // 2, len(data) - 1):
        with pytest.raises(ProtocolError):
            decode(MetadataResponse, data[:end], version)


def test_any_buffer_is_read() -> None:
    data = b"".join(encode(MetadataRequest(topics=None), 9))
    for buffer in (data, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:]):
        assert decode(MetadataRequest, buffer, 9).topics is None
