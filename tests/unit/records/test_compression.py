from __future__ import annotations

import gzip
import io
import random
import threading
import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from kafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.compression import XERIAL_BLOCK_BYTES, XERIAL_HEADER, CompressionType, compress, decompressed
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
MIB = 1 << 20


def piece_by_piece(kind: CompressionType, data: bytes, max_bytes: int) -> tuple[list[bytes], str]:
    """The pieces before the first error, and the text of the error."""
    pieces: list[bytes] = []
    try:
        pieces.extend(decompressed(kind, data, max_bytes))
    except CorruptRecordError as error:
        return pieces, str(error)
    return pieces, ""


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
    # A single-segment frame has its content size directly after the descriptor byte.
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
    """One chunk of input inflates to more than a piece, so that zlib keeps some of the input after the member's end."""
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
    # Kafka's LZ4 reader skips no such frame.
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
    assert [int(kind) for kind in CompressionType] == [0, 1, 2, 3, 4]
    assert [CompressionType.from_name(kind.config_name) for kind in CompressionType] == list(CompressionType)
    with pytest.raises(ValueError, match="'brotli' is not a compression type, expected one of none, gzip"):
        CompressionType.from_name("brotli")


@pytest.mark.behaviour("Compression", "Data are decompressed piece by piece, of at most 1 MiB")
@with_each("kind", [kind for kind in CompressionType if kind is not CompressionType.SNAPPY])
@with_each("size", [0, 1, MIB - 1, MIB, MIB + 1, 6 * MIB + 5])
def test_pieces_have_at_most_a_mebibyte(kind: CompressionType, size: int) -> None:
    half = size // 2
    plain = random.Random(size).randbytes(half) + b"v" * (size - half)
    pieces, error = piece_by_piece(kind, bytes(compress(kind, plain)), size)
    assert not error and b"".join(pieces) == plain
    assert {type(piece) for piece in pieces} <= {bytes}
    # The pieces of gzip and lz4 end where a chunk of input ends.
    largest = max(map(len, pieces), default=0)
    assert largest == MIB if size > 2 * MIB else largest <= min(size, MIB)


def test_snappy_pieces_are_as_the_writer_cut_them() -> None:
    parts = [b"v" * 70_000, b"", b"w"]
    blocks = [pa.Codec("snappy").compress(part, asbytes=True) for part in parts]
    stream = XERIAL_HEADER + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    pieces, error = piece_by_piece(CompressionType.SNAPPY, stream, 70_001)
    assert pieces == parts and not error
    assert {type(piece) for piece in pieces} == {bytes}


def test_the_writer_cuts_snappy_as_java_does() -> None:
    # The block size of snappy-java is 32 KiB.
    pieces = list(decompressed(CompressionType.SNAPPY, compress(CompressionType.SNAPPY, SAMPLES["noise"]), MIB))
    assert [len(piece) for piece in pieces] == [32_768, 32_768, 32_768, 5]


def test_default_levels_and_the_frame_of_lz4() -> None:
    rng = random.Random(3)
    data = b"".join(b'{"id":%d,"name":"user-%d"}' % (rng.randint(0, 10_000), rng.randint(0, 99)) for _ in range(9000))
    expected = {level: zstandard.ZstdCompressor(level=level).compress(data) for level in (2, 3, 4)}
    assert len(set(expected.values())) == 3
    assert compress(CompressionType.ZSTD, data) == expected[3]
    # Version 1, independent blocks, no block checksum, no content size; blocks of 64 KiB; the checksum of both bytes.
    assert bytes(compress(CompressionType.LZ4, data))[:7] == b"\x04\x22\x4d\x18\x60\x40\x82"


def test_uncompressed_data_have_their_own_limit() -> None:
    assert piece_by_piece(CompressionType.NONE, b"1234", 4) == ([b"1234"], "")
    assert piece_by_piece(CompressionType.NONE, b"12345", 4) == ([], "5 bytes of records are more than the limit of 4")


def test_a_zlib_stream_is_no_gzip_member() -> None:
    for data in (zlib.compress(b"one"), zlib.compress(b"one" * 1000, 9)):
        with pytest.raises(CorruptRecordError, match="gzip data cannot be decompressed"):
            decompress(CompressionType.GZIP, data, MIB)


