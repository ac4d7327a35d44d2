"""Columns of any type written as JSON on a real Spark; with a registry, confluent-kafka's deserializer reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_sink
from kafka_sink.common.errors import ConfigError, IncompatibleSchemaError
from kafka_sink.formats.errors import FormatError
from kafka_sink.testing import EmbeddedRegistry
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

NewTopic = Callable[..., str]
ROWS = 200


def orders(spark: SparkSession, *more: str) -> DataFrame:
    """Return rows with a number as the key, and a struct with some null fields; one value in 50 is null."""
    columns = (
        "coalesce(id, 0) as id",
        "if(id % 3 > 0, concat('customer \"', id, '\\ü'), null) as customer",
        "id / 8 as weight",
        "timestamp_micros(id * 1000003) as at",
        "array(struct(id as n), null) as lines",
        *more,
    )
    value = f.struct(*(f.expr(column) for column in columns))
    return spark.range(ROWS).select(
        f.coalesce("id", f.lit(0)).alias("key"), f.when(f.col("id") % 50 > 0, value).alias("value")
    )


def by_format(df: DataFrame, options: dict[str, str], folder: Path) -> None:
    df.write.format("kafkalite").mode("append").options(**options).save()


def by_transaction(df: DataFrame, options: dict[str, str], folder: Path) -> None:
    kafka_sink.write(df, options=options, app_id=options["topic"], version=0)


@pytest.mark.behaviour("JSON", "What is written is what to_json makes of the same rows, in the session's time zone")
@pytest.mark.parametrize("write", [pytest.param(by_format, marks=requires_data_sources), by_transaction])
def test_values_are_those_of_to_json(
    write: Callable[..., None], spark: SparkSession, cluster: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic(2)}
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        rows = orders(spark)
        write(rows, {**options, "key.format": "json", "value.format": "json"}, tmp_path)
        expected = {str(row.key): row.json for row in rows.select("key", f.to_json("value").alias("json")).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = read_topic(cluster.bootstrap_servers, options["topic"])
    assert len(found) == ROWS
    assert {(each.key or b"").decode(): each.value and each.value.decode() for each in found} == expected
    assert '"at":"1970-01-01T05:30:07.000+05:30"' in (expected["7"] or "")


class Registered:
    """A topic whose values are JSON with a schema, and both sides of its registry."""

    def __init__(self, cluster: Any, topic: str, registry: EmbeddedRegistry) -> None:
        self.servers, self.topic = cluster.bootstrap_servers, topic
        self.client = SchemaRegistryClient({"url": registry.url})
        self.options = {
            "kafka.bootstrap.servers": self.servers,
            "topic": topic,
            "value.format": "json",
            "schema.registry.url": registry.url,
        }

    def write(self, df: DataFrame, **more: str) -> None:
        given = {name.replace("__", "."): value for name, value in more.items()}
        kafka_sink.write(df.select("value"), options={**self.options, **given})

    def read(self) -> list[Any]:
        read = JSONDeserializer(None, schema_registry_client=self.client)
        context = SerializationContext(self.topic, MessageField.VALUE)
        return [read(each.value, context) for each in read_topic(self.servers, self.topic)]


@pytest.fixture
def registered(cluster: Any, new_topic: NewTopic) -> Any:
    with EmbeddedRegistry() as registry:
        yield Registered(cluster, new_topic(1), registry)


@pytest.mark.behaviour("JSON", "confluent-kafka's JSONDeserializer reads every row, and finds that it fits its schema")
def test_confluents_deserializer_reads_every_row(spark: SparkSession, registered: Registered) -> None:
    rows = orders(spark).filter("value is not null")
    registered.write(rows)
    expected = [json.loads(row.json) for row in rows.select(f.to_json("value").alias("json")).collect()]
    assert sorted(registered.read(), key=lambda row: row["id"]) == expected
    schema = registered.client.get_latest_version(f"{registered.topic}-value").schema
    assert (schema.schema_type, json.loads(schema.schema_str or "")["required"]) == ("JSON", ["id", "at", "lines"])


def test_columns_may_be_added_and_not_removed(spark: SparkSession, registered: Registered) -> None:
    registered.write(orders(spark))
    registered.write(orders(spark, "if(id % 2 = 0, 'x', null) as note"))
    assert registered.client.get_versions(f"{registered.topic}-value") == [1, 2]
    with pytest.raises(IncompatibleSchemaError, match=r"column 'value\.other': the registry refuses"):
        registered.write(orders(spark, "if(id % 2 = 0, 'x', null) as note", "1 as other"))
    with pytest.raises(IncompatibleSchemaError, match=r"PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"):
        registered.write(spark.sql("select struct(1 as id) as value"))


def test_given_or_latest_schema_must_take_the_rows(spark: SparkSession, registered: Registered) -> None:
    wide = json.dumps({"type": "object", "properties": {"id": {"type": "number"}}, "title": "Order"})
    numbers = spark.range(1, 3).select(f.struct(f.coalesce("id", f.lit(0)).alias("id")).alias("value"))
    registered.write(numbers, value__schema=wide, value__subject__name__strategy="RecordNameStrategy")
    assert registered.client.get_subjects() == ["Order"]
    registered.client.register_schema(f"{registered.topic}-value", Schema(wide, "JSON"))
    latest = {"auto__register__schemas": "false", "use__latest__version": "true"}
    registered.write(numbers, **latest)
    assert sorted(row["id"] for row in registered.read()) == [1, 1, 2, 2]
    texts = spark.sql("select struct('x' as id) as value")
    with pytest.raises(FormatError, match=r"column 'value\.id' is string, in JSON a string.* \"number\" there"):
        registered.write(texts, **latest)


@pytest.mark.behaviour("JSON", "With a schema a number that JSON does not have fails the write with row and column")
def test_nan_is_a_text_without_schema_and_refused_with_one(
    spark: SparkSession, registered: Registered, new_topic: NewTopic
) -> None:
    rows = spark.sql("select struct(double('NaN') as x) as value")
    topic = new_topic(1)
    kafka_sink.write(
        rows, options={"kafka.bootstrap.servers": registered.servers, "topic": topic, "value.format": "json"}
    )
    assert [each.value for each in read_topic(registered.servers, topic)] == [b'{"x":"NaN"}']
    with pytest.raises(
        Exception, match=r"row 0 of this task has nan in column 'value\.x', which JSON does not have as a number"
    ):
        registered.write(rows)


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("struct(map(1.5d, 2) as m) as value", {}, "column 'value.m{key}' has the type double, but the names of JSON"),
        ("struct(interval '1' day as i) as value", {}, "column 'value.i' is duration[us], which has no counterpart in"),
        ("1 as value", {"value.schema": "{}"}, "option value.schema has no effect with value.format=json and without"),
    ],
)
def test_what_json_lacks_is_refused_before_any_task(
    columns: str, options: dict[str, str], expected: str, spark: SparkSession
) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "value.format": "json", **options}
    with pytest.raises(ConfigError) as caught:
        kafka_sink.write(spark.sql(f"select {columns}"), options=given)
    assert expected in str(caught.value)


@pytest.mark.behaviour("JSON", "Rows that JSON cannot hold become dead letters, and the others arrive")
def test_rows_that_json_cannot_hold_become_dead_letters(
    spark: SparkSession, registered: Registered, new_topic: NewTopic
) -> None:
    numbers = spark.range(10).coalesce(1)
    weight = "if(id % 4 = 1, double('NaN'), id / 2)"
    rows = numbers.select(f.expr(f"struct(coalesce(id, 0) as id, array({weight}) as weights)").alias("value"))
    dead = new_topic(1)
    registered.write(rows, deadLetterTopic=dead)
    assert sorted(row["id"] for row in registered.read()) == [0, 2, 3, 4, 6, 7, 8]
    letters = read_topic(registered.servers, dead)
    assert [json.loads(each.value or b"")["id"] for each in letters] == [1, 5, 9]
    for each in letters:
        assert dict(each.headers)["__kafkalite.errors.column"] == b"value.weights[]"
