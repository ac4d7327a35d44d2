"""Metrics in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.cli.serving import INTERVAL_MS, write_metrics_until


def stopped_after(pauses: int, waits: list[int]) -> Callable[[int], bool]:
    """Return a wait that reports the stop after *pauses* calls, and appends their timeouts to *waits*."""

    def stopped(timeout_ms: int) -> bool:
        waits.append(timeout_ms)
        return len(waits) > pauses

    return stopped


def test_the_file_has_the_newest_figures_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "broker.prom"
    waits: list[int] = []
    write_metrics_until(stopped_after(0, waits), path, lambda: f"after {len(waits)}")
    assert path.read_text() == "after 1"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.behaviour("Request metrics", "The metrics file is written again and again")
def test_it_is_written_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "broker.prom"
    waits: list[int] = []
    contents: list[str | None] = []

    def render() -> str:
        contents.append(path.read_text() if path.exists() else None)
        return str(len(contents))

    write_metrics_until(stopped_after(3, waits), path, render)
    assert waits == [INTERVAL_MS] * 4 and INTERVAL_MS == 10_000, "every ten seconds"
    assert contents == [None, "1", "2", "3"]
    assert path.read_text() == "4", "and at the end"


def test_a_disk_that_refuses_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_metrics_until(stopped_after(0, []), tmp_path / "nowhere" / "broker.prom", lambda: "x")
    assert "cannot write metrics to" in caplog.text


def test_an_error_of_rendering_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker continues although its metrics cannot be rendered."""
    path = tmp_path / "broker.prom"
    waits: list[int] = []

    def render() -> str:
        return str(12 // (len(waits) - 1))

    write_metrics_until(stopped_after(1, waits), path, render)
    assert path.read_text() == "12"
    assert "ZeroDivisionError" in caplog.text
