"""Compression and decompression of the records section of a batch.

Producers call it on the thread that closes a batch, readers and brokers on their own threads. Contexts are kept per
thread, and the codecs release the GIL. Data are decompressed piece by piece, as far as the caller takes them: a few kB
may hold gigabytes. Decompression never produces more than the caller's limit, whatever the compressed data claims.

Source: KIP-110 (zstd), KIP-57 (lz4 framing), KIP-390 (levels), snappy-java's ``SnappyOutputStream`` (xerial framing).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import Any, Final

import lz4.frame
import zstandard

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError

#: Kafka's default level, because the codec's own default differs between libraries.
DEFAULT_ZSTD_LEVEL: Final = 3

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
#: Magic, version 1, compatible with version 1.
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
#: The maximum size of a piece of decompressed data, except with snappy, whose pieces are the writer's blocks.
PIECE_BYTES: Final = 1 << 20
#: Bytes passed to a library at once: it copies those that it does not consume yet.
_GIVEN_BYTES: Final = 64 * 1024
#: The same after a gzip member: the library copies the rest for each of thousands of small members.
_GIVEN_BEHIND_BYTES: Final = 4 * 1024
#: The identification and the only method of a gzip member (RFC 1952, 2.3.1); its header and trailer have 18 bytes.
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_TOO_SHORT_MEMBER: Final = 18
#: An element of snappy of three bytes stands for at most 64 (its format description, 2.2).
_SNAPPY_MOST_TIMES: Final = 22
#: The block size of snappy-java; a reader accepts any size.
XERIAL_BLOCK_BYTES: Final = 32 * 1024

# A zstd frame may require a window of gigabytes. The format recommends that decoders support 8 MB, and libzstd itself
# refuses more than 128 MB.
_MAX_ZSTD_WINDOW_BYTES: Final = 1 << 27
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: A skippable frame (RFC 8878, 3.1.2): the last four bits of its magic number are arbitrary.
_ZSTD_SKIPPED: Final = 0x184D2A50
_ZSTD_SKIPPED_HEAD_BYTES: Final = 8
#: The maximum content of one block of a zstd frame (RFC 8878, 3.1.1.2).
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_RUN: Final = 1
_ZSTD_COMPRESSED: Final = 2


class CompressionType(IntEnum):
    """Codec of a batch: the value of bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> CompressionType:
        """The codec with the name *name* in ``compression.type`` (``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``).

        :raises ValueError: if no codec has that name.
        """
        try:
            return cls[name.upper()]
        except KeyError:
            names = ", ".join(member.config_name for member in cls)
            raise ValueError(f"{name!r} is not a compression type, expected one of {names}") from None

    @property
    def config_name(self) -> str:
        """The name in ``compression.type``."""
        return self.name.lower()


