"""The counts of scripts/soak.sh and its definition of flat; and, in the long run, a small soak."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.spark.soak import Ledger, Usage, Watch
from tests.support.amounts import only_long
from tests.support.real_kafka import skip_without_kafka

SCRIPT = Path(__file__).parents[2] / "scripts" / "soak.sh"
TIMEOUT_S = 400


def test_rows_that_are_missing_or_there_twice_are_counted() -> None:
    ledger = Ledger()
    ledger.add(())
    ledger.add(range(2_000_000))
    ledger.add([2_000_001, 7, 7, 9])
    assert ledger.missing(2_000_000) == 0
    assert ledger.missing(2_000_002) == 1
    assert ledger.missing(9_000_000) == 9_000_000 - 2_000_001
    assert ledger.twice == 2


@pytest.mark.parametrize(
    ("mib", "descriptors", "expected"),
    [
        ([50, 60, 200, 200, 210, 210, 235, 235], [40] * 8, []),
        ([50, 60, 200, 200, 230, 230, 245, 245], [40] * 8, ["JVM: 200 MiB in the second quarter, 245 in the last"]),
        ([300] * 8, [9, 9, 40, 40, 48, 48, 54, 54], []),
        ([300] * 8, [9, 9, 40, 40, 48, 48, 60, 60], ["JVM: 40 descriptors in the second quarter, 60 in the last"]),
    ],
)
def test_growth_from_second_to_last_quarter_is_reported(
    mib: list[float], descriptors: list[int], expected: list[str]
) -> None:
    samples = [Usage(1, *pair) for pair in zip(mib, descriptors, strict=True)]
    assert Watch({"JVM": samples}).growth() == expected


def test_this_process_has_memory_and_descriptors() -> None:
    watch = Watch()
    watch.sample(os.getpid())
    (usage,) = watch.samples["driver"]
    assert (usage.processes, usage.mib > 1, usage.descriptors > 2) == (1, True, True)


@only_long
def test_a_small_soak_misses_and_repeats_nothing() -> None:
    skip_without_kafka()
    done = subprocess.run(
        ["bash", str(SCRIPT), "--minutes", "0.3", "--every", "10"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"min  ([\d,]+) rows in .* missing 0  twice 0  driver \d+ MiB, \d+ fd", done.stdout)
    assert len(lines) >= 2
    assert int(lines[-1].replace(",", "")) >= 1000
