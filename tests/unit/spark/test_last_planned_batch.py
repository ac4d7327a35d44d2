"""The last batch that a query has planned, in whatever order a file system lists its offset log."""

from __future__ import annotations

import itertools

import pytest

from kafka_sink.spark.streaming.checkpoint import planned_offsets


class Listed:
    """A checkpoint whose offset log is listed in the given order."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def names(self, folder: str) -> list[str]:
        return [*self._names, ".10.crc", ".tmp"]

    def read(self, path: str, most: int) -> tuple[bytes, bool]:
        return f"v1\n{{}}\n{path.rpartition('/')[2]}".encode(), True


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "The same offsets are the same rows, whenever they were planned",
)
def test_the_last_planned_batch_is_found_in_any_order() -> None:
    for names in itertools.permutations(("9", "10", "11", "2")):
        assert planned_offsets(Listed(*names)) == planned_offsets(Listed(*names), 11)