class _Contexts(threading.local):
    """The zstd contexts of one thread: creating one costs more than compressing a small batch."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES)

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        compressor = self.compressors.get(level)
        if compressor is None:
            compressor = self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return compressor


_contexts = _Contexts()


def compress(kind: CompressionType, data: Buffer, level: int | None = None) -> Buffer:
    """Compress *data* as Kafka's Java client frames it; ``level=None`` is Kafka's default, snappy has no levels."""
    return _COMPRESSORS[kind](data, level)


def decompressed(kind: CompressionType, data: Buffer, max_bytes: int) -> Iterator[bytes]:
    """The content of *data*, in pieces, at most *max_bytes* bytes of them.

    :raises CorruptRecordError: where *data* is damaged or incomplete, or holds more than *max_bytes*.
    """
    room = max_bytes
    try:
        for piece in _DECOMPRESSORS[kind](memoryview(data), max_bytes):
            room -= len(piece)
            if room < 0:
                raise _too_large(max_bytes)
            yield piece
    except (zlib.error, zstandard.ZstdError, RuntimeError, OSError, EOFError, ValueError, MemoryError) as error:
        raise CorruptRecordError(f"{kind.config_name} data cannot be decompressed: {error}") from error


def _too_large(max_bytes: int) -> CorruptRecordError:
    return CorruptRecordError(f"compressed records hold more than the limit of {max_bytes} bytes")


def _pieces(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    if len(view) > max_bytes:
        raise CorruptRecordError(f"{len(view)} bytes of records are more than the limit of {max_bytes}")
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _gunzip(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    """A stream may consist of several members (RFC 1952, 2.2). Java's GZIPInputStream, and so Kafka, ignores other
    bytes after a member, and bytes that are too few for a member."""
    stream, position, given_bytes = zlib.decompressobj(wbits=31), 0, _GIVEN_BYTES
    while position < len(view) or not position:
        compressed = view[position : position + given_bytes]
        plain = stream.decompress(compressed, PIECE_BYTES)
        while not stream.eof and (stream.unconsumed_tail or len(plain) == PIECE_BYTES):
            yield plain
            plain = stream.decompress(stream.unconsumed_tail, PIECE_BYTES)
        if plain:
            yield plain
        position += len(compressed) - len(stream.unused_data)
        if stream.eof:
            if len(view) - position <= _TOO_SHORT_MEMBER or bytes(view[position : position + 3]) != _GZIP_MAGIC:
                return
            stream, given_bytes = zlib.decompressobj(wbits=31), _GIVEN_BEHIND_BYTES
        elif position >= len(view):
            raise CorruptRecordError("gzip data ends within a member")


def _lz4(data: Buffer, level: int | None) -> Buffer:
    # Kafka's Java reader refuses blocks that depend on earlier ones.
    packed: bytes = lz4.frame.compress(
        data, compression_level=level or 0, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return packed


def _unlz4(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    # Kafka's Java reader reads the first frame, and accepts no skippable frame before it.
    if bytes(view[: len(_LZ4_MAGIC)]) != _LZ4_MAGIC:
        raise CorruptRecordError("lz4 data has no frame header")
    stream, position = lz4.frame.LZ4FrameDecompressor(), 0
    while not stream.eof:
        compressed = view[position : position + _GIVEN_BYTES] if stream.needs_input else b""
        position += len(compressed)
        plain: bytes = stream.decompress(compressed, max_length=PIECE_BYTES)
        if plain:
            yield plain
        elif position == len(view) and stream.needs_input and not stream.eof:
            raise CorruptRecordError("lz4 data ends within a frame")


def _zstd(data: Buffer, level: int | None) -> Buffer:
    packed: bytes = _contexts.compressor(DEFAULT_ZSTD_LEVEL if level is None else level).compress(data)
    return packed


def _unzstd(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    position = 0
    while position < len(view) or not position:
        if int.from_bytes(view[position : position + 4], "little") & ~0xF == _ZSTD_SKIPPED:
            size = int.from_bytes(view[position + 4 : position + _ZSTD_SKIPPED_HEAD_BYTES], "little")
            position += _ZSTD_SKIPPED_HEAD_BYTES + size
            if position > len(view):
                raise CorruptRecordError("zstd data ends within a frame")
            continue
        end, most_bytes = _scan_zstd_frame(view, position)
        frame = view[position:end]
        claimed = zstandard.frame_content_size(frame)
        if claimed > max_bytes:
            raise _too_large(max_bytes)
        if claimed > most_bytes:
            raise CorruptRecordError(
                f"zstd frame claims {claimed} bytes, its blocks cannot hold more than {most_bytes}"
            )
        if most_bytes <= PIECE_BYTES:
            yield _contexts.decompressor.decompress(frame, max_output_size=most_bytes + 1)
        else:
            # Not the thread's context: the caller may decompress other data before it takes the next piece.
            decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW_BYTES)
            with decompressor.stream_reader(frame) as stream:
                while plain := stream.read(PIECE_BYTES):
                    yield plain
        position = end


def _scan_zstd_frame(view: memoryview, start: int) -> tuple[int, int]:
    """The end of the frame at *start*, and the maximum number of bytes of its blocks (RFC 8878, 3.1.1).

    libzstd's streaming reader does not report a truncated frame, because it expects more data, and the size must be
    known before a buffer is allocated. A walk over the block headers provides both.
    """
    if bytes(view[start : start + 4]) != _ZSTD_MAGIC:
        raise CorruptRecordError("zstd data has no frame header")
    has_checksum = zstandard.get_frame_parameters(view[start:]).has_checksum
    position = start + zstandard.frame_header_size(view[start:])
    most_bytes = 0
    last = False
    while not last:
        if position + 3 > len(view):
            raise CorruptRecordError("zstd data ends within a frame")
        block = int.from_bytes(view[position : position + 3], "little")
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        most_bytes += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size
        position += 3 + (1 if kind == _ZSTD_RUN else size)
    position += 4 if has_checksum else 0
    if position > len(view):
        raise CorruptRecordError("zstd data ends within a frame")
    return position, most_bytes


@cache
def _snappy_codec() -> Any:
    """Arrow's snappy, imported at the first use, so that a broker or a command does not wait for the import at its
    start."""
    import pyarrow as pa

    return pa.Codec("snappy")


def _snappy(data: Buffer, level: int | None) -> Buffer:
    view = memoryview(data)
    out = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block: bytes = _snappy_codec().compress(view[start : start + XERIAL_BLOCK_BYTES], asbytes=True)
        out.append(len(block).to_bytes(4, "big"))
        out.append(block)
    return b"".join(out)


def _unsnappy(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _unsnappy_block(view, max_bytes)
        return
    if len(view) < len(XERIAL_HEADER):
        raise CorruptRecordError("snappy data ends within its header")
    position = len(XERIAL_HEADER)
    while position < len(view):
        # The header of an appended stream, which snappy-java reads as well.
        if bytes(view[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(view):
            raise CorruptRecordError(f"snappy block of {size} bytes does not fit into {len(view) - position}")
        yield _unsnappy_block(view[position : position + size], max_bytes)
        position += size


def _unsnappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = _snappy_block_size(block)
    if size > max_bytes:
        raise _too_large(max_bytes)
    if size > _SNAPPY_MOST_TIMES * len(block):
        raise CorruptRecordError(f"snappy block of {len(block)} bytes claims to hold {size}")
    plain: bytes = _snappy_codec().decompress(block, decompressed_size=size, asbytes=True)
    return plain


def _snappy_block_size(block: memoryview) -> int:
    """The uncompressed size at the beginning of a raw snappy block: an unsigned varint of 32 bits."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    raise CorruptRecordError("snappy block has no valid size")


_COMPRESSORS: Final[dict[CompressionType, Callable[[Buffer, int | None], Buffer]]] = {
    CompressionType.NONE: lambda data, level: data,
    CompressionType.GZIP: lambda data, level: zlib.compress(data, -1 if level is None else level, wbits=31),
    CompressionType.SNAPPY: _snappy,
    CompressionType.LZ4: _lz4,
    CompressionType.ZSTD: _zstd,
}
_DECOMPRESSORS: Final[dict[CompressionType, Callable[[memoryview, int], Iterator[bytes]]]] = {
    CompressionType.NONE: _pieces,
    CompressionType.GZIP: _gunzip,
    CompressionType.SNAPPY: _unsnappy,
    CompressionType.LZ4: _unlz4,
    CompressionType.ZSTD: _unzstd,
}
