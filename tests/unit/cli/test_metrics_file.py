"""Figures in a file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kafka_sink.cli import serving
from kafka_sink.cli.serving import MetricsFile
from kafka_sink.common.clock import SYSTEM_CLOCK
from tests.fakes.clock import FakeClock


def test_the_file_has_the_newest_figures_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "broker.prom"
    figures = ["old"]
    with MetricsFile(path, lambda: figures[-1], SYSTEM_CLOCK):
        figures.append("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.behaviour("Request metrics", "The metrics file is written again and again")
def test_it_is_written_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "broker.prom"
    rounds: list[int] = []
    written_thrice = threading.Event()

    class Clock(FakeClock):
        def wait(self, condition: threading.Condition, timeout_ms: int) -> bool:
            if len(rounds) < 3:
                return super().wait(condition, timeout_ms)
            written_thrice.set()
            return condition.wait(10)

    clock = Clock()

    def render() -> str:
        rounds.append(clock.now_ms)
        return str(len(rounds))

    with MetricsFile(path, render, clock):
        assert written_thrice.wait(10)
    assert rounds == [1_010_000, 1_020_000, 1_030_000, 1_030_000], "every ten seconds, and at the end"
    assert path.read_text() == "4"


def test_a_disk_that_refuses_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MetricsFile(tmp_path / "nowhere" / "broker.prom", lambda: "x", SYSTEM_CLOCK):
        pass
    assert "cannot write metrics to" in caplog.text


def test_without_a_path_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(serving, "start_thread", lambda name, run: started.append(name))
    with MetricsFile(None, lambda: "x", SYSTEM_CLOCK):
        pass
    assert started == []
