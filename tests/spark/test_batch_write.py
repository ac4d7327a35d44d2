"""A DataFrame written at least once on a real Spark to the embedded broker, read back with a foreign client: by
``df.write.format("kafkalite")``, or on a Spark without Python data sources by ``kafka_sink.write``."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from kafka.partitioner.default import murmur2
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_sink
from tests.support import ways
from tests.support.amounts import only_long
from tests.support.readback import Message, read_topic
from tests.support.spark_version import HAS_DATA_SOURCES, VERSION

NewTopic = Callable[..., str]


pytestmark = pytest.mark.way(ways.DF_WRITE if HAS_DATA_SOURCES else ways.AT_LEAST_ONCE)


def write(df: DataFrame, cluster: Any, **given: str) -> None:
    options: dict[str, Any] = {"maxRecordsPerSecond": 10_000_000}
    # Options that are None are not set, in both ways. Spark 4.0 to 4.2 fail on them.
    if VERSION >= (4, 3) or not HAS_DATA_SOURCES:
        options |= {"deadLetterTopic": None, "kafka.client.id": None}
    options |= {name.replace("__", "."): value for name, value in given.items()}
    options["kafka.bootstrap.servers"] = cluster.bootstrap_servers
    if HAS_DATA_SOURCES:
        df.write.format("kafkalite").options(**options).mode("append").save()
    else:
        kafka_sink.write(df, options)


def as_frame(spark: SparkSession, messages: list[Message]) -> DataFrame:
    rows = [(message.key, message.value) for message in messages]
    return spark.createDataFrame(rows, "key binary, value binary")


@pytest.mark.parametrize(
    "codec", ["none", "lz4", "zstd", *(pytest.param(codec, marks=only_long) for codec in ("gzip", "snappy"))]
)
def test_every_row_arrives_unchanged(spark: SparkSession, cluster: Any, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    df = spark.range(0, 1_000, numPartitions=3).select(
        f.col("id").cast("string").alias("key"), f.concat(f.lit("wert-ü-"), f.repeat("id", 7)).alias("value")
    )
    write(df, cluster, topic=topic, kafka__compression__type=codec)
    expected = df.select(f.col("key").cast("binary"), f.col("value").cast("binary"))
    assert_df_equality(
        as_frame(spark, read_topic(cluster.bootstrap_servers, topic)),
        expected,
        ignore_row_order=True,
        ignore_nullable=True,
    )


def test_keys_go_where_java_sends_them_and_keep_their_order(
    spark: SparkSession, cluster: Any, new_topic: NewTopic
) -> None:
    topic = new_topic(5)
    df = spark.range(0, 6_000, numPartitions=1).select(
        (f.col("id") % 101).cast("string").alias("key"), f.col("id").cast("string").alias("value")
    )
    write(df, cluster, topic=topic, kafka__batch__size="4096")
    last: dict[bytes, int] = {}
    for message in read_topic(cluster.bootstrap_servers, topic):
        assert message.key is not None
        assert message.value is not None
        assert message.partition == (murmur2(message.key) & 0x7FFFFFFF) % 5
        assert int(message.value) > last.get(message.key, -1)
        last[message.key] = int(message.value)
    assert len(last) == 101


def test_all_columns(spark: SparkSession, cluster: Any, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    when = datetime(2013, 1, 1, 5, 15, 0, 123_456, tzinfo=UTC)
    df = spark.createDataFrame(
        [
            ("k0", b"v0", topic, 2, [("a", b"1"), ("a", None)], when),
            (None, b"", topic, 1, [], when),
            ("", None, topic, None, None, None),
        ],
        "key string, value binary, topic string, partition int, "
        "headers array<struct<key:string,value:binary>>, timestamp timestamp",
    )
    before = datetime.now(UTC).timestamp() * 1000 - 1
    write(df, cluster)
    by_key = {message.key: message for message in read_topic(cluster.bootstrap_servers, topic)}
    millis = int(when.timestamp() * 1000)
    assert by_key[b"k0"].partition == 2
    assert by_key[b"k0"].value == b"v0"
    assert by_key[b"k0"].headers == (("a", b"1"), ("a", None))
    assert by_key[b"k0"].timestamp == millis
    assert (by_key[None].partition, by_key[None].value, by_key[None].headers) == (1, b"", ())
    assert (by_key[b""].value, by_key[b""].headers) == (None, ())
    assert by_key[b""].timestamp >= before


def test_topic_column_spreads_rows_and_the_option_wins(spark: SparkSession, cluster: Any, new_topic: NewTopic) -> None:
    first, second, third = new_topic(), new_topic(), new_topic()
    df = spark.range(1000).select(
        f.col("id").cast("string").alias("value"),
        f.when(f.col("id") % 3 == 0, f.lit(first)).otherwise(f.lit(second)).alias("topic"),
    )
    write(df, cluster)
    assert len(read_topic(cluster.bootstrap_servers, first)) == 334
    assert len(read_topic(cluster.bootstrap_servers, second)) == 666
    write(df, cluster, topic=third)
    assert len(read_topic(cluster.bootstrap_servers, third)) == 1000


def test_an_empty_dataframe_is_a_success(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    report = tmp_path / "report.jsonl"
    write(
        spark.range(0).select(f.col("id").cast("string").alias("value")),
        cluster,
        topic=new_topic(),
        reportPath=str(report),
    )
    assert json.loads(report.read_text())["rows"] == 0


def test_report_names_rows_and_offsets(spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, report = new_topic(2), tmp_path / "report.jsonl"
    df = spark.range(0, 5000, numPartitions=2).select(
        f.col("id").cast("string").alias("key"), f.lit("v").alias("value")
    )
    write(df, cluster, topic=topic, reportPath=str(report))
    write(df, cluster, topic=topic, reportPath=str(report))
    first, second = (json.loads(line) for line in report.read_text().splitlines())
    assert first["rows"] == second["rows"] == 5000
    for number in (0, 1):
        one, two = first["partitions"][f"{topic}-{number}"], second["partitions"][f"{topic}-{number}"]
        assert (one["first"], one["last"]) == (0, one["rows"] - 1)
        assert (two["first"], two["last"]) == (one["rows"], 2 * one["rows"] - 1)


def test_large_and_tiny_values(spark: SparkSession, cluster: Any, new_topic: NewTopic) -> None:
    topic = new_topic()
    sizes = [1, 0, 100, 10_000, 900_000, 1, 500_000]
    df = spark.createDataFrame([(str(n), b"x" * size) for n, size in enumerate(sizes)], "key string, value binary")
    write(df, cluster, topic=topic)
    found = {
        int(message.key or b""): len(message.value or b"") for message in read_topic(cluster.bootstrap_servers, topic)
    }
    assert found == dict(enumerate(sizes))


def test_foreach_batch_uses_the_batch_writer(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    spark.range(0, 3000, numPartitions=3).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    query = (
        stream.writeStream.foreachBatch(lambda df, _: write(df, cluster, topic=topic))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    values = sorted(int(message.value or b"") for message in read_topic(cluster.bootstrap_servers, topic))
    assert values == list(range(3000))


def test_several_nodes_share_the_partitions(spark: SparkSession) -> None:
    from kafka_sink import EmbeddedCluster

    with EmbeddedCluster(nodes=3) as three:
        three.create_topic("spread", partitions=6)
        df = spark.range(10_000).select(f.col("id").cast("string").alias("key"), f.lit("v").alias("value"))
        write(df, three, topic="spread")
        messages = read_topic(three.bootstrap_servers, "spread")
        assert sorted(int(message.key or b"") for message in messages) == list(range(10_000))
        assert {message.partition for message in messages} == set(range(6))


def test_code_beside_the_sink_finds_its_worker_as_it_was(
    spark: SparkSession, cluster: Any, new_topic: NewTopic
) -> None:
    """Spark reuses workers, so a user's function runs in a process in which tasks of the sink have run before."""

    def look(batches: Any) -> Any:
        import gc
        import weakref

        import pyarrow as pa

        class Garbage:
            def __init__(self) -> None:
                self.myself = self

        for batch in batches:
            made = weakref.ref(Garbage())
            gc.collect()
            found = [made() is None and gc.isenabled(), gc.get_freeze_count() > 0]
            yield pa.record_batch(
                [pa.array([value]) for value in [batch.num_rows, *found]], names=["rows", "collected", "frozen"]
            )

    rows = spark.range(100, numPartitions=2).select(f.col("id").cast("string").alias("value"))
    kafka_sink.write(rows, options={"kafka.bootstrap.servers": cluster.bootstrap_servers}, topic=new_topic())
    found = spark.range(100, numPartitions=2).mapInArrow(look, "rows long, collected boolean, frozen boolean").collect()
    assert [tuple(row) for row in found] == [(50, True, True)] * 2
