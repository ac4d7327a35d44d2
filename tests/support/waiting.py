"""Waits for what a cluster does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_sink.common.errors import KafkaError

WAIT_S = 180.0


def until(what: str, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Wait until *condition* holds; while it raises a KafkaError it does not."""
    deadline = time.monotonic() + timeout_s
    last: KafkaError | None = None
    while time.monotonic() < deadline:
        try:
            if condition():
                return
            last = None
        except KafkaError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {timeout_s} s") from last
