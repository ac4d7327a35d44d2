"""Bad input and bad brokers: the error names the fault, the value found, the value expected, and the remedy."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_sink import EmbeddedCluster, foreach_batch, write
from kafka_sink.common.errors import ConfigError, KafkaError
from tests.support.amounts import only_long
from tests.support.spark_version import HAS_DATA_SOURCES, requires_data_sources

NewTopic = Callable[..., str]


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("k", "v")], "key string, value string")


def message_of(df: DataFrame, mode: str | None = "append" if HAS_DATA_SOURCES else None, **options: str) -> str:
    """Return the text of the error of writing *df* with the format; without a *mode* with ``write``."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    with pytest.raises(Exception) as caught:
        if mode is not None:
            df.write.format("kafkalite").mode(mode).options(**given).save()
        else:
            write(df, options=given)
    return f"{caught.type.__name__}: {caught.value}"


BOOTSTRAP = {"kafka__bootstrap__servers": "127.0.0.1:9092", "topic": "t"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kafka__bootstrap__servers": "127.0.0.1:1"}, ["no topic", "option('topic'"]),
        ({"topic": "t"}, ["kafka.bootstrap.servers", "required"]),
        ({**BOOTSTRAP, "kafka__acks": "7"}, ["kafka.acks", "'7'", "all, -1, 0, 1"]),
        ({**BOOTSTRAP, "kafka__linger__ms": "abc"}, ["kafka.linger.ms", "'abc'", "whole number"]),
        ({**BOOTSTRAP, "kafka__compression__type": "brotli"}, ["kafka.compression.type", "brotli", "zstd"]),
        ({**BOOTSTRAP, "kafka__lingr__ms": "5"}, ["unknown option kafka.lingr.ms", "did you mean kafka.linger.ms"]),
        ({**BOOTSTRAP, "topik": "t"}, ["unknown option topik", "did you mean topic"]),
        ({**BOOTSTRAP, "kafka__key__serializer": "x"}, ["kafka.key.serializer", "not supported"]),
        (
            {**BOOTSTRAP, "kafka__enable__idempotence": "true", "kafka__acks": "1"},
            ["kafka.enable.idempotence", "kafka.acks"],
        ),
        (
            {**BOOTSTRAP, "kafka__delivery__timeout__ms": "1000", "kafka__linger__ms": "1000"},
            ["kafka.delivery.timeout.ms", "kafka.linger.ms", "kafka.request.timeout.ms"],
        ),
        ({**BOOTSTRAP, "includeHeaders": "true"}, ["includeHeaders", "no column 'headers'"]),
        ({**BOOTSTRAP, "path": "/tmp/x"}, ["topics", "save()"]),
        ({**BOOTSTRAP, "kafka__acks": "0"}, ["kafka.acks", "'0'", "expected all or 1"]),
        ({**BOOTSTRAP, "reportPath": "/no/such/folder/r.jsonl"}, ["reportPath", "/no/such/folder", "missing"]),
    ],
)
def test_wrong_options_fail_before_any_task(rows: DataFrame, options: dict[str, str], expected: list[str]) -> None:
    text = message_of(rows, None, **options)
    for part in expected:
        assert part in text
    assert "ConfigError" in text or "SchemaError" in text


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("'k' as key", ["'value' not found", "key: string"]),
        ("1 as value", ["'value' is int", "string or binary"]),
        ("'v' as value, 1 as key", ["'key' is int", "string or binary"]),
        ("'v' as value, 1 as topic", ["'topic' is int", "string"]),
        ("'v' as value, 1L as partition", ["'partition' is bigint", "expected int"]),
        ("'v' as value, map('a', X'00') as headers", ["'headers' is map<string,binary>", "array<struct<"]),
        ("'v' as value, 1 as timestamp", ["'timestamp' is int", "expected timestamp"]),
        ("'v' as value, 2 as price", ["'price' would not be written"]),
        ("'v' as VALUE", ["'VALUE' must be named 'value'"]),
    ],
)
def test_wrong_columns_fail_before_any_task(spark: SparkSession, columns: str, expected: list[str]) -> None:
    text = message_of(spark.sql(f"select {columns}"), None, **BOOTSTRAP)
    for part in expected:
        assert part in text


