"""The progress line of kafka_sink.write inside a real Spark, on a stream that claims to be a terminal."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafka_sink import write

LIMIT_S = 120.0


class Terminal(io.StringIO):
    """Calls *seen* when the line says that one of two tasks has ended."""

    def __init__(self, seen: Callable[[], None]) -> None:
        super().__init__()
        self._seen = seen

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if "1 of 2 tasks" in text:
            self._seen()
        return super().write(text)


def rows_of_which_half_waits(spark: SparkSession, seen: Path) -> DataFrame:
    """Return 1,000 rows in two tasks; the second one waits until *seen* exists."""

    def await_seen(batches: Iterator[Any]) -> Iterator[Any]:
        deadline = time.monotonic() + LIMIT_S
        for batch in batches:
            while batch.column(0)[0].as_py() >= "500" and not seen.exists():
                assert time.monotonic() < deadline, "no line has said that one of two tasks has ended"
                time.sleep(0.05)
            yield batch

    # Texts of the same width have the order of their numbers.
    numbers = spark.range(0, 1000, 1, 2).selectExpr("lpad(cast(id as string), 3, '0') as value")
    return numbers.mapInArrow(await_seen, "value string")


def held_back_ms(spark: SparkSession) -> int:
    """Return the time when Spark's own progress bar was last delayed, or erased at the end of a job."""
    # Spark has no public access to its bar.
    context: Any = spark.sparkContext
    bar = context._jsc.sc().progressBar().get()
    field = bar.getClass().getDeclaredField("lastFinishTime")
    field.setAccessible(True)
    return int(field.get(bar))


@pytest.mark.behaviour("Streams and foreachBatch", "write() shows rows and tasks in the place of Spark's progress bar")
@pytest.mark.parametrize("numbered", [False, True], ids=["at-least-once", "parallel"])
def test_line_has_rows_of_tasks_that_have_ended(
    spark: SparkSession,
    cluster: Any,
    new_topic: Callable[..., str],
    tmp_path: Path,
    numbered: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_back: list[int] = []

    def seen() -> None:
        held_back.append(held_back_ms(spark))
        (tmp_path / "seen").touch()

    terminal = Terminal(seen)
    monkeypatch.setattr(sys, "stderr", terminal)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(2)}
    number: dict[str, Any] = {"app_id": "progress-line", "version": 1, "atomic": False} if numbered else {}
    before_ms = held_back_ms(spark)
    report = write(rows_of_which_half_waits(spark, tmp_path / "seen"), options=options, **number)
    assert report.rows == 1000
    assert "\rkafkalite: 500 rows acknowledged, " in terminal.getvalue()
    # The line is erased in the end.
    assert terminal.getvalue().endswith(" \r")
    # Spark itself sets the time only at the end of a job, and none had ended.
    assert held_back[0] > before_ms
    # The next job of this thread is not in the write's group.
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.behaviour("Streams and foreachBatch", "An error of the progress line does not reach the write")
def test_a_terminal_that_goes_away_leaves_the_write_alone(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        (tmp_path / "seen").touch()
        raise OSError("this terminal has gone")

    monkeypatch.setattr(sys, "stderr", Terminal(fail))
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(2)}
    assert write(rows_of_which_half_waits(spark, tmp_path / "seen"), options=options).rows == 1000


@pytest.mark.parametrize("way", ["argument", "no-terminal"])
def test_no_line_where_none_is_wanted(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO() if way == "no-terminal" else Terminal(lambda: None)
    monkeypatch.setattr(sys, "stderr", stream)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(2)}
    write(spark.range(3).selectExpr("'x' as value"), options=options, progress=way != "argument")
    assert stream.getvalue() == ""
