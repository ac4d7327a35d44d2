"""Columns of any type written as Avro on a real Spark, in every way to write; fastavro reads the payloads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_sink
from job_arguments import job_parser, read_records
from kafka_sink.common.errors import ConfigError
from kafka_sink.errors import UnwritableRowsError
from kafka_sink.formats.avro.column import derive_schema
from kafka_sink.spark.driver.column_formats import arrow_type
from tests.support.readback import read_topic
from tests.support.spark_version import HAS_DATA_SOURCES
from tests.support.write_ways import Way, WriteJob, in_few_ways

NewTopic = Callable[..., str]
ROWS = 300
AVRO = {"key.format": "avro", "value.format": "avro"}


def orders(numbers: DataFrame) -> DataFrame:
    """Return rows with a primitive key and a struct with some null fields; one value in 50 is null."""
    # Columns of files are nullable, which the schema would show.
    numbers = numbers.select(f.coalesce("id", f.lit(0)).alias("id"))
    line = f.struct(f.concat(f.lit("sku-"), f.col("id")).alias("sku"), (f.col("id") % 5).cast("int").alias("count"))
    columns = (
        f.col("id"),
        f.when(f.col("id") % 3 > 0, f.concat(f.lit("customer-ü-"), f.repeat("id", 4))).alias("customer"),
        (f.col("id") / 8).alias("weight"),
        f.col("id").cast("decimal(12,2)").alias("price"),
        f.timestamp_micros(f.col("id") * 1_000_003).alias("at"),
        f.date_add(f.lit("2026-01-01").cast("date"), (f.col("id") % 400).cast("int")).alias("day"),
        f.when(f.col("id") % 4 > 0, f.array(line, line)).alias("lines"),
        f.create_map(f.lit("first"), f.col("id").cast("string")).alias("tags"),
    )
    value = f.when(f.col("id") % 50 > 0, f.struct(*columns))
    return numbers.select(f.col("id").alias("key"), value.alias("value"))


def decoded(payload: bytes | None, schema: str) -> Any:
    if payload is None:
        return None
    source = io.BytesIO(payload)
    row = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema)), None)
    assert source.read() == b""
    return row


def plain(value: Any) -> Any:
    """Return a value of Spark as fastavro reads it: rows as dictionaries."""
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


@pytest.mark.behaviour("Avro", "Structs and primitive keys are written as Avro in every way to write, every row once")
@in_few_ways
def test_rows_arrive_as_avro(
    write: Way, spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(3)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **AVRO}
    write(spark, WriteJob(orders, ROWS, options, topic, tmp_path))
    frame = orders(spark.range(ROWS))
    schema = derive_schema(arrow_type(frame.schema["value"].dataType, "value"), "value")
    messages = read_topic(cluster.bootstrap_servers, topic)
    found = {decoded(each.key, '"long"'): decoded(each.value, schema) for each in messages}
    assert len(messages) == len(found) == ROWS
    # Spark returns local times without a zone; the texts are those of the same moment.
    at = f.col("value").withField("at", f.date_format("value.at", "yyyy-MM-dd HH:mm:ss.SSSSSS"))
    expected = {row.key: plain(row.value) for row in frame.withColumn("value", at).collect()}
    for row in found.values():
        if row is not None:
            row["at"] = row["at"].strftime("%Y-%m-%d %H:%M:%S.%f")
    assert found == expected


def test_jobs_leave_columns_with_a_format_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 7, "name": "x"}\n')
    given = ["--input", str(tmp_path), "--format", "json", "--schema", "id LONG, name STRING", "--key", "id"]
    parser = job_parser(None, is_stream=False)
    for formats, expected in (
        ([], [("string", '{"id":7,"name":"x"}'), ("string", "7")]),
        (["value.format=avro"], [("struct<id:bigint,name:string>", (7, "x")), ("string", "7")]),
        (["KEY.FORMAT=avro", "topic=t"], [("string", '{"id":7,"name":"x"}'), ("bigint", 7)]),
    ):
        arguments = parser.parse_args([*given, *(word for each in formats for word in ("--option", each))])
        frame = read_records(spark, arguments, is_stream=False)
        (row,) = frame.collect()
        assert [(field.dataType.simpleString(), row[field.name]) for field in frame.schema] == expected


GIVEN = {
    "type": "record",
    "name": "Order",
    "namespace": "org.shop",
    "fields": [
        {"name": "source", "type": "string", "default": "spark"},
        {"name": "id", "type": "double"},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
    ],
}


def write(df: DataFrame, cluster: Any, topic: str, **options: str) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "value.format": "avro", **options}
    if HAS_DATA_SOURCES:
        df.write.format("kafkalite").options(**given).mode("append").save()
    else:
        kafka_sink.write(df, options=given)


def coloured(spark: SparkSession, *colours: str) -> DataFrame:
    rows = spark.createDataFrame([(number, colour) for number, colour in enumerate(colours)], "id int, colour string")
    return rows.coalesce(1).select(f.struct("*").alias("value"))


@pytest.mark.behaviour("Avro", "A given schema, inline or in a file, decides types, order and defaults")
@pytest.mark.parametrize("place", ["inline", "file"])
def test_given_schema_is_written(
    place: str, spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, file = new_topic(), tmp_path / "order.avsc"
    file.write_text(json.dumps(GIVEN, indent=2))
    schema = json.dumps(GIVEN) if place == "inline" else str(file)
    write(coloured(spark, "RED", "BLUE"), cluster, topic, **{"value.schema": schema})
    found = [decoded(each.value, json.dumps(GIVEN)) for each in read_topic(cluster.bootstrap_servers, topic)]
    assert sorted(found, key=lambda row: row["id"]) == [
        {"source": "spark", "id": 0.0, "colour": "RED"},
        {"source": "spark", "id": 1.0, "colour": "BLUE"},
    ]


@pytest.mark.behaviour("Avro", "A value that does not fit fails the write with the row, and nothing of a batch is left")
def test_row_that_does_not_fit_is_named_and_nothing_stays(
    spark: SparkSession, cluster: Any, new_topic: NewTopic
) -> None:
    topic = new_topic()
    rows, options = coloured(spark, "RED", "BLUE", "GREEN"), {"value.schema": json.dumps(GIVEN)}
    expected = (
        "row 2 of this task has 'GREEN' in column 'value.colour', which is not one of the enum's symbols (RED, BLUE)"
    )
    with pytest.raises(Exception) as caught:
        write(rows, cluster, topic, **options)
    assert expected in str(caught.value)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "value.format": "avro", **options}
    with pytest.raises(UnwritableRowsError) as refused:
        kafka_sink.write(rows, options=given, app_id=topic, version=0)
    assert expected in str(refused.value)
    assert read_topic(cluster.bootstrap_servers, topic) == []


@pytest.mark.behaviour("Avro", "Schemas and columns that do not fit are refused on the driver, before any task")
@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("struct(1 as a) as value", {}, "value is struct<a:int>, expected string or binary; cast it, convert the row"),
        ("struct(1 as `a b`) as value", {"value.format": "avro"}, "column 'value.a b' has a name that Avro does not"),
        ("map(1, 2) as value", {"value.format": "avro"}, "column 'value' is a map with keys of type int32"),
        (
            "struct(interval '1' year as span) as value",
            {"value.format": "avro"},
            "column 'value.span' is interval year, which the formats do not support",
        ),
        ("'v' as value", {"key.format": "avro"}, "option key.format=avro, but there is no column 'key'"),
        (
            "'v' as value",
            {"value.format": "csv"},
            "option value.format: 'csv' is not allowed, expected one of",
        ),
        ("'v' as value", {"value.schema": "string"}, "option value.schema has no effect without value.format"),
        ("1 as value", {"value.format": "avro", "value.schema": "string"}, "column 'value' is int32, which cannot be"),
        ("1 as value", {"value.format": "avro", "value.schema": "/no/such"}, "the file /no/such cannot be read on the"),
        ("1 as value", {"value.format": "avro", "value.schema": "{"}, "the Avro schema is not valid JSON"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_task(
    columns: str, options: dict[str, str], expected: str, spark: SparkSession
) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **options}
    with pytest.raises(ConfigError) as caught:
        kafka_sink.write(spark.sql(f"select {columns}"), options=given)
    assert expected in str(caught.value).replace("column 'value' is struct", "value is struct")
