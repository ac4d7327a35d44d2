from __future__ import annotations

import gzip
import io
import random
import threading

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from kafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.compression import XERIAL_BLOCK_BYTES, CompressionType, compress
from tests.support.cases import with_each
from tests.support.unpacked import decompress

PACKED = [kind for kind in CompressionType if kind is not CompressionType.NONE]
FOREIGN = {
    CompressionType.GZIP: gzip_decode,
    CompressionType.SNAPPY: snappy_decode,
    CompressionType.LZ4: lz4_decode,
    CompressionType.ZSTD: zstd_decode,
}
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"a record like any other, " * 3000,
    "noise": random.Random(1).randbytes(3 * XERIAL_BLOCK_BYTES + 5),
}


@with_each("kind", CompressionType)
@with_each("sample", SAMPLES)
def test_round_trip_up_to_the_limit(kind: CompressionType, sample: str) -> None:
    data = SAMPLES[sample]
    assert bytes(decompress(kind, compress(kind, data), len(data))) == data


@pytest.mark.behaviour("Compression", "Batches of all five codecs can be read, also by foreign readers")
@with_each("kind", PACKED)
@with_each("sample", [name for name in SAMPLES if name != "empty"])
def test_foreign_reader(kind: CompressionType, sample: str) -> None:
    assert FOREIGN[kind](bytes(compress(kind, SAMPLES[sample]))) == SAMPLES[sample]


@with_each("kind", CompressionType)
@with_each("wrap", [bytes, bytearray, memoryview])
def test_any_buffer(kind: CompressionType, wrap: type) -> None:
    data = SAMPLES["text"]
    assert bytes(decompress(kind, wrap(compress(kind, wrap(data))), len(data))) == data


@with_each("kind", CompressionType)
def test_one_byte_over_the_limit(kind: CompressionType) -> None:
    with pytest.raises(CorruptRecordError, match="limit of 74999"):
        decompress(kind, compress(kind, SAMPLES["text"]), len(SAMPLES["text"]) - 1)


@pytest.mark.behaviour("Compression", "A decompression bomb is refused")
@with_each("kind", PACKED)
def test_bomb_is_refused(kind: CompressionType) -> None:
    bomb = compress(kind, bytes(64 << 20))
    assert len(bomb) < 8 << 20
    with pytest.raises(CorruptRecordError, match="hold more than the limit of 100000 bytes"):
        decompress(kind, bomb, 100_000)


@with_each("kind", PACKED)
@with_each("sample", ["one byte", "text", "noise"])
def test_cut_off_anywhere(kind: CompressionType, sample: str) -> None:
    packed = bytes(compress(kind, SAMPLES[sample]))
    whole_blocks = {16} if kind is CompressionType.SNAPPY else set()
    position = 16
    while kind is CompressionType.SNAPPY and position < len(packed):
        position += 4 + int.from_bytes(packed[position : position + 4], "big")
        whole_blocks.add(position)
    for end in {*range(20), *range(0, len(packed), 997), len(packed) - 1} - whole_blocks:
        if end < len(packed):
            with pytest.raises(CorruptRecordError):
                decompress(kind, packed[:end], 1 << 20)


@with_each("kind", PACKED)
def test_noise_is_damage(kind: CompressionType) -> None:
    rng = random.Random(2)
    for size in (0, 1, 4, 8, 16, 100):
        with pytest.raises(CorruptRecordError):
            decompress(kind, rng.randbytes(size), 1000)


def test_zstd_that_lies_about_its_size() -> None:
    small = zstandard.ZstdCompressor().compress(b"abc" * 10)
    # A single-segment frame has its content size right after the descriptor byte.
    assert small[4] & 0x20
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.ZSTD, small[:5] + b"\xff" + small[6:], 1 << 20)


def test_zstd_without_size_and_with_checksum() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compressobj()
    packed = stream.compress(SAMPLES["noise"]) + stream.flush()
    assert decompress(CompressionType.ZSTD, packed, 1 << 20) == SAMPLES["noise"]
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.ZSTD, packed[:-1], 1 << 20)


def test_zstd_frames_in_a_row() -> None:
    packed = zstandard.compress(b"one ") + zstandard.compress(b"two")
    assert decompress(CompressionType.ZSTD, packed, 7) == b"one two"
    with pytest.raises(CorruptRecordError, match="limit of 6"):
        decompress(CompressionType.ZSTD, packed, 6)


