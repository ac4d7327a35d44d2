"""The progress line of a write: its text and its output, without Spark."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.spark.driver.progress_line import Notebook, ProgressLine, Terminal, find_screen, progress_line
from tests.fakes.clock import FakeClock


class Job:
    """The progress of a job, which a test sets."""

    def __init__(self, *, fails: bool = False) -> None:
        self.rows = SimpleNamespace(value=0)
        self.done = self.begun = 0
        self.held_back = 0
        self.fails = fails

    def tasks(self) -> tuple[int, int]:
        if self.fails:
            raise OSError("Spark has gone")
        return self.done, self.begun

    def hold_back_sparks_bar(self) -> None:
        self.held_back += 1


class TerminalStream(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def make_line(job: Any, stream: io.StringIO, clock: FakeClock) -> ProgressLine:
    return ProgressLine(job, Terminal(stream), clock)


def test_line_has_rows_their_rate_and_tasks() -> None:
    job, stream = Job(), TerminalStream()
    clock = FakeClock()
    line, start_ms = make_line(job, stream, clock), clock.now_ms
    line.step(start_ms + 1_000)
    job.begun = 8
    line.step(start_ms + 499)
    assert (stream.getvalue(), job.held_back) == ("", 2)
    job.rows.value, job.done = 1_234_000, 3
    line.step(start_ms + 2_000)
    # The elapsed time begins with the write.
    assert stream.getvalue() == "\rkafkalite: 1,234,000 rows acknowledged, 617,000 rows/s, 3 of 8 tasks"


def test_rate_is_that_of_the_last_seconds() -> None:
    job, stream, clock = Job(), TerminalStream(), FakeClock()
    line, start_ms = make_line(job, stream, clock), clock.now_ms
    job.begun = 8
    for second in range(1, 31):
        # First 1,000 rows per second, then 100.
        job.rows.value += 1_000 if second <= 20 else 100
        line.step(start_ms + second * 1_000)
    assert "20,000 rows acknowledged, 1,000 rows/s" in stream.getvalue()
    assert stream.getvalue().endswith("21,000 rows acknowledged, 100 rows/s, 0 of 8 tasks")


def test_shorter_line_covers_longer_one_and_end_erases_it() -> None:
    stream = TerminalStream()
    terminal = Terminal(stream)
    terminal.show("12345")
    terminal.show("abc")
    terminal.end("what a terminal does not keep")
    terminal.end("")
    assert stream.getvalue() == "\r12345\rabc  \r   \r"
    terminal.show("x" * 200)
    assert stream.getvalue().endswith("\r" + "x" * 79)


def test_an_error_ends_the_line_only() -> None:
    make_line(Job(fails=True), TerminalStream(), FakeClock()).run()


@pytest.mark.parametrize(
    ("has_failed", "says"),
    [(False, "1,000 rows acknowledged"), (True, "not completed, 1,000 rows of completed tasks acknowledged")],
)
def test_the_end_says_whether_the_write_completed(has_failed: bool, says: str) -> None:
    job: Any = Job()
    kept: list[str] = []
    screen: Any = SimpleNamespace(show=kept.append, end=kept.append)
    line = ProgressLine(job, screen, FakeClock())
    job.rows.value = 1_000
    line.end_with_program(has_failed=has_failed)
    line.run()
    assert kept == [f"kafkalite: {says} in 0.0 s"]


def test_nothing_is_shown_without_terminal_and_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert find_screen() is None
    monkeypatch.setattr(sys, "stderr", TerminalStream())
    assert isinstance(find_screen(), Terminal)
    monkeypatch.setenv("TERM", "dumb")
    assert find_screen() is None


def test_a_notebook_has_one_output_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, Any]] = []

    def display(data: Any, **_: Any) -> Any:
        shown.append(("display", data))
        return SimpleNamespace(update=lambda data, **_: shown.append(("update", data)))

    modules: dict[str, Any] = {
        "IPython": SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object())),
        "IPython.display": SimpleNamespace(display=display),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    screen = find_screen()
    assert isinstance(screen, Notebook)
    for text in ("one", "two", "two", "two"):
        screen.show(text)
    screen.end("done")
    assert shown == [
        ("display", {"text/plain": "one"}),
        ("update", {"text/plain": "two"}),
        ("update", {"text/plain": "done"}),
    ]


def test_a_spark_that_tells_nothing_leaves_the_write_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", TerminalStream())
    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(_sc=object()))
    for _ in range(2):
        with progress_line(frame, is_wanted=True) as counted:
            assert counted is None
