"""Concatenated streams of compressed records: a reader's result for all of them."""

from __future__ import annotations

import base64
import random
from typing import Any, Final

from kafka_sink.records.compression import CompressionType, compress
from tests.compat.java_judges.judging import Judged
from tests.support.unpacked import decompress

_MOST: Final = 1 << 20


def _streams(rng: random.Random) -> list[str]:
    codec = rng.choice([each for each in CompressionType if each is not CompressionType.NONE])
    parts = [bytes(compress(codec, _plain(rng))) for _ in range(rng.randint(1, 4))]
    # Java's snappy allocates the size that it finds in random bytes.
    if codec is not CompressionType.SNAPPY and rng.random() < 0.5:
        parts.insert(rng.randint(0, len(parts)), _between(rng))
        # Java's zstd does not detect that the last of several frames is truncated.
        if codec is not CompressionType.ZSTD:
            parts[-1] = parts[-1][: rng.choice((len(parts[-1]), -1, -12))]
    return [codec.config_name, base64.b64encode(b"".join(parts)).decode()]


def _between(rng: random.Random) -> bytes:
    """Return bytes that are no stream of any codec: zeros, random bytes, or a frame that zstd and LZ4 skip."""
    size = rng.choice((0, 1, 8, 17, 18, 19, 40, 9000))
    skipped = (0x184D2A50 + rng.randrange(16)).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)
    return rng.choice((bytes(size), b"\xff" + rng.randbytes(size), skipped))


def _plain(rng: random.Random) -> bytes:
    size = rng.choice((0, 1, 5, 300, 40_000, 70_000))
    return rng.randbytes(size) if rng.random() < 0.5 else b"record " * (size // 7)


def _ours(given: Any) -> str:
    codec, packed = given
    plain = decompress(CompressionType.from_name(codec), base64.b64decode(packed), _MOST)
    return base64.b64encode(plain).decode()


COMPRESSED: Final = Judged("Decompressed", _streams, _ours, share=0.3)
