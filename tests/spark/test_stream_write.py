"""Streams, with ``df.writeStream.format("kafkalite")`` and with ``foreach_batch``, and batches that the program itself
numbers, on a real Spark and the embedded broker; another project's client reads the rows."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_sink import foreach_batch, write
from kafka_sink.common.errors import ErrorCode
from kafka_sink.errors import UnwritableRowsError
from kafka_sink.spark.streaming.checkpoint import HadoopFiles, LocalFiles, planned_offsets
from tests.support import ways
from tests.support.amounts import only_long
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

NewTopic = Callable[..., str]
ROWS_A_FILE = 50


class Query:
    """A stream of files with numbers, one file per micro-batch, and its target."""

    def __init__(self, spark: SparkSession, cluster: Any, topic: str, folder: Path) -> None:
        self.spark, self.cluster, self.topic, self.folder = spark, cluster, topic, folder
        self.source = folder / "source"
        self.source.mkdir()
        self.report = folder / "report.jsonl"
        self.files = 0

    def add_files(self, count: int) -> None:
        for number in range(self.files, self.files + count):
            rows = range(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE)
            file = self.source / f"{number:03}.json"
            file.write_text("".join(json.dumps({"id": row}) + "\n" for row in rows))
            # Spark reads files in the order of their modification times.
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        self.files += count

    def frame(self) -> DataFrame:
        numbers = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(self.source))
        return numbers.select(f.col("id").cast("string").alias("key"), f.col("id").cast("string").alias("value"))

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.cluster.bootstrap_servers, "topic": self.topic}

    def run(self, frame: DataFrame | None = None, mode: str = "append", **options: str) -> None:
        """Run the stream until it has written all available rows."""
        stream = (self.frame() if frame is None else frame).writeStream.format("kafkalite").outputMode(mode)
        given = {"checkpointLocation": str(self.folder / "checkpoint"), "reportPath": str(self.report), **self.options}
        query = stream.options(**given, **options).trigger(availableNow=True).start()
        query.awaitTermination(120)

    def run_exactly_once(self, frame: DataFrame | None = None) -> None:
        self.run(frame, deliveryGuarantee="exactly-once", transactionalIdPrefix=f"sink-{self.topic}")

    def forget_commit_of(self, batch: int) -> None:
        """Delete Spark's commit of the batch, as if the driver had died before it."""
        for path in (self.folder / "checkpoint" / "commits").glob(f"*{batch}*"):
            path.unlink()

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.report.read_text().splitlines()]

    def found(self) -> Counter[bytes | None]:
        return Counter(message.value for message in read_topic(self.cluster.bootstrap_servers, self.topic))

    def expected(self) -> Counter[bytes | None]:
        return Counter(b"%d" % row for row in range(self.files * ROWS_A_FILE))


@pytest.fixture
def query(spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path) -> Query:
    return Query(spark, cluster, new_topic(), tmp_path)


@pytest.mark.behaviour("Streams and foreachBatch", "A stream that is started again goes on exactly once")
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_a_stream_that_is_started_again_goes_on_exactly_once(query: Query) -> None:
    query.add_files(2)
    query.run_exactly_once()
    query.forget_commit_of(1)
    query.add_files(1)
    query.run_exactly_once()
    assert query.found() == query.expected()
    assert [(each["version"], each["decision"]) for each in query.reports()] == [
        (0, "written"),
        (1, "written"),
        (1, "skipped"),
        (2, "written"),
    ]


@pytest.mark.behaviour("Streams and foreachBatch", "A batch that Spark runs again is there twice without exactly-once")
@requires_data_sources
@pytest.mark.way(ways.AT_LEAST_ONCE_STREAM)
def test_without_exactly_once_a_rerun_batch_is_stored_twice(query: Query) -> None:
    query.add_files(2)
    query.run()
    query.forget_commit_of(1)
    query.run()
    doubled = Counter(b"%d" % row for row in range(ROWS_A_FILE, 2 * ROWS_A_FILE))
    assert query.found() == query.expected() + doubled


@requires_data_sources
@pytest.mark.way(ways.AT_LEAST_ONCE_STREAM)
def test_at_least_once_goes_with_asynchronous_progress_tracking(query: Query) -> None:
    query.add_files(2)
    options = {
        **query.options,
        "checkpointLocation": str(query.folder / "checkpoint"),
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "10",
        "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
    }
    stream = query.frame().writeStream.format("kafkalite").options(**options).trigger(processingTime="0 seconds")
    running = stream.start()
    try:
        running.processAllAvailable()
    finally:
        running.stop()
    assert query.found() == query.expected()


