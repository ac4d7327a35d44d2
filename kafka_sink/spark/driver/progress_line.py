"""The progress line of :func:`kafka_sink.write`, instead of Spark's own progress bar, on a terminal or in a notebook.

The thread that writes starts and ends it. A separate thread draws the line, because a terminal may block; the end of
the write waits for it for a second at most. An error never reaches the write: the line just ends. It never starts a
job.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.threads import start_loop
from kafka_sink.spark.internals import SparksBar, classic_context, micro_batch_of

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import DataFrame

_COLUMNS: Final = 80
_GROUP: Final = "spark.jobGroup.id"
#: PySpark sets it to true where the user has not set it, and spark-submit leaves it unset.
_SPARKS_BAR: Final = "spark.ui.showConsoleProgress"
#: The delay of the line, as of Spark's bar: short writes show nothing.
_FIRST_MS: Final = 500
_EVERY_MS: Final = 200
#: Tasks report their rows at their end, so a rate over less than this would jump.
_RATE_OVER_MS: Final = 5000
#: How long the end of a write waits for a terminal that blocks.
_END_S: Final = 1.0

_log = logging.getLogger(__name__)
#: Two lines would overwrite each other: a concurrent write shows none.
_shown: Final = threading.Lock()


class Terminal:
    """Shows one line: the last one of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._width = 0

    def show(self, text: str) -> None:
        """Replace the line by *text*."""
        # A longer text would begin a second line, which cannot be overwritten.
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            columns = _COLUMNS
        shown = text[: columns - 1]
        self._stream.write(f"\r{shown:<{self._width}}")
        self._stream.flush()
        self._width = len(shown)

    def end(self, text: str) -> None:
        """Remove the line."""
        if self._width:
            self._stream.write(f"\r{'':<{self._width}}\r")
            self._stream.flush()
            self._width = 0


class Notebook:
    """Shows one line: a separate output below the running cell, which stays."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, text: str) -> None:
        if text == self._shown:
            # Some front ends append each update to the output.
            return
        self._shown = text
        if self._handle is None:
            # It belongs to the notebook: kafkalite does not require it.
            self._handle = importlib.import_module("IPython.display").display(
                {"text/plain": text}, raw=True, display_id=True
            )
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def end(self, text: str) -> None:
        if self._handle is not None:
            self.show(text)


def find_screen() -> Terminal | Notebook | None:
    """The notebook or the terminal of this process; None if there is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # IPython on a terminal has a shell without a kernel.
    if hasattr(shell, "kernel"):
        return Notebook()
    is_terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Terminal(sys.stderr) if is_terminal else None


class JobProgress:
    """The jobs that this thread runs from now on, in the group that the user has set or else in a new one. Tasks
    add their rows to *rows* once, at their end."""

    def __init__(self, context: SparkContext) -> None:
        self.rows = context.accumulator(0)
        self._context = context
        self._tracker = context.statusTracker()
        group = context.getLocalProperty(_GROUP)
        self._is_own_group = group is None
        self._group = group or f"kafkalite-write-{os.urandom(8).hex()}"
        self._jobs_before = frozenset(self._tracker.getJobIdsForGroup(self._group))
        #: Completed stages with the numbers of their tasks, which do not change any more.
        self._completed: dict[int, int] = {}
        self._sparks_bar = SparksBar(context)
        if self._is_own_group:
            context.setLocalProperty(_GROUP, self._group)

    def tasks(self) -> tuple[int, int]:
        """The number of tasks that have ended, and of all tasks in the stages that have begun."""
        done = begun = 0
        for job_id in self._tracker.getJobIdsForGroup(self._group):
            job = None if job_id in self._jobs_before else self._tracker.getJobInfo(job_id)
            for stage_id in () if job is None else job.stageIds:
                completed, tasks = self._tasks_of(stage_id)
                done += completed
                begun += tasks
        return done, begun

    def _tasks_of(self, stage_id: int) -> tuple[int, int]:
        """The same for one stage: 0 and 0 if it waits, or if Spark skips it because its results exist."""
        if stage_id in self._completed:
            return self._completed[stage_id], self._completed[stage_id]
        stage = self._tracker.getStageInfo(stage_id)
        if stage is None or not stage.numActiveTasks + stage.numCompletedTasks:
            return 0, 0
        if stage.numCompletedTasks >= stage.numTasks:
            self._completed[stage_id] = stage.numTasks
        return stage.numCompletedTasks, stage.numTasks

    def hold_back_sparks_bar(self) -> None:
        """Erase Spark's own bar and suppress it until the end of a job, which resets this."""
        self._sparks_bar.hold_back()

    def end(self) -> None:
        """Release Spark's bar, and remove the thread from the group."""
        self._sparks_bar.erase()
        if self._is_own_group:
            # None removes a property; PySpark's annotation does not allow it.
            self._context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type,unused-ignore]


class ProgressLine:
    """Draws the progress of *job* on *screen* until :meth:`end_with_program`."""

    def __init__(self, job: JobProgress, screen: Terminal | Notebook, clock: Clock = SYSTEM_CLOCK) -> None:
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
            # The rows of tasks that did not end are not known; the error says which stay in the topics.
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
    """Show a line while the body writes *df*. Yield the accumulator of the tasks' rows; None if no line is shown."""
    with ExitStack() as ending:
        yield _start(df, ending) if is_wanted else None


def _start(df: DataFrame, ending: ExitStack) -> Accumulator[int] | None:
    """Show a line until *ending*, if there is a terminal or a notebook and Spark's bars are not switched off. In a
    stream there is none: a line for each micro-batch would hide the program's output."""
    try:
        screen = find_screen()
        # Spark Connect has no context, and a bar of its own.
        context = classic_context(df.sparkSession)
        if screen is None or context is None or context.getConf().get(_SPARKS_BAR) == "false":
            return None
        if micro_batch_of(context)[1] is not None:
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