@requires_data_sources
def test_the_format_refuses_options_columns_and_overwrite(spark: SparkSession, rows: DataFrame) -> None:
    unknown = message_of(rows, **BOOTSTRAP, kafka__lingr__ms="5")
    assert "ConfigError" in unknown and "did you mean kafka.linger.ms" in unknown
    assert "'value' is int" in message_of(spark.sql("select 1 as value"), **BOOTSTRAP)
    assert 'mode("overwrite") is not supported' in message_of(rows, "overwrite", **BOOTSTRAP)


@requires_data_sources
def test_reading_is_refused_with_what_reads(spark: SparkSession) -> None:
    for read in (spark.read, spark.readStream):
        with pytest.raises(Exception, match=r'format\("kafkalite"\) can only write; .* format\("kafka"\)'):
            read.format("kafkalite").option("subscribe", "t").load()


def test_unreachable_brokers_are_named_with_their_causes(rows: DataFrame) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    text = message_of(
        rows,
        topic="t",
        kafka__bootstrap__servers=f"127.0.0.1:{port},no-such-host.invalid:9092",
        kafka__max__block__ms="4000",
    )
    assert "no broker could be reached within 4000 ms: " in text
    assert "(kafka.max.block.ms); check kafka.bootstrap.servers" in text
    assert f"127.0.0.1:{port}: connection refused" in text
    assert "no-such-host.invalid" in text


def test_unknown_topic(rows: DataFrame) -> None:
    with EmbeddedCluster(nodes=1, auto_create_topics=False) as closed:
        text = message_of(
            rows, topic="nowhere", kafka__bootstrap__servers=closed.bootstrap_servers, kafka__max__block__ms="4000"
        )
    assert "topic nowhere is not present in metadata after 4000 ms: it does not exist" in text
    assert "create it first" in text


def test_invalid_topic_name(rows: DataFrame, cluster: Any) -> None:
    text = message_of(rows, topic="bad topic!", kafka__bootstrap__servers=cluster.bootstrap_servers)
    assert "topic name 'bad topic!' is not legal" in text


def test_null_topic(spark: SparkSession, cluster: Any) -> None:
    df = spark.sql("select * from values ('a', 't'), ('b', null) as rows(value, topic)").coalesce(1)
    text = message_of(df, kafka__bootstrap__servers=cluster.bootstrap_servers)
    assert "row 1 of this task has a null topic" in text


@pytest.mark.parametrize(("partition", "expected"), [(-1, "partition -1"), (99, "partition 99")])
def test_partition_out_of_range(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, partition: int, expected: str
) -> None:
    topic = new_topic(4)
    df = spark.sql(f"select * from values ('a', 0), ('b', {partition}) as rows(value, partition)").coalesce(1)
    text = message_of(df, topic=topic, kafka__bootstrap__servers=cluster.bootstrap_servers)
    assert expected in text
    assert "row 1 of this task" in text


def test_record_too_large(spark: SparkSession, cluster: Any, new_topic: NewTopic) -> None:
    df = spark.range(3).select(f.repeat(f.lit("x"), 2_000_000).alias("value")).coalesce(1)
    text = message_of(df, topic=new_topic(), kafka__bootstrap__servers=cluster.bootstrap_servers)
    assert "more than max.message.bytes of the topic (1048588 bytes)" in text
    assert "row 0 of this task" in text


