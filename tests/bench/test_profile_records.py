"""The profile of the encoder still runs; its measurements are not checked."""

from __future__ import annotations

from tests.bench.profile_records import Shape, profile


def test_every_stage_is_measured() -> None:
    stages = profile(Shape("small", key_bytes=(8, 8), value_bytes=(100, 100), rows=50), seconds=0)
    assert set(stages) == {"wrap", "murmur2", "order", "take", "sizes", "encode", "crc"}