@pytest.mark.behaviour(
    "Streams and foreachBatch", "A task that fails leaves nothing, and the next run writes its batch once"
)
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_failed_task_leaves_nothing_and_next_run_writes_once(query: Query, tmp_path: Path) -> None:
    query.add_files(1)
    query.run_exactly_once()
    query.add_files(1)
    fails = tmp_path / "fails"
    fails.touch()

    @f.udf("string")
    def fail_late(text: str) -> str:
        if fails.exists() and int(text) % ROWS_A_FILE == ROWS_A_FILE - 1:
            raise ValueError("this row fails")
        return text

    frame = query.frame().repartition(3).select("key", fail_late("value").alias("value"))
    with pytest.raises(StreamingQueryException, match="this row fails"):
        query.run_exactly_once(frame)
    fails.unlink()
    query.run_exactly_once(frame)
    assert query.found() == query.expected()


@pytest.mark.behaviour("Exactly once: wrong and lost answers", "An abort by Spark after the decision loses nothing")
@pytest.mark.behaviour("Faults: exactly once", "Every row of a batch that Spark aborts after its decision is there")
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_an_abort_after_the_decision_loses_nothing(query: Query) -> None:
    query.add_files(1)
    # The first EndTxn ends a rehearsal, the second one is the decision. The third one fails, which Spark takes for a
    # failed commit, and calls abort().
    with (
        query.cluster.faults.on("end_txn", nth=3, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED) as fault,
        pytest.raises(StreamingQueryException, match="CLUSTER_AUTHORIZATION_FAILED"),
    ):
        query.run_exactly_once(query.frame().repartition(3))
    assert fault.hits == 1
    query.add_files(1)
    query.run_exactly_once()
    assert query.found() == query.expected()
    assert [each["decision"] for each in query.reports()] == ["failed", "skipped", "written"]


@pytest.mark.behaviour("Streams and foreachBatch", "Another query with the same prefix is refused")
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_another_query_with_the_same_prefix_is_refused(query: Query) -> None:
    query.add_files(1)
    query.run_exactly_once()
    (query.folder / "checkpoint").rename(query.folder / "deleted")
    with pytest.raises(StreamingQueryException, match=r"belongs to query .*choose another transactionalIdPrefix"):
        query.run_exactly_once()
    assert query.found() == query.expected()


@pytest.mark.behaviour(
    "Faults: exactly once",
    "Progress that is missing, foreign, too new or forgotten is refused before a row is written, with what to do",
)
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_second_query_with_same_prefix_does_not_disturb_first(query: Query) -> None:
    query.add_files(1)
    exactly_once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": query.topic}
    writer = query.frame().writeStream.format("kafkalite").options(**query.options, **exactly_once)
    running = writer.option("checkpointLocation", str(query.folder / "checkpoint")).start()
    try:
        running.processAllAvailable()
        other = writer.option("checkpointLocation", f"file://{query.folder / 'another'}").start()
        with pytest.raises(StreamingQueryException, match=r"belongs to query .*nothing was written"):
            other.awaitTermination(60)
        query.add_files(1)
        running.processAllAvailable()
    finally:
        running.stop()
    assert query.found() == query.expected()


@pytest.mark.behaviour("Streams and foreachBatch", "Complete mode writes the whole result of every batch")
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_complete_mode_writes_the_whole_result_of_every_batch(query: Query) -> None:
    query.add_files(2)
    counts = query.frame().groupBy().count().select(f.col("count").cast("string").alias("value"))
    query.run(counts, mode="complete", deliveryGuarantee="exactly-once", transactionalIdPrefix=query.topic)
    assert query.found() == Counter([b"%d" % ROWS_A_FILE, b"%d" % (2 * ROWS_A_FILE)])


@pytest.mark.behaviour("Streams and foreachBatch", "Update mode is refused")
@requires_data_sources
def test_update_mode_is_refused_by_spark(query: Query) -> None:
    query.add_files(1)
    with pytest.raises(Exception, match="does not support Update mode"):
        query.run(query.frame(), mode="update")


