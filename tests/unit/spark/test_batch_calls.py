"""What a query wrote last is kept of the latest sinks only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.spark.driver.batch_calls import note_written, require_same_rows

TASK: Any = SimpleNamespace(producer_properties={"bootstrap.servers": "broker:9092"})


class Rows:
    """A DataFrame that is like no other."""

    def sameSemantics(self, other: object) -> bool:
        return self is other


def sink(number: int) -> Any:
    return SimpleNamespace(name=f"sink-{number}", progress_topic="t")


def test_other_rows_in_a_batch_are_refused_for_the_latest_sinks() -> None:
    written: Any = [Rows() for _ in range(60)]
    other: Any = Rows()
    for number, rows in enumerate(written):
        note_written(rows, TASK, sink(number), "run", 3)
    for number in range(10, 60):
        require_same_rows(written[number], TASK, sink(number), "run", 3)
        with pytest.raises(ConfigError, match=f"app_id 'sink-{number}' was used twice in batch 3"):
            require_same_rows(other, TASK, sink(number), "run", 3)
    # Nothing holds the rows of the first ten any more.
    require_same_rows(other, TASK, sink(9), "run", 3)
    require_same_rows(other, TASK, sink(59), "another run", 3)