def test_gzip_that_is_cut_off_gives_all_before() -> None:
    """If a match exceeds a piece, a part of it is still to be returned when all input is consumed."""
    packed = gzip.compress(bytes(2 * MIB))
    stream, sizes = zlib.decompressobj(wbits=31), [0]
    for byte in packed:
        sizes.append(sizes[-1] + len(stream.decompress(bytes([byte]))))
    first = next(end for end, size in enumerate(sizes) if size > MIB)
    for end in range(first - 3, first + 4):
        pieces, error = piece_by_piece(CompressionType.GZIP, packed[:end], 2 * MIB)
        assert b"".join(pieces) == bytes(sizes[end]) and error == "gzip data ends within a member"


def test_lz4_blocks_larger_than_what_is_given_at_once() -> None:
    # A compressed block gives no output before it is complete: noise alone is not compressed.
    plain = random.Random(4).randbytes(300_000) + bytes(300_000)
    packed = lz4.frame.compress(plain, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    assert decompress(CompressionType.LZ4, packed, len(plain)) == plain
    for end in (7, 8, 65_536, 200_000, len(packed) - 1):
        with pytest.raises(CorruptRecordError, match="lz4 data ends within a frame"):
            decompress(CompressionType.LZ4, packed[:end], len(plain))


def test_damage_within_an_lz4_frame() -> None:
    packed = bytearray(compress(CompressionType.LZ4, SAMPLES["text"]))
    packed[6] ^= 1
    with pytest.raises(CorruptRecordError, match=r"lz4 data cannot be decompressed: .*headerChecksum"):
        decompress(CompressionType.LZ4, packed, MIB)


@with_each("raised", [zlib.error, zstandard.ZstdError, RuntimeError, OSError, EOFError, ValueError, MemoryError])
def test_an_error_of_a_library_is_a_corrupt_record(raised: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> None:
        raise raised("as the library says")

    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", damaged)
    with pytest.raises(CorruptRecordError, match=r"^lz4 data cannot be decompressed: as the library says$"):
        decompress(CompressionType.LZ4, lz4.frame.compress(b"one"), MIB)


RAW, RUN, COMPRESSED = 0, 1, 2
#: A compressed zstd block of 30 bytes, taken from a frame with a header of 6 bytes.
ZSTD_BLOCK = zstandard.compress(b"abc" * 10)[9:]


def zstd_frame(*blocks: tuple[int, int, bytes], claimed: int | None = None, window: int = 0x38) -> bytes:
    """A frame of *blocks*: type, size and content of each (RFC 8878, 3.1.1). The window is 128 KiB by default."""
    head = bytes([0 if claimed is None else 0x80, window])
    head += b"" if claimed is None else claimed.to_bytes(4, "little")
    body = b"".join(
        (size << 3 | kind << 1 | (number == len(blocks))).to_bytes(3, "little") + content
        for number, (kind, size, content) in enumerate(blocks, 1)
    )
    return b"\x28\xb5\x2f\xfd" + head + body


@with_each(
    ("blocks", "plain", "most_bytes"),
    [
        ([(RAW, 0, b"")], b"", 0),
        ([(RAW, 100, b"v" * 100)], b"v" * 100, 100),
        ([(RUN, 100, b"v")], b"v" * 100, 100),
        ([(RAW, 3, b"one"), (RUN, 5, b"v"), (RAW, 0, b""), (RAW, 3, b"two")], b"onevvvvvtwo", 11),
        ([(COMPRESSED, len(ZSTD_BLOCK), ZSTD_BLOCK)], b"abc" * 10, 131_072),
        ([(RAW, 3, b"one"), (COMPRESSED, len(ZSTD_BLOCK), ZSTD_BLOCK)], b"one" + b"abc" * 10, 131_075),
    ],
)
def test_zstd_claims_at_most_what_its_blocks_hold(
    blocks: list[tuple[int, int, bytes]], plain: bytes, most_bytes: int
) -> None:
    kind = CompressionType.ZSTD
    for claimed in (None, len(plain)):
        packed = zstd_frame(*blocks, claimed=claimed)
        assert decompress(kind, packed, len(plain)) == plain
        for end in range(9 if claimed is None else 13, len(packed)):
            assert piece_by_piece(kind, packed[:end], MIB) == ([], "zstd data ends within a frame")
    claims = f"zstd frame claims {most_bytes + 1} bytes, its blocks cannot hold more than {most_bytes}"
    too_large = f"compressed records hold more than the limit of {most_bytes} bytes"
    packed = zstd_frame(*blocks, claimed=most_bytes + 1)
    assert piece_by_piece(kind, packed, most_bytes + 1) == ([], claims)
    assert piece_by_piece(kind, packed, most_bytes) == ([], too_large)
    if most_bytes > len(plain):
        pieces, error = piece_by_piece(kind, zstd_frame(*blocks, claimed=most_bytes), most_bytes)
        assert not pieces and error.startswith("zstd data cannot be decompressed")


def test_zstd_without_its_magic_number() -> None:
    packed = zstandard.compress(b"one")
    for damaged in (b"", b"\0", b"\x28\xb5\x2f", b"\x27" + packed[1:], packed[:3] + b"\xfc" + packed[4:]):
        assert piece_by_piece(CompressionType.ZSTD, damaged, 9) == ([], "zstd data has no frame header")


def test_zstd_window_of_up_to_128_mebibytes() -> None:
    # An exponent of 17 above 10, and a mantissa in eighths.
    assert decompress(CompressionType.ZSTD, zstd_frame((RAW, 3, b"one"), window=17 << 3), 9) == b"one"
    for window in (17 << 3 | 1, 18 << 3, 19 << 3):
        with pytest.raises(CorruptRecordError, match="too much memory"):
            decompress(CompressionType.ZSTD, zstd_frame((RAW, 3, b"one"), window=window), 9)
    many = [(RUN, 131_072, b"v")] * 9
    assert decompress(CompressionType.ZSTD, zstd_frame(*many, window=17 << 3), 9 << 17) == b"v" * (9 << 17)
    with pytest.raises(CorruptRecordError, match="too much memory"):
        decompress(CompressionType.ZSTD, zstd_frame(*many, window=17 << 3 | 1), 9 << 17)


@pytest.mark.behaviour("Compression", "Large zstd data that are cut off are noticed")
def test_large_zstd_that_is_cut_off() -> None:
    """The library's reader returns the available bytes, and expects more."""
    plain = random.Random(5).randbytes(2 * MIB)
    for packed in (zstandard.compress(plain), zstandard.ZstdCompressor(write_checksum=True).compress(plain)):
        assert decompress(CompressionType.ZSTD, packed, len(plain)) == plain
        for left in (1, 2, 3, 4, 5, MIB, MIB + 1):
            assert piece_by_piece(CompressionType.ZSTD, packed[:-left], 2 * MIB) == (
                [],
                "zstd data ends within a frame",
            )


@with_each(
    ("block", "message"),
    [
        (b"\xff\xff\xff\xff\1\0v", "snappy block of -1 bytes does not fit into 3"),
        (b"\x80\0\0\0", "snappy block of -2147483648 bytes does not fit into 0"),
        (b"\0\0\0\4\1\0v", "snappy block of 4 bytes does not fit into 3"),
        (b"\0\0\0\3\1\0v\0\0\0\1", "snappy block of 1 bytes does not fit into 0"),
        (b"\0\0\0\0", "snappy block has no valid size"),
        (b"\0\0\0\4\x80\x80\x80\x80", "snappy block has no valid size"),
        (b"\0\0\0\6\x80\x80\x80\x80\x80\0", "snappy block has no valid size"),
        # The limit of 22 times the size, and one byte more.
        (b"\0\0\0\2\x2c\0", "snappy data cannot be decompressed: Corrupt"),
        (b"\0\0\0\2\x2d\0", "snappy block of 2 bytes claims to hold 45"),
        (b"\0\0\0\3\xe4\0\0", "compressed records hold more than the limit of 99 bytes"),
    ],
)
def test_a_snappy_block_that_is_refused_says_why(block: bytes, message: str) -> None:
    good = b"\0\0\0\3\1\0v"
    pieces, error = piece_by_piece(CompressionType.SNAPPY, XERIAL_HEADER + good + block, 99)
    # Whole blocks precede the damaged one.
    assert b"".join(pieces) in (b"v", b"vv") and error.startswith(message)
