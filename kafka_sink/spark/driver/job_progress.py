"""How far the Spark jobs of one write are, as far as the driver knows.

Created and ended by the thread that writes; the rest is called by the thread of the progress line. It never starts a
job.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.clock import FOREVER_MS

if TYPE_CHECKING:
    from pyspark import SparkContext

_GROUP: Final = "spark.jobGroup.id"


class JobProgress:
    """The jobs that this thread runs from now on, in the group that the user has set or else in one of their own. Tasks
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
        self._sparks_bar = _SparksBar.of(context)
        if self._is_own_group:
            context.setLocalProperty(_GROUP, self._group)

    def tasks(self) -> tuple[int, int]:
        """How many tasks have ended, of how many in all stages that have begun."""
        done = begun = 0
        for job_id in self._tracker.getJobIdsForGroup(self._group):
            job = None if job_id in self._jobs_before else self._tracker.getJobInfo(job_id)
            for stage_id in () if job is None else job.stageIds:
                completed, tasks = self._tasks_of(stage_id)
                done += completed
                begun += tasks
        return done, begun

    def _tasks_of(self, stage_id: int) -> tuple[int, int]:
        """None of none for a stage that waits, or that Spark skips because its results are there."""
        if stage_id in self._completed:
            return self._completed[stage_id], self._completed[stage_id]
        stage = self._tracker.getStageInfo(stage_id)
        if stage is None or not stage.numActiveTasks + stage.numCompletedTasks:
            return 0, 0
        if stage.numCompletedTasks >= stage.numTasks:
            self._completed[stage_id] = stage.numTasks
        return stage.numCompletedTasks, stage.numTasks

    def hold_back_sparks_bar(self) -> None:
        """Erase Spark's own bar, and keep it away until the end of a job, when Spark forgets that."""
        if self._sparks_bar is not None:
            self._sparks_bar.hold_back()

    def end(self) -> None:
        """Give Spark its bar back, and take the thread out of the group again."""
        if self._sparks_bar is not None:
            self._sparks_bar.erase()
        if self._is_own_group:
            # None removes a property; PySpark's type does not say so.
            self._context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type,unused-ignore]


class _SparksBar:
    """Spark's ``ConsoleProgressBar``. It draws every 200 ms, but not within 500 ms after the end of a job. Spark has no
    public way to it.

    Source: apache/spark ``core/src/main/scala/org/apache/spark/ui/ConsoleProgressBar.scala``.
    """

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._last_end_ms = bar.getClass().getDeclaredField("lastFinishTime")
        self._last_end_ms.setAccessible(True)

    @classmethod
    def of(cls, context: SparkContext) -> _SparksBar | None:
        """None if Spark shows none."""
        # Scala's Option.
        bar: Any = context._jsc.sc().progressBar()
        return cls(bar.get()) if bar.isDefined() else None

    def erase(self) -> None:
        self._bar.finishAll()

    def hold_back(self) -> None:
        self.erase()
        self._last_end_ms.setLong(self._bar, FOREVER_MS)
