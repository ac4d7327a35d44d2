"""The comparison with json.dumps still runs; its measurements are not checked."""

from __future__ import annotations

import pytest

from tests.bench.bench_avro import WORKS
from tests.bench.bench_json import ENCODERS, compare


@pytest.mark.parametrize("work", WORKS)
def test_both_encoders_are_measured(work: str) -> None:
    assert list(compare(work, 200, runs=1, batches=2)) == list(ENCODERS)
