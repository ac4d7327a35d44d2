"""Copies of slow tasks wait for the first attempt, the first failure ends all attempts, and dynamic allocation must
keep the executors that have the rows."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.common.clock import SYSTEM_CLOCK, Moment
from kafka_sink.common.errors import ConfigError, SinkWriteError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once.model import AttemptError, Plan
from kafka_sink.exactly_once.transactions import Transaction
from kafka_sink.spark.driver import atomic_jobs
from kafka_sink.spark.driver.atomic_jobs import require_kept_blocks, speculates, until_first_failure
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task import transactional_task
from kafka_sink.spark.task.transactional_task import write_in_drivers_transaction
from tests.support.cases import with_each


class Context:
    """A SparkContext whose one stage has *failed* tasks; its job ends when it is cancelled."""

    def __init__(self, failed: int) -> None:
        self.failed, self.tags, self.cancelled = failed, set[str](), threading.Event()
        self._jsc = SimpleNamespace(sc=lambda: self)

    def addJobTag(self, tag: str) -> None:
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:
        assert tag in self.tags
        self.cancelled.set()

    def statusTracker(self) -> Any:
        return SimpleNamespace(
            getJobIdsForTag=lambda tag: [7] if tag in self.tags else [],
            getJobInfo=lambda job: SimpleNamespace(stageIds=[70, 71]),
            getStageInfo=lambda stage: SimpleNamespace(numFailedTasks=self.failed) if stage == 71 else None,
        )


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_jobs, "EVERY_S", 0.001)


@pytest.mark.behaviour("Exactly once: atomic", "With speculation, a task that has failed ends the attempt at once")
def test_failed_task_ends_the_jobs_although_a_copy_waits() -> None:
    context = Context(failed=1)

    def job() -> int:
        assert context.cancelled.wait(20)
        raise RuntimeError("cancelled")

    with pytest.raises(AttemptError, match="a task failed"):
        until_first_failure(context, job)  # type: ignore[arg-type]
    assert not context.tags


def test_jobs_without_a_failed_task_are_left_alone() -> None:
    context = Context(failed=0)

    def job() -> int:
        assert not context.cancelled.wait(0.01)
        return 3

    assert until_first_failure(context, job) == 3  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="of its own"):
        until_first_failure(context, lambda: _raise(RuntimeError("of its own")))  # type: ignore[arg-type]
    assert not context.tags


def _raise(error: Exception) -> int:
    raise error


@pytest.mark.behaviour("Exactly once: atomic", "A copy of a task waits and does not fail")
@pytest.mark.parametrize("with_copies", [True, False])
def test_second_attempt_waits_only_for_a_first_one(with_copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, seconds: waited.append(seconds))
    context = SimpleNamespace(get=lambda: SimpleNamespace(attemptNumber=lambda: 1, partitionId=lambda: 0))
    monkeypatch.setattr(transactional_task, "TaskContext", context)
    options = parse_options({"kafka.bootstrap.servers": "b:9092", "topic": "t"}).spec
    driver = Transaction("s/t.driver", 1, 0)
    plan = Plan("s/t", driver, TransactionVersion.V2, 60_000, Moment.now(SYSTEM_CLOCK), None, 1)
    with pytest.raises(SinkWriteError, match="second attempt"):
        write_in_drivers_transaction(iter(()), options, plan, with_copies=with_copies)
    assert waited == ([60.0] if with_copies else [])


@pytest.mark.behaviour("Exactly once: atomic", "Speculation over Spark Connect is refused before the first row")
@pytest.mark.parametrize(("speculation", "is_refused"), [("true", True), ("false", False)])
def test_speculation_is_refused_where_no_failure_can_be_seen(speculation: str, is_refused: bool) -> None:
    connect: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: speculation))
    classic: Any = SimpleNamespace(conf=connect.conf, _sc=object())
    assert speculates(classic) is is_refused
    if not is_refused:
        assert not speculates(connect)
        return
    with pytest.raises(ConfigError, match=r"set spark\.speculation=false for the server, or atomic=False"):
        speculates(connect)


@pytest.mark.behaviour(
    "Exactly once: atomic", "Dynamic allocation that would remove rows to be written is refused before the first one"
)
@with_each(
    ("enabled", "timeout", "is_refused"),
    [
        ("true", "1s", True),
        ("TRUE", "5", True),
        ("true", "59999 ms", True),
        ("true", "60s", False),
        ("true", "1min", False),
        ("true", "1h", False),
        ("true", "infinity", False),
        ("true", None, False),
        ("false", "1s", False),
    ],
)
def test_executors_with_rows_must_be_kept(enabled: str, timeout: str | None, is_refused: bool) -> None:
    given = {"spark.dynamicAllocation.enabled": enabled}
    if timeout is not None:
        given["spark.dynamicAllocation.cachedExecutorIdleTimeout"] = timeout
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=given.get))
    if not is_refused:
        require_kept_blocks(spark)
        return
    with pytest.raises(ConfigError, match=r"remove the setting .* or set it to 60s or more, or atomic=False"):
        require_kept_blocks(spark)
