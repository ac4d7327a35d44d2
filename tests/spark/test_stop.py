"""Interrupts, cancelled jobs and stopped queries end a write immediately: no row follows, no task is retried, and a
repeated write is complete."""

from __future__ import annotations

import _thread
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink.errors import CancelledWriteError
from kafka_sink.exactly_once.model import ExactlyOnceError
from tests.support.stopped_writes import ROWS, SLOWLY, WAYS, await_first_rows, check_written_again, end, numbered

STAYS = {
    "at-least-once": r"the rows of other tasks that were acknowledged before stay in topic",
    "atomic": r"no row of version 0 became visible; write it again",
    "parallel": r"no row of version 0 became visible; write it again",
}


def rows_of(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")


def await_events(spark: SparkSession) -> None:
    """Wait until Spark has sent all events to its listeners, such as the status tracker."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)


@contextmanager
def once_rows_appear(servers: str, topic: str, act: Callable[[], None]) -> Iterator[None]:
    """Call *act* in a separate thread as soon as *topic* has records."""

    def run() -> None:
        await_first_rows(servers, topic)
        act()

    thread = InheritableThread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.behaviour("Stop means stop", "An interrupted write ends its Spark job, and a repeated one is whole")
@pytest.mark.parametrize("way", WAYS)
def test_interrupted_write_ends_at_once(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], way: str
) -> None:
    topic, servers = new_topic(2), cluster.bootstrap_servers
    to = {"kafka.bootstrap.servers": servers, "topic": topic}
    with once_rows_appear(servers, topic, _thread.interrupt_main), pytest.raises(KeyboardInterrupt, match=STAYS[way]):
        kafka_sink.write(rows_of(spark), options={**to, **SLOWLY}, **numbered(way))
    await_events(spark)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    when_stopped = end(servers, topic)
    assert kafka_sink.write(rows_of(spark), options=to, **numbered(way)).rows == ROWS
    check_written_again(servers, topic, way, when_stopped)


@pytest.mark.behaviour("Stop means stop", "An interrupt just before or after the write says what is in Kafka")
@pytest.mark.parametrize(
    ("where", "says", "stay"),
    [
        ("kafka_sink.spark.driver.progress_line.find_screen", "it had not begun, and no row is in Kafka", 0),
        ("kafka_sink.spark.dataframe_writer.publish", "the interrupt came too late: everything was done", ROWS),
    ],
    ids=["before", "after"],
)
def test_interrupt_beside_the_write_says_what_stays(
    spark: SparkSession,
    cluster: Any,
    new_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    says: str,
    stay: int,
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        # Python runs the handler between the next instructions.
        sum(range(1_000))

    topic, servers = new_topic(2), cluster.bootstrap_servers
    monkeypatch.setattr(where, interrupted)
    with pytest.raises(KeyboardInterrupt, match=says):
        kafka_sink.write(rows_of(spark), {"kafka.bootstrap.servers": servers, "topic": topic})
    assert end(servers, topic) == stay


@pytest.mark.behaviour("Stop means stop", "A write that somebody cancels is not tried again")
@pytest.mark.parametrize(("way", "cancel"), [("at-least-once", "group"), ("atomic", "all"), ("parallel", "tag")])
def test_cancelled_write_is_not_tried_again(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], way: str, cancel: str
) -> None:
    topic, servers, context = new_topic(2), cluster.bootstrap_servers, spark.sparkContext
    to = {"kafka.bootstrap.servers": servers, "topic": topic}

    def act() -> None:
        if cancel == "group":
            context.cancelJobGroup(topic)
        elif cancel == "all":
            context.cancelAllJobs()
        else:
            context.cancelJobsWithTag(topic)

    context.setJobGroup(topic, "of the user")
    context.addJobTag(topic)
    try:
        with once_rows_appear(servers, topic, act), pytest.raises(CancelledWriteError, match=STAYS[way]):
            kafka_sink.write(rows_of(spark), options={**to, **SLOWLY}, **numbered(way))
        assert context.getLocalProperty("spark.jobGroup.id") == topic
        assert set(context.getJobTags()) == {topic}
    finally:
        context.clearJobTags()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type,unused-ignore]
    when_stopped = end(servers, topic)
    assert kafka_sink.write(rows_of(spark), options=to, **numbered(way)).rows == ROWS
    check_written_again(servers, topic, way, when_stopped)


@pytest.mark.behaviour("Stop means stop", "A query that is stopped within a batch has not failed, and runs it once")
@pytest.mark.parametrize("way", ["atomic", "parallel"])
def test_stop_within_a_batch_of_foreach_batch(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path, way: str
) -> None:
    topic, servers = new_topic(2), cluster.bootstrap_servers
    rows_of(spark).write.parquet(f"{tmp_path}/in")

    def start(options: dict[str, str]) -> Any:
        to = {"kafka.bootstrap.servers": servers, "topic": topic, **options}
        write = kafka_sink.foreach_batch(options=to, app_id=f"stop-{topic}", atomic=way == "atomic")
        stream = spark.readStream.schema("value string").parquet(f"{tmp_path}/in").writeStream.foreachBatch(write)
        return stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start()

    query = start(SLOWLY)
    await_first_rows(servers, topic)
    query.stop()
    assert query.exception() is None
    start({}).awaitTermination()
    check_written_again(servers, topic, way, 0)


@pytest.mark.behaviour("Stop means stop", "What no attempt cures is raised at once, with its first cause")
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("select if(assert_true(id < 3) is null, 'x', 'y') as value from range(9)", "is not true"),
        ("select cast(raise_error('the cause') as string) as value from range(9)", "the cause"),
        ("select cast(1 / id as string) as value from range(9)", "DIVIDE_BY_ZERO"),
    ],
)
def test_what_no_attempt_cures_is_raised_at_once(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], rows: str, says: str
) -> None:
    to = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(2)}
    await_events(spark)
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(Exception, match=says) as raised:
            kafka_sink.write(spark.sql(rows), options=to, app_id=to["topic"], version=0)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert not isinstance(raised.value, ExactlyOnceError)
    await_events(spark)
    # The only job is the one that partitions the rows, which has failed.
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before + 1
