"""The comparison with Google's library and ptars still runs, and all write the same bytes; its measurements are not
checked.
"""

from __future__ import annotations

import pytest

from tests.bench.bench_avro import WORKS
from tests.bench.bench_protobuf import ENCODERS, compare


@pytest.mark.parametrize("work", WORKS)
def test_all_encoders_write_the_same_and_are_measured(work: str) -> None:
    found = compare(work, 200, runs=1, batches=2)
    assert list(found) == list(ENCODERS)
