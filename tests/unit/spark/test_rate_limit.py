"""maxRecordsPerSecond: the times at which a task passes on rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_sink.spark.task.task_writer import RateLimit
from tests.fakes.clock import FakeClock

START_MS = 1_000_000


def batch(first: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(first, first + rows))], names=["value"])


def passed_on(limit: RateLimit, clock: FakeClock, *batches: pa.RecordBatch) -> list[tuple[int, int]]:
    """Time since the start and number of rows, for each piece."""
    return [(clock.now_ms - START_MS, piece.num_rows) for piece in limit.pieces(batches)]


@pytest.mark.behaviour("Tasks", "maxRecordsPerSecond limits each task, in pieces of a tenth of a second")
def test_rows_are_passed_on_at_the_rate() -> None:
    clock = FakeClock(START_MS)
    found = passed_on(RateLimit(1000, clock), clock, batch(0, 250), batch(250, 150))
    assert [rows for _, rows in found] == [100, 100, 50, 100, 50]
    assert [at for at, _ in found] == [0, 100, 200, 250, 350]


def test_rows_keep_their_order_and_are_views() -> None:
    clock = FakeClock(START_MS)
    whole = batch(0, 35)
    pieces = list(RateLimit(100, clock).pieces([whole]))
    assert [value for piece in pieces for value in piece.column(0).to_pylist()] == list(range(35))
    assert {piece.column(0).buffers()[1].address for piece in pieces} == {whole.column(0).buffers()[1].address}


def test_time_without_rows_is_not_made_up_for() -> None:
    clock = FakeClock(START_MS)
    limit = RateLimit(100, clock)
    passed_on(limit, clock, batch(0, 10))
    clock.advance(60_000)
    assert passed_on(limit, clock, batch(0, 30)) == [(60_000, 10), (60_100, 10), (60_200, 10)]


def test_slowest_limit_passes_on_single_rows() -> None:
    clock = FakeClock(START_MS)
    assert [rows for _, rows in passed_on(RateLimit(1, clock), clock, batch(0, 3))] == [1, 1, 1]
    assert clock.now_ms - START_MS >= 2000


@pytest.mark.behaviour("Tasks", "A wait for maxRecordsPerSecond ends when the task is interrupted")
def test_wait_is_interruptible() -> None:
    clock = FakeClock(START_MS)

    def interrupt() -> None:
        raise KeyboardInterrupt

    pieces = RateLimit(1, clock).pieces([batch(0, 2)])
    next(pieces)
    clock.actions.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(pieces)