@pytest.mark.behaviour("Streams and foreachBatch", "foreach_batch writes every micro-batch once")
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "parallel"])
@pytest.mark.way(ways.FOREACH_BATCH)
def test_foreach_batch_writes_every_micro_batch_once(query: Query, atomic: bool) -> None:
    query.add_files(2)
    write_batch = foreach_batch(
        options={**query.options, "reportPath": str(query.report)}, app_id=f"app-{query.topic}", atomic=atomic
    )
    for _ in range(2):
        stream = query.frame().writeStream.foreachBatch(write_batch).trigger(availableNow=True)
        stream.option("checkpointLocation", str(query.folder / "checkpoint")).start().awaitTermination(120)
        query.forget_commit_of(1)
    assert query.found() == query.expected()
    assert [each["decision"] for each in query.reports()] == ["written", "written", "skipped"]


@pytest.mark.behaviour("Streams and foreachBatch", "One app_id twice within a foreachBatch is refused")
@pytest.mark.way(ways.FOREACH_BATCH)
def test_one_app_id_twice_within_a_batch_is_refused(query: Query) -> None:
    query.add_files(2)
    first, second = (foreach_batch(options=query.options, app_id=f"{name}-{query.topic}") for name in "ab")
    even, odd = "id % 2 = 0", "id % 2 = 1"

    def run(write_batch: Callable[[DataFrame, int], None]) -> None:
        stream = query.frame().selectExpr("*", "cast(key as long) as id").writeStream.foreachBatch(write_batch)
        checkpoint = str(query.folder / "checkpoint")
        stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination(120)

    def with_one(df: DataFrame, batch: int) -> None:
        first(df.filter(even).drop("id"), batch)
        first(df.filter(odd).drop("id"), batch)

    def with_two(df: DataFrame, batch: int) -> None:
        first(df.filter(even).drop("id"), batch)
        # A function that is retried as a whole writes the same rows again.
        first(df.filter(even).drop("id"), batch)
        second(df.filter(odd).drop("id"), batch)

    # A supervisor restarts the query without changes.
    for _ in range(2):
        with pytest.raises(Exception, match=rf"app_id 'a-{query.topic}' was used twice in batch 0, for different rows"):
            run(with_one)
    assert query.found() == Counter(b"%d" % row for row in range(0, ROWS_A_FILE, 2))
    run(with_two)
    assert query.found() == query.expected()


@pytest.fixture
def without_adaptive_execution(spark: SparkSession) -> Iterator[None]:
    """Disable adaptive execution, which streams before Spark 4.1 never use."""
    changed = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "20"}
    before = {name: spark.conf.get(name) for name in changed}
    for name, value in changed.items():
        spark.conf.set(name, value)
    yield
    for name, given in before.items():
        assert given is not None
        spark.conf.set(name, given)