#: Row 10,003 is in the second one of Spark's Arrow batches of 10,000 rows.
GUILTY = "id = 10003"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([f"if({GUILTY}, repeat('x', 2000000), 'v') as value"], "more than max.message.bytes of the topic"),
        (["'v' as value", f"timestamp_millis(if({GUILTY}, -1000, 1000)) as timestamp"], "has the timestamp -1000"),
        (["'v' as value", f"if({GUILTY}, 99, 0) as partition"], "names partition 99"),
        pytest.param(["'v' as value", f"if({GUILTY}, -7, 0) as partition"], "has partition -7", marks=only_long),
        pytest.param(
            ["'v' as value", f"array(named_struct('key', if({GUILTY}, null, 'h'), 'value', X'00')) as headers"],
            "has a header (0) that has a null key",
            marks=only_long,
        ),
    ],
)
@pytest.mark.parametrize(
    "by_column", [pytest.param(False, id="topic option"), pytest.param(True, id="topic column", marks=only_long)]
)
def test_unwritable_row_number_counts_over_the_whole_task(
    spark: SparkSession, cluster: Any, new_topic: NewTopic, columns: list[str], expected: str, by_column: bool
) -> None:
    first, second = new_topic(), new_topic()
    options = {"kafka__bootstrap__servers": cluster.bootstrap_servers}
    if by_column:
        # The sink does not know the limits of topics that rows name.
        expected = expected.replace("max.message.bytes of the topic", "kafka.max.request.size")
        columns = [*columns, f"if(id % 2 = 0, '{first}', '{second}') as topic"]
    else:
        options["topic"] = first
    text = message_of(spark.range(0, 10_010, 1, 1).selectExpr(*columns), **options)
    assert "row 10003 of this task " in text
    assert expected in text


def test_a_failed_write_says_how_many_rows_were_acknowledged(
    spark: SparkSession, cluster: Any, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    good = spark.range(0, 20_000).select(f.lit("x").alias("value"))
    df = good.union(spark.range(1).select(f.repeat(f.lit("x"), 2_000_000).alias("value"))).coalesce(1)
    text = message_of(df, topic=topic, kafka__bootstrap__servers=cluster.bootstrap_servers, kafka__linger__ms="0")
    assert "rows were acknowledged before this error" in text
    assert "task of partition 0, attempt 0" in text


def test_an_exactly_once_write_that_cannot_begin_says_why_once(rows: DataFrame, cluster: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{unused.getsockname()[1]}"
    numbered = {"txnAppId": "cannot-begin", "txnVersion": "0"}
    unreachable = message_of(
        rows, topic="t", kafka__bootstrap__servers=nowhere, kafka__max__block__ms="4000", **numbered
    )
    assert f"within 4000 ms: {nowhere}: connection refused (kafka.max.block.ms); check kafka.boot" in unreachable
    missing = message_of(
        rows, topic="t", kafka__bootstrap__servers=cluster.bootstrap_servers, progressTopic="nowhere", **numbered
    )
    assert "topic 'nowhere' for the progress (option progressTopic) does not exist" in missing
    for text in (unreachable, missing):
        # Spark's traceback of the planner's process; a write of the program has no other process.
        assert text.count("Traceback") == HAS_DATA_SOURCES
        assert "Could not serialize" not in text


def test_atomic_write_reports_a_bad_row_in_one_line(spark: SparkSession, cluster: Any, new_topic: NewTopic) -> None:
    df = spark.sql("select * from values ('a', 't'), ('b', null) as rows(value, topic)").coalesce(1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "progressTopic": new_topic(1)}
    with pytest.raises(KafkaError) as caught:
        write(df, options=options, app_id="null-topic", version=0)
    assert "row 1 of this task has a null topic; fill it" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_atomic_write_refuses_a_partitioner(rows: DataFrame, cluster: Any, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.partitioner.class": "round-robin"}
    with pytest.raises(ConfigError, match=r"class=round-robin .*set the column partition, or atomic=False"):
        write(rows, options=options, topic=topic, app_id="partitioner", version=0)
    of_kafka = {**options, "kafka.partitioner.class": "org.apache.kafka.clients.producer.internals.DefaultPartitioner"}
    assert write(rows, options=of_kafka, topic=topic, app_id="partitioner", version=0).rows == 1
    assert write(rows, options=options, topic=topic, app_id="partitioner", version=1, atomic=False).rows == 1
    chosen = rows.withColumn("partition", f.lit(1))
    assert write(chosen, options=of_kafka, topic=topic, app_id="partitioner", version=2).rows == 1


def test_foreach_batch_refuses_wrong_options_before_the_query() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    with pytest.raises(ConfigError, match=r"unknown option kafka\.acsk \(did you mean kafka\.acks"):
        foreach_batch(options={**options, "kafka.acsk": "all"}, app_id="orders")


def test_unwritable_report_path_is_refused_before_any_row(rows: DataFrame) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "reportPath": "/no/such/folder/r.jsonl"}
    with pytest.raises(ConfigError, match="the folder /no/such/folder is missing"):
        write(rows, options=options)
