"""The progress line of :func:`kafka_sink.write`, in the place of Spark's own progress bar.

The thread that writes starts and ends it; the line is drawn by a thread of its own, which a terminal that stands still
may block. An error never reaches the write: the line just ends.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.threads import start_loop
from kafka_sink.spark.driver.job_progress import JobProgress
from kafka_sink.spark.driver.screen import Screen, find_screen

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame

#: PySpark sets it to true where the user has not set it, and spark-submit leaves it unset.
_SPARKS_BAR: Final = "spark.ui.showConsoleProgress"
#: As of Spark's bar: short writes show nothing.
_FIRST_MS: Final = 500
_EVERY_MS: Final = 200
#: Tasks report their rows at their end, so a rate over less than this would jump.
_RATE_OVER_MS: Final = 5000
#: How long the end of a write waits for a terminal that stands still.
_END_S: Final = 1.0

_log = logging.getLogger(__name__)
#: Two lines would overwrite each other: a write beside another one shows none.
_shown: Final = threading.Lock()


class ProgressLine:
    """Draws the progress of *job* on *screen* until :meth:`end_with_program`."""

    def __init__(self, job: JobProgress, screen: Screen, clock: Clock = SYSTEM_CLOCK) -> None:
        self._job = job
        self._screen = screen
        self._clock = clock
        self._started_ms = clock.monotonic_ms()
        #: Instants, ms, with the rows acknowledged until then: those of the last seconds, and one before.
        self._seen: deque[tuple[int, int]] = deque([(self._started_ms, 0)])
        self._condition = threading.Condition()
        self._has_ended = False
        self._has_failed = False

    def run(self) -> None:
        """Draw from time to time; the body of the line's thread."""
        try:
            while self._wait():
                self.step(self._clock.monotonic_ms())
            seconds = (self._clock.monotonic_ms() - self._started_ms) / 1000
            rows = f"{self._job.rows.value:,} rows"
            # Of the tasks that did not end nobody knows; the error says what stays in the topics.
            self._screen.end(
                f"kafkalite: not completed, {rows} of completed tasks acknowledged in {seconds:.1f} s"
                if self._has_failed
                else f"kafkalite: {rows} acknowledged in {seconds:.1f} s"
            )
        except Exception:
            _log.debug("the progress line ends early", exc_info=True)

    def _wait(self) -> bool:
        """Wait for the time of the next step; False at the end."""
        with self._condition:
            if not self._has_ended:
                self._clock.wait(self._condition, _EVERY_MS)
            return not self._has_ended

    def step(self, now_ms: int) -> None:
        """Draw the line as it is at *now_ms*."""
        self._job.hold_back_sparks_bar()
        done, begun = self._job.tasks()
        if now_ms - self._started_ms < _FIRST_MS or not begun:
            return
        rows = self._job.rows.value
        self._screen.show(
            f"kafkalite: {rows:,} rows acknowledged, {self._rate(rows, now_ms):,} rows/s, {done} of {begun} tasks"
        )

    def _rate(self, rows: int, now_ms: int) -> int:
        """Rows per second over the last seconds."""
        self._seen.append((now_ms, rows))
        while len(self._seen) > 2 and self._seen[1][0] <= now_ms - _RATE_OVER_MS:
            self._seen.popleft()
        since_ms, before = self._seen[0]
        return (rows - before) * 1000 // max(now_ms - since_ms, 1)

    def end_with_program(self, *, has_failed: bool = False) -> None:
        """Make :meth:`run` end the line and return; also called at the interpreter's exit."""
        with self._condition:
            self._has_ended, self._has_failed = True, has_failed
            self._condition.notify()


@contextmanager
def progress_line(df: DataFrame, *, is_wanted: bool) -> Iterator[Accumulator[int] | None]:
    """Show a line while the body writes *df*. The value is what tasks add their rows to; None if no line is shown."""
    with ExitStack() as ending:
        yield _start(df, ending) if is_wanted else None


def _start(df: DataFrame, ending: ExitStack) -> Accumulator[int] | None:
    """Show a line until *ending*, if there is a terminal or a notebook and Spark's bars are not switched off."""
    try:
        screen = find_screen()
        # Spark Connect has no context, and a bar of its own.
        context = getattr(df.sparkSession, "_sc", None)
        if screen is None or context is None or context.getConf().get(_SPARKS_BAR) == "false":
            return None
        if not _shown.acquire(blocking=False):
            return None
        ending.callback(_shown.release)
        job = JobProgress(context)
        ending.callback(_quietly, job.end)
        line = ProgressLine(job, screen)
        thread = start_loop("kafkalite-progress-line", line)
        ending.callback(thread.join, _END_S)
        ending.push(lambda kind, *_: line.end_with_program(has_failed=kind is not None))
    except Exception:
        _log.debug("no progress line is shown", exc_info=True)
        return None
    return job.rows


def _quietly(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        _log.debug("the progress line left something behind", exc_info=True)
