"""Distributes the tests of a run to processes (pytest-xdist): by files, those that share a Spark or Kafka together.

The longest tests come first, so that no process is the only one at the end.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).parents[2]
_SPARK = "spark: SparkSession"
#: Fixtures of a whole run, as tests name them: each process that needs one starts its own. The matrix needs its servers
#: and Spark.
_SHARED = {
    "SecureServer": _SPARK,
    **{each: each for each in (_SPARK, "real_kafka: RealKafka", "kafka_of_three", "identity_kafka: IdentityKafka")},
}
#: Folders whose files take long; the last file to end should be a short one. Kafka may still be downloaded while the
#: first of them run.
_LONG = ("tests/spark", "tests/exactly_once", "tests/sim", "Kafka, shared", "Kafka", "tests/bench", "tests/integration")


@cache
def group(file: str) -> str:
    """Return the group of *file*, a path below the project's folder; one process runs all files of a group."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return next((shared for taken, shared in _SHARED.items() if taken in text), file)


@cache
def needs_kafka(file: str) -> bool:
    """Whether tests of *file*, a path below the project's folder, may start a real Kafka or run its tools."""
    text = (ROOT / file).read_text(encoding="utf-8")
    return file.startswith(("tests/compat/", "tests/matrix/")) or "real_kafka" in text


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """One unit of work for each group of files, and for each test of the exploration."""

    def _split_scope(self, nodeid: str) -> str:
        # In a long run the tests of this folder take an hour of one processor, and share no fixtures.
        return nodeid if nodeid.startswith("tests/exploration/") else group(super()._split_scope(nodeid))


def longest_first(items: list[pytest.Item]) -> None:
    """Order the tests: those that share a Spark, then the folders whose files take long, but tests with Kafka not at
    the very beginning.
    """
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    file = item.nodeid.split("::", 1)[0]
    is_shared = group(file) != file
    if needs_kafka(file):
        return 1 + _LONG.index("Kafka, shared" if is_shared else "Kafka")
    if is_shared:
        return 0
    folder = file.rpartition("/")[0]
    return 1 + (_LONG.index(folder) if folder in _LONG else len(_LONG))


def make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Return the scheduler, or None if the run does not distribute by files."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
