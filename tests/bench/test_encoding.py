"""The comparisons of encoders still run, and all write the same bytes; their measurements are not checked."""

from __future__ import annotations

import pytest

from tests.bench import bench_avro, bench_json, bench_protobuf
from tests.bench.encoding import WORKS

OTHERS = {bench_avro: ["fastavro"], bench_json: ["json.dumps"], bench_protobuf: ["google", "ptars"]}


@pytest.mark.parametrize("bench", OTHERS, ids=lambda bench: bench.__name__.rpartition("_")[2])
@pytest.mark.parametrize("work", WORKS)
def test_encoders_write_the_same_and_are_measured(work: str, bench: object) -> None:
    assert list(bench.measure(work, 200, runs=1, batches=2)) == ["kafkalite", *OTHERS[bench]]  # type: ignore[attr-defined, index]
