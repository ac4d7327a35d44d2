"""Fixtures of tests that run tasks without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_sink.spark.task import task_writer
from tests.fakes.left_producers import LeftProducers


@pytest.fixture(autouse=True)
def left_producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[LeftProducers]:
    """The producers that the tasks of one test leave; no other test reuses them."""
    left = LeftProducers()
    monkeypatch.setattr(task_writer, "kept_producers", left)
    yield left
    left.close()
