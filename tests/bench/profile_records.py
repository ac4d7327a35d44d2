"""The time of each stage for a chunk of 10,000 rows: hash, order, take, sizes, encode, CRC; µs, best of several.

Run ``python tests/bench/profile_records.py [--seconds 1]``, which measures each stage for at most that time. The stages
are those of the producer's columnar path, for several lengths of keys and values and numbers of partitions.
"""

from __future__ import annotations

import argparse
import platform
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import crc32c
import numpy as np
import pyarrow as pa

from kafka_sink.columns.record_columns import BinaryColumn, ColumnChunk
from kafka_sink.producer.plugins.partitioner import murmur2_array
from kafka_sink.records.vectorized import content_sizes, encode_records, partition_order, sizes_from_content

ROWS = 10_000


@dataclass(frozen=True)
class Shape:
    """The shape of the rows: lengths in bytes as (minimum, maximum); None for no key."""

    name: str
    key_bytes: tuple[int, int] | None
    value_bytes: tuple[int, int]
    partitions: int = 4
    rows: int = ROWS


SHAPES = (
    Shape("key 8, value 100", (8, 8), (100, 100)),
    Shape("key 8, value 100, 1 partition", (8, 8), (100, 100), 1),
    Shape("key 8, value 100, 100 partitions", (8, 8), (100, 100), 100),
    Shape("key 8, value 100, 1,000 partitions", (8, 8), (100, 100), 1000),
    Shape("key 1-8 (ids), value 100", (1, 8), (100, 100)),
    Shape("key 36 (uuid), value 200-400", (36, 36), (200, 400)),
    Shape("key 4-40, value 0-100", (4, 40), (0, 100)),
    Shape("no key, value 200-400", None, (200, 400), 1),
    Shape("key 8, value 1,000", (8, 8), (1000, 1000)),
    Shape("key 8, value 10,000 (1,000 rows)", (8, 8), (10_000, 10_000), 4, 1000),
)


def column(lengths: tuple[int, int], rows: int, rng: random.Random) -> pa.Array:
    return pa.array([rng.randbytes(rng.randint(*lengths)) for _ in range(rows)], pa.binary())


def best(run: Callable[[], object], seconds: float) -> float:
    """Return the shortest time of one call, in µs."""
    run()
    shortest = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest * 1e6


def profile(shape: Shape, seconds: float) -> dict[str, float]:
    rng = random.Random(1)
    key_array = None if shape.key_bytes is None else column(shape.key_bytes, shape.rows, rng)
    value_array = column(shape.value_bytes, shape.rows, rng)

    def wrap() -> ColumnChunk:
        key = None if key_array is None else BinaryColumn.from_arrow(key_array)
        return ColumnChunk(BinaryColumn.from_arrow(value_array), key)

    chunk = wrap()
    stages = {"wrap": best(wrap, seconds)}
    partitions = np.zeros(shape.rows, dtype=np.int32)
    if chunk.key is not None:
        key = chunk.key
        stages["murmur2"] = best(lambda: murmur2_array(key), seconds)
        partitions = (murmur2_array(key) & np.int32(0x7FFF_FFFF)) % np.int32(shape.partitions)
    stages["order"] = best(lambda: partition_order(partitions), seconds)
    order, _, starts = partition_order(partitions)
    if order is not None:
        rows = order
        stages["take"] = best(lambda: chunk.take(rows), seconds)
        chunk = chunk.take(order)
    deltas = np.arange(shape.rows) - np.repeat(starts[:-1], np.diff(starts))
    stages["sizes"] = best(lambda: sizes_from_content(content_sizes(chunk), deltas, 0), seconds)
    stages["encode"] = best(lambda: encode_records(chunk, deltas, 0), seconds)
    encoded = encode_records(chunk, deltas, 0)
    stages["crc"] = best(lambda: crc32c.crc32c(encoded.data), seconds)
    return stages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each stage of each shape")
    seconds = parser.parse_args().seconds
    print(f"Python {platform.python_version()}, numpy {np.__version__}, pyarrow {pa.__version__}; µs per chunk")
    names = ("wrap", "murmur2", "order", "take", "sizes", "encode", "crc")
    print(f"{'shape':36}" + "".join(f"{name:>9}" for name in names) + f"{'all':>9}{'M rows/s':>10}")
    for shape in SHAPES:
        stages = profile(shape, seconds)
        total = sum(stages.values())
        cells = "".join(f"{stages.get(name, 0):9.0f}" for name in names)
        print(f"{shape.name:36}{cells}{total:9.0f}{shape.rows / total:10.1f}")


if __name__ == "__main__":
    main()