@pytest.mark.behaviour("Streams and foreachBatch", "An atomic micro-batch starts no tasks that could have no rows")
@pytest.mark.parametrize(("named_in_a_column", "most"), [(False, 4), (True, 2)], ids=["partitions", "cores"])
@pytest.mark.usefixtures("without_adaptive_execution")
@pytest.mark.way(ways.FOREACH_BATCH)
def test_an_atomic_batch_starts_no_tasks_in_vain(query: Query, named_in_a_column: bool, most: int) -> None:
    query.add_files(1)
    options, frame = {**query.options, "reportPath": str(query.report)}, query.frame()
    if named_in_a_column:
        options["progressTopic"] = options.pop("topic")
        frame = frame.withColumn("topic", f.lit(query.topic))
    stream = frame.writeStream.foreachBatch(foreach_batch(options=options, app_id=f"app-{query.topic}"))
    stream = stream.option("checkpointLocation", str(query.folder / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination(120)
    assert query.found() == query.expected()
    assert query.reports()[0]["tasks"] <= most


def restore_after_another_batch(query: Query, run: Callable[[], None]) -> None:
    """Write batches 0 and 1, and then restore the checkpoint between them."""
    kept, copy = query.folder / "checkpoint", query.folder / "copy"
    query.add_files(1)
    run()
    shutil.copytree(kept, copy)
    query.add_files(1)
    run()
    shutil.rmtree(kept)
    copy.rename(kept)


def write_by_foreach_batch(query: Query, frame: DataFrame | None = None, *, atomic: bool) -> None:
    write_batch = foreach_batch(
        options={**query.options, "reportPath": str(query.report)}, app_id=f"app-{query.topic}", atomic=atomic
    )
    stream = (query.frame() if frame is None else frame).writeStream.foreachBatch(write_batch)
    stream = stream.option("checkpointLocation", str(query.folder / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination(120)


WAYS = pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            Query.run_exactly_once,
            marks=[requires_data_sources, pytest.mark.way(ways.EXACTLY_ONCE_STREAM)],
            id="stream",
        ),
        pytest.param(
            partial(write_by_foreach_batch, atomic=True),
            marks=[only_long, pytest.mark.way(ways.FOREACH_BATCH)],
            id="atomic",
        ),
        pytest.param(
            partial(write_by_foreach_batch, atomic=False), marks=pytest.mark.way(ways.FOREACH_BATCH), id="parallel"
        ),
    ],
)


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "A checkpoint one batch old that would lose rows is refused in a stream",
)
@WAYS
def test_old_checkpoint_that_would_lose_rows_is_refused(query: Query, run: Callable[..., None]) -> None:
    restore_after_another_batch(query, partial(run, query))
    written = query.expected()
    # This file precedes that of batch 1, whose number in the source's log it gets.
    earlier = query.source / "000-1.json"
    earlier.write_text('{"id": -1}\n')
    os.utime(earlier, (1_700_000_000.5, 1_700_000_000.5))
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"batch 1 of query .* with other rows .*newer checkpoint"):
            run(query)
    assert query.found() == written


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "A checkpoint one batch old with the same rows goes on in a stream",
)
@WAYS
def test_a_checkpoint_one_batch_old_with_the_same_plan_goes_on(query: Query, run: Callable[..., None]) -> None:
    restore_after_another_batch(query, partial(run, query))
    query.add_files(1)
    run(query)
    assert query.found() == query.expected()
    assert [each["decision"] for each in query.reports()] == ["written", "written", "skipped", "written"]


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows", "A source that counts rows is compared too"
)
@requires_data_sources
@pytest.mark.way(ways.EXACTLY_ONCE_STREAM)
def test_a_source_that_counts_rows_is_compared_too(query: Query) -> None:
    def run(rows: int) -> None:
        source = query.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
        query.run_exactly_once(source.select(f.col("value").cast("string").alias("value")))

    restore_after_another_batch(query, partial(run, 10))
    with pytest.raises(StreamingQueryException, match=r"batch 1 of query .* with other rows"):
        run(20)
    assert query.found() == Counter(b"%d" % row for row in range(20))


@pytest.mark.behaviour("Streams and foreachBatch", "A batch job writes each version once")
@requires_data_sources
@pytest.mark.way(ways.DF_WRITE)
def test_a_batch_job_writes_each_version_once(query: Query) -> None:
    frame = query.spark.range(100, numPartitions=3).select(f.col("id").cast("string").alias("value"))
    for version in (4, 4, 3, 5):
        writer = frame.write.format("kafkalite").mode("append").options(**query.options)
        writer.options(txnAppId=f"job-{query.topic}", txnVersion=version, reportPath=str(query.report)).save()
    assert [(each["version"], each["decision"]) for each in query.reports()] == [
        (4, "written"),
        (4, "skipped"),
        (3, "older"),
        (5, "written"),
    ]
    assert query.found() == Counter({b"%d" % row: 2 for row in range(100)})


def keyed(query: Query) -> DataFrame:
    """Return 1,000 rows in three tasks; every third row has no key."""
    return query.spark.range(1000, numPartitions=3).select(
        f.when(f.col("id") % 3 > 0, f.col("id").cast("string")).alias("key"), f.col("id").cast("string").alias("value")
    )


@pytest.mark.behaviour("Streams and foreachBatch", "write() returns a report")
@pytest.mark.way(ways.AT_LEAST_ONCE)
def test_write_at_least_once_returns_a_report(query: Query) -> None:
    for _ in range(2):
        report = write(keyed(query), options=query.options)
        assert (report.decision, report.rows, report.tasks) == ("written", 1000, 3)
    assert query.found() == Counter({b"%d" % row: 2 for row in range(1000)})


@pytest.mark.behaviour("Streams and foreachBatch", "write() returns a report")
@pytest.mark.parametrize(
    "atomic",
    [
        pytest.param(True, marks=pytest.mark.way(ways.ATOMIC), id="atomic"),
        pytest.param(False, marks=pytest.mark.way(ways.PARALLEL), id="parallel"),
    ],
)
def test_write_of_a_version_writes_once_and_returns_a_report(query: Query, atomic: bool) -> None:
    once = write(keyed(query), options=query.options, app_id=query.topic, version=0, atomic=atomic)
    assert (once.decision, once.rows, once.attempts) == ("written", 1000, 1)
    assert sum(part.rows for part in once.partitions.values()) == 1000
    again = write(keyed(query), options=query.options, app_id=query.topic, version=0, atomic=atomic)
    assert (again.decision, again.rows, again.attempts) == ("skipped", 0, 0)
    assert query.found() == Counter(b"%d" % row for row in range(1000))


