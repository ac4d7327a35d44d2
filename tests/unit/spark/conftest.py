"""Fixtures of tests that run tasks without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.spark.task import task_writer
from kafka_sink.spark.task.kept_producers import KeptProducers


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptProducers]:
    """The producers that the tasks of one test leave; no other test continues with them."""
    kept = KeptProducers(SYSTEM_CLOCK)
    monkeypatch.setattr(task_writer, "kept_producers", kept)
    yield kept
    for producer, _ in kept._idle.values():
        producer.close(0)
