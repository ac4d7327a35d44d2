"""The Spark jobs of an atomic write: their number of tasks, and the conditions for one writer of each partition.

The rows of an atomic write are blocks on executors: a local checkpoint cannot be computed again, because a stage that
Spark runs again would be a second writer. Dynamic allocation removes idle executors together with their blocks. With
``spark.speculation`` Spark starts copies of slow tasks on other hosts. A copy that fails counts as a failure of its
task, and a few of them end the stage although the first attempt is healthy; so copies wait until Spark does not need
them any more (:func:`~kafka_sink.spark.task.transactional_task.write_in_drivers_transaction`). But a second attempt
also follows a first one that has failed, and a task cannot distinguish the two cases. The driver can: here it cancels
its jobs as soon as Spark has counted a failed task.

Source: apache/spark ``ExecutorMonitor`` (``spark.dynamicAllocation.cachedExecutorIdleTimeout``),
``TaskSetManager.checkSpeculatableTasks`` (at most one copy beside the first attempt) and
``AppStatusListener.onTaskEnd`` (what counts as failed).
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_sink.common.errors import ConfigError
from kafka_sink.common.threads import start_thread
from kafka_sink.exactly_once.model import AttemptError
from kafka_sink.spark.internals import classic_context, stages_with_tag
from kafka_sink.spark.task.shared_client import shared_client
from kafka_sink.spark.write_spec import ProducerSpec

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

_log = logging.getLogger(__name__)

EVERY_S: Final = 1.0
_SPECULATION: Final = "spark.speculation"
_ALLOCATION: Final = "spark.dynamicAllocation.enabled"
_KEPT: Final = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
#: The shortest safe value, s: a block waits while earlier tasks write. Spark's default for executors without blocks.
_SHORTEST_S: Final = 60
_TIME: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
#: Spark's suffixes of times, in seconds.
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def shuffle_tasks(df: DataFrame, topic: str | None, producer: ProducerSpec) -> int | None:
    """The number of tasks for the rows of *df* once they are grouped by the partitions of *topic* (None: rows name
    their topics), in the cluster of *producer*; None if Spark chooses it.

    Adaptive execution chooses it from the rows. It is off in streams before Spark 4.1 (SPARK-53941), in streams with
    state, and where the user has disabled it: a shuffle then starts ``spark.sql.shuffle.partitions`` tasks (200),
    however few rows there are.
    """
    conf = df.sparkSession.conf
    if conf.get("spark.sql.adaptive.enabled") == "true":
        return None
    client, context = shared_client(producer), classic_context(df.sparkSession)
    largest = None if topic is None else len(client.run(client.partitions(topic)))
    if not largest and context is not None:
        largest = int(context.defaultParallelism)
    return min(int(conf.get("spark.sql.shuffle.partitions") or largest), largest) if largest else None


def require_kept_blocks(spark: SparkSession) -> None:
    """:raises ConfigError: if Spark may remove executors whose rows are still to be written."""
    if str(spark.conf.get(_ALLOCATION, "false")).lower() != "true":
        return
    text = str(spark.conf.get(_KEPT, "")).lower()
    match = _TIME.fullmatch(text)
    if match is not None and int(match[1]) * _UNITS.get(match[2], _SHORTEST_S) < _SHORTEST_S:
        raise ConfigError(
            f"{_KEPT}={text} and atomic=True do not go together, because Spark would remove executors with rows "
            f"that are still to be written: remove the setting (the default keeps them) or set it to {_SHORTEST_S}s or "
            "more, or atomic=False, which also writes once, with one transaction per task",
            option=_KEPT,
        )


def speculates(spark: SparkSession) -> bool:
    """Whether Spark starts copies of slow tasks.

    :raises ConfigError: if it does over Spark Connect, where the driver cannot see whether a task has failed.
    """
    if str(spark.conf.get(_SPECULATION, "false")).lower() != "true":
        return False
    if classic_context(spark) is None:
        raise ConfigError(
            f"{_SPECULATION}=true and atomic=True do not go together over Spark Connect, because a copy of a task must "
            f"not write beside the first attempt: set {_SPECULATION}=false for the server, or atomic=False, which also "
            "writes once, with one transaction per task",
            option=_SPECULATION,
        )
    return True


def until_first_failure(context: SparkContext, action: Callable[[], T]) -> T:
    """The result of *action*, which runs jobs of *context* in this thread.

    :raises AttemptError: if a task has failed; the jobs were cancelled.
    """
    tag = f"kafkalite-first-failure-{os.urandom(8).hex()}"
    has_ended, has_cancelled = threading.Event(), threading.Event()

    def watch() -> None:
        try:
            while not has_ended.wait(EVERY_S):
                tracker = context.statusTracker()
                stages = [tracker.getStageInfo(stage) for stage in stages_with_tag(context, tag)]
                if any(stage is not None and stage.numFailedTasks for stage in stages):
                    has_cancelled.set()
                    context.cancelJobsWithTag(tag)
        except Exception:
            # The context has been stopped. Otherwise copies wait until the transaction's time-out.
            _log.debug("the tasks of a job cannot be watched", exc_info=True)

    context.addJobTag(tag)
    thread = start_thread("kafkalite-first-failure", watch)
    try:
        return action()
    except Exception as error:
        if has_cancelled.is_set():
            raise AttemptError(
                "a task failed, and the tasks of an atomic write are tried again only together; the log of Spark's "
                "driver says how it failed"
            ) from error
        raise
    finally:
        has_ended.set()
        thread.join()
        context.removeJobTag(tag)