def kept_rows(query: Query) -> set[int]:
    """Return the ids of the RDDs that Spark caches, for which PySpark has no public method."""
    context: Any = query.spark.sparkContext._jsc
    return set(context.getPersistentRDDs())


@pytest.mark.behaviour("Streams and foreachBatch", "Spark keeps no rows of an atomic write after its end")
@pytest.mark.way(ways.ATOMIC)
def test_spark_keeps_no_rows_of_an_atomic_write(query: Query) -> None:
    before = kept_rows(query)
    write(keyed(query), options=query.options, app_id=query.topic, version=0)
    assert kept_rows(query) <= before


@pytest.mark.behaviour("Streams and foreachBatch", "Keys of an atomic write go where Kafka's Java client sends them")
@pytest.mark.way(ways.ATOMIC)
def test_keys_of_an_atomic_write_go_where_java_sends_them(query: Query) -> None:
    frame = query.spark.range(1000).select(
        (f.col("id") % 50).cast("string").alias("key"), f.col("id").cast("string").alias("value")
    )
    write(frame, options=query.options, app_id=query.topic, version=0)
    write(frame, options=query.options)
    places: dict[bytes | None, set[int]] = {}
    for message in read_topic(query.cluster.bootstrap_servers, query.topic):
        places.setdefault(message.key, set()).add(message.partition)
    assert len(places) == 50
    assert all(len(partitions) == 1 for partitions in places.values())


@pytest.mark.behaviour("Streams and foreachBatch", "An atomic write whose task fails leaves nothing")
@pytest.mark.behaviour("Streams and foreachBatch", "Spark keeps no rows of an atomic write after its end")
@pytest.mark.way(ways.ATOMIC)
def test_an_atomic_write_whose_task_fails_leaves_nothing(query: Query) -> None:
    frame = query.spark.range(100, numPartitions=2).select(
        f.when(f.col("id") < 99, f.col("id").cast("string")).otherwise(f.lit("x" * 3_000_000)).alias("value")
    )
    before = kept_rows(query)
    with pytest.raises(
        UnwritableRowsError, match=r"batch 0 was not committed: row 99 of this task .*max\.message\.bytes"
    ):
        write(frame, options=query.options, app_id=query.topic, version=0)
    assert query.found() == Counter()
    assert kept_rows(query) <= before


@pytest.mark.behaviour("Exactly once: atomic", "What another attempt may cure is tried again")
@pytest.mark.way(ways.ATOMIC)
def test_failed_shuffle_of_an_atomic_write_is_tried_again(query: Query) -> None:
    crashed = query.folder / "crashed"

    def crashing_once(batches: Iterator[Any]) -> Iterator[Any]:
        if not crashed.exists():
            crashed.touch()
            os._exit(1)
        yield from batches

    # The crash is before the tasks write, because the master local[2] makes one attempt at each task.
    frame = keyed(query).mapInArrow(crashing_once, "key string, value string")
    report = write(frame, options=query.options, app_id=query.topic, version=0)
    assert (report.decision, report.rows, report.attempts) == ("written", 1000, 2)
    assert query.found() == Counter(b"%d" % row for row in range(1000))


@pytest.mark.behaviour(
    "Exactly once: the same batch number with other rows",
    "Checkpoints are read from object stores and through Hadoop's file systems",
)
def test_hadoops_file_system_reads_a_checkpoint_as_python_does(query: Query) -> None:
    query.add_files(1)
    write_by_foreach_batch(query, atomic=False)
    folder = query.folder / "checkpoint"
    local, hadoop = LocalFiles(str(folder)), HadoopFiles(f"file:{folder}", query.spark)
    assert planned_offsets(hadoop) == planned_offsets(local)
    assert hadoop.read("offsets/0", 7) == local.read("offsets/0", 7)
    assert len(local.read("offsets/0", 7)[0]) == 7
    with pytest.raises(FileNotFoundError):
        hadoop.read("offsets/1", 7)