@pytest.mark.behaviour("Compression", "gzip of several members and snappy streams in a row are read, as Java does")
def test_gzip_members_in_a_row() -> None:
    parts = [b"one ", b"", SAMPLES["noise"], SAMPLES["text"], *[b"x"] * 2000]
    packed, plain = b"".join(map(gzip.compress, parts)), b"".join(parts)
    assert decompress(CompressionType.GZIP, packed, len(plain)) == plain
    with pytest.raises(CorruptRecordError, match=f"limit of {len(plain) - 1}"):
        decompress(CompressionType.GZIP, packed, len(plain) - 1)
    for damaged in (packed[:-1], packed[: len(gzip.compress(parts[0])) + 19]):
        with pytest.raises(CorruptRecordError):
            decompress(CompressionType.GZIP, damaged, 1 << 20)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "behind", [b"\0", bytes(9000), gzip.compress(b"two"), b""], ids=["byte", "zeros", "member", "none"]
)
def test_gzip_behind_a_member_of_some_megabytes_ends(behind: bytes) -> None:
    """A given chunk of it inflates to more than a piece, so that zlib keeps a part of the input behind the end."""
    plain = b"v" * 3_000_000
    expected = plain + (b"two" if len(behind) > 1 and behind[0] else b"")
    assert decompress(CompressionType.GZIP, gzip.compress(plain) + behind, len(expected)) == expected


@pytest.mark.behaviour("Compression", "Bytes behind gzip and frames that zstd skips are passed over, as Java does")
def test_what_java_passes_over_is_passed_over() -> None:
    one, two = gzip.compress(b"one "), gzip.compress(b"two")
    for behind in (b"\0", bytes(9000), b"\x1f\x8b\x07" + bytes(40), two[:18], b"noise" * 10):
        assert decompress(CompressionType.GZIP, one + two + behind, 7) == b"one two"
    first, last = zstandard.compress(b"one "), zstandard.compress(b"two")
    for magic in (0x184D2A50, 0x184D2A5F):
        head = magic.to_bytes(4, "little")
        for size in (0, 9000):
            skipped = head + size.to_bytes(4, "little") + bytes(size)
            packed = skipped + first + skipped + skipped + last + skipped
            assert decompress(CompressionType.ZSTD, packed, 7) == b"one two"
        for damaged in (head, first + head + b"\x01\0\0\0", head + b"\xff" * 4 + first, first + b"\0"):
            with pytest.raises(CorruptRecordError):
                decompress(CompressionType.ZSTD, damaged, 7)
    # Kafka's reader of LZ4 passes over none.
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.LZ4, head + bytes(4) + bytes(compress(CompressionType.LZ4, b"one")), 7)


def test_snappy_streams_in_a_row() -> None:
    packed = b"".join(bytes(compress(CompressionType.SNAPPY, SAMPLES[each])) for each in ("noise", "empty", "text"))
    plain = SAMPLES["noise"] + SAMPLES["text"]
    assert decompress(CompressionType.SNAPPY, packed, len(plain)) == plain
    with pytest.raises(CorruptRecordError, match="limit of"):
        decompress(CompressionType.SNAPPY, packed, len(plain) - 1)


def test_lz4_blocks_are_independent() -> None:
    packed = compress(CompressionType.LZ4, SAMPLES["text"])
    assert lz4.frame.get_frame_info(bytes(packed))["block_linked"] is False


def test_lz4_with_dependent_blocks_is_read() -> None:
    packed = lz4.frame.compress(SAMPLES["text"], block_linked=True, content_checksum=True)
    assert decompress(CompressionType.LZ4, packed, 1 << 20) == SAMPLES["text"]


def test_snappy_is_framed_like_java() -> None:
    packed = bytes(compress(CompressionType.SNAPPY, SAMPLES["noise"]))
    assert packed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    stream = io.BytesIO(packed[16:])
    blocks: list[bytes] = []
    while size := stream.read(4):
        block = stream.read(int.from_bytes(size, "big"))
        blocks.append(pa.Codec("snappy").decompress(block, XERIAL_BLOCK_BYTES if len(blocks) < 3 else 5, asbytes=True))
    assert b"".join(blocks) == SAMPLES["noise"]


def test_snappy_without_frame_is_read() -> None:
    packed = pa.Codec("snappy").compress(SAMPLES["text"], asbytes=True)
    assert decompress(CompressionType.SNAPPY, packed, 1 << 20) == SAMPLES["text"]


@with_each("block", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\5\xff\xff\xff\xff\xff"])
def test_snappy_block_that_is_impossible(block: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(CompressionType.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + block, 1 << 20)


@pytest.mark.parametrize(
    ("kind", "low", "high"), [(CompressionType.GZIP, 1, 9), (CompressionType.LZ4, 1, 9), (CompressionType.ZSTD, 1, 19)]
)
def test_levels(kind: CompressionType, low: int, high: int) -> None:
    rng = random.Random(3)
    data = b"".join(b'{"id":%d,"name":"user-%d"}' % (rng.randint(0, 10_000), rng.randint(0, 99)) for _ in range(2000))
    assert len(compress(kind, data, high)) < len(compress(kind, data, low))


def test_threads_do_not_share_contexts() -> None:
    wrong = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(50):
            data = rng.randbytes(500) * rng.randint(1, 50)
            if bytes(decompress(CompressionType.ZSTD, compress(CompressionType.ZSTD, data), len(data))) != data:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_names() -> None:
    assert [CompressionType.from_name(kind.config_name) for kind in CompressionType] == list(CompressionType)
    with pytest.raises(ValueError, match="'brotli' is not a compression type, expected one of none, gzip"):
        CompressionType.from_name("brotli")
