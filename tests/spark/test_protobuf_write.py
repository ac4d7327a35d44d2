"""Columns written as Protobuf on a real Spark, in every way to write, with a registry and without one: Google's library
and confluent-kafka's deserializer read the payloads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from google.protobuf.json_format import MessageToDict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_sink
from kafka_sink.common.errors import ConfigError, IncompatibleSchemaError
from kafka_sink.errors import UnwritableRowsError
from kafka_sink.formats.protobuf.column import derive_schema
from kafka_sink.formats.protobuf.descriptors import pool_of
from kafka_sink.spark.driver.column_formats import arrow_type
from kafka_sink.testing import EmbeddedRegistry
from tests.support.readback import read_topic
from tests.support.spark_version import HAS_DATA_SOURCES
from tests.support.write_ways import Way, WriteJob, in_few_ways

NewTopic = Callable[..., str]
ROWS = 120
GIVEN = """
syntax = "proto3";
package shop;
message Key { int64 id = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  sint64 id = 1;
  optional string customer = 2;
  State state = 3;
  fixed32 amount = 4;
}
"""


def orders(numbers: DataFrame) -> DataFrame:
    """Return rows with structs as keys and values, with some null fields; one value in 30 is null."""
    # Columns of files are nullable, which the schema would show.
    numbers = numbers.select(f.coalesce("id", f.lit(0)).alias("id"))
    line = f.struct(f.concat(f.lit("sku-"), f.col("id")).alias("sku"), (f.col("id") % 5).cast("int").alias("count"))
    columns = (
        f.col("id"),
        f.when(f.col("id") % 3 > 0, f.concat(f.lit("customer-ü-"), f.repeat("id", 4))).alias("customer"),
        (f.col("id") / 8).alias("weight"),
        f.timestamp_micros(f.col("id") * 1_000_003).alias("at"),
        f.when(f.col("id") % 4 > 0, f.array(line, line)).alias("lines"),
        f.create_map(f.lit("first"), f.col("id").cast("string")).alias("tags"),
    )
    value = f.when(f.col("id") % 30 > 0, f.struct(*columns))
    return numbers.select(f.struct("id").alias("key"), value.alias("value"))


def paid(numbers: DataFrame) -> DataFrame:
    """Return rows for the given schema."""
    row = f.coalesce("id", f.lit(0))
    value = f.struct(
        row.alias("id"),
        f.when(row % 2 > 0, f.concat(f.lit("no-"), row)).alias("customer"),
        f.when(row % 7 == 0, f.lit("PAID")).otherwise("NEW").alias("state"),
        row.alias("amount"),
    )
    return numbers.select(f.struct(row.alias("id")).alias("key"), value.alias("value"))


class Target:
    """A topic, and both sides of a registry."""

    def __init__(self, cluster: Any, topic: str, registry: EmbeddedRegistry) -> None:
        self.servers, self.topic, self.url = cluster.bootstrap_servers, topic, registry.url
        self.client = SchemaRegistryClient({"url": registry.url})

    def options(self, **more: str) -> dict[str, str]:
        own = {"kafka.bootstrap.servers": self.servers, "topic": self.topic}
        given = {"key.format": "protobuf", "value.format": "protobuf", **own}
        return {**given, **{name.replace("__", "."): value for name, value in more.items()}}

    def write(self, df: DataFrame, **more: str) -> None:
        kafka_sink.write(df, options=self.options(**more))

    def payloads(self) -> list[tuple[Any, Any]]:
        return [(each.key, each.value) for each in read_topic(self.servers, self.topic)]


@pytest.fixture
def target(cluster: Any, new_topic: NewTopic) -> Iterator[Target]:
    with EmbeddedRegistry() as registry:
        yield Target(cluster, new_topic(2), registry)


def class_of(text: str, name: str) -> Any:
    return message_factory.GetMessageClass(pool_of(text).FindMessageTypeByName(name))


def as_dict(message: Any) -> Any:
    return None if message is None else MessageToDict(message, preserving_proto_field_name=True)


def plain(row: Any) -> Any:
    """Return a row of :func:`orders` as MessageToDict shows it."""
    if row is None:
        return None
    found = {"id": str(row.id), "weight": row.weight, "tags": row.tags, "lines": row.lines or []}
    found["lines"] = [each.asDict() for each in found["lines"]]
    found["at"] = row.at.isoformat(timespec="microseconds")
    return {name: each for name, each in {**found, "customer": row.customer}.items() if each not in (None, [])}


@pytest.mark.behaviour("Protobuf", "Every row arrives once, and is read by Google's library, in every way to write")
@in_few_ways
def test_rows_arrive_as_protobuf(write: Way, spark: SparkSession, target: Target, tmp_path: Path) -> None:
    write(spark, WriteJob(orders, ROWS, target.options(), target.topic, tmp_path))
    frame = orders(spark.range(ROWS))
    texts = [derive_schema(arrow_type(frame.schema[each].dataType, each), each).text for each in ("key", "value")]
    key, value = (class_of(text, "topLevelRecord") for text in texts)
    payloads = target.payloads()
    found = {key.FromString(each).id: None if row is None else value.FromString(row) for each, row in payloads}
    expected = {row.key.id: row.value for row in frame.collect()}
    assert found.keys() == expected.keys()
    assert len(payloads) == len(found)
    for number, row in expected.items():
        if row is None:
            assert found[number] is None
        else:
            shown = as_dict(found[number])
            message: Any = found[number]
            shown["at"] = message.at.ToDatetime().isoformat(timespec="microseconds")
            assert shown == plain(row)


@pytest.mark.behaviour("Schema registry", "confluent-kafka's ProtobufDeserializer reads every row")
@pytest.mark.parametrize("message", ["Order", "shop.Order"])
def test_confluents_deserializer_reads_every_row(message: str, spark: SparkSession, target: Target) -> None:
    more = {"key__schema": GIVEN, "value__schema": GIVEN, "value__message": message}
    rows, options = paid(spark.range(ROWS)), target.options(schema__registry__url=target.url, **more)
    if message == "shop.Order" and HAS_DATA_SOURCES:
        # Spark's planner process compiles the schema.
        rows.write.format("kafkalite").mode("append").options(**options).save()
    else:
        kafka_sink.write(rows, options=options)
    key, value = (SerializationContext(target.topic, part) for part in (MessageField.KEY, MessageField.VALUE))
    registry = {"schema_registry_client": target.client, "conf": {"use.latest.version": True}}
    read_key = ProtobufDeserializer(class_of(GIVEN, "shop.Key"), **registry)
    read_value = ProtobufDeserializer(class_of(GIVEN, "shop.Order"), **registry)
    found: dict[Any, Any] = {read_key(each, key).id: as_dict(read_value(row, value)) for each, row in target.payloads()}
    expected = {row.key.id: row.value.asDict() for row in paid(spark.range(ROWS)).collect()}
    assert len(found) == ROWS
    for number, row in expected.items():
        shown = {"id": str(number), "amount": number} if number else {}
        shown |= {} if row["customer"] is None else {"customer": row["customer"]}
        shown |= {"state": "PAID"} if row["state"] == "PAID" else {}
        assert found[number] == shown
    # The index of the schema's second message is [1]: the length 1 and the index 1, both in zig-zag.
    assert {(each[:6][5:], row[5:7]) for each, row in target.payloads()} == {(b"\x00", b"\x02\x02")}


@pytest.mark.behaviour(
    "Schema registry", "The latest Protobuf schema decides what is written; a changed type is refused"
)
def test_registered_schemas_decide_what_is_written(spark: SparkSession, target: Target) -> None:
    subject = f"{target.topic}-value"
    latest = {"schema__registry__url": target.url, "auto__register__schemas": "false", "use__latest__version": "true"}
    value = paid(spark.range(8)).select("value")
    target.client.register_schema(subject, Schema(GIVEN, "PROTOBUF"))
    options = {name: each for name, each in target.options(**latest).items() if name != "key.format"}
    kafka_sink.write(value, options={**options, "value.message": "Order"})
    read = class_of(GIVEN, "shop.Order").FromString
    assert sorted(read(row[7:]).id for _, row in target.payloads()) == list(range(8))
    changed = GIVEN.replace("sint64 id", "string id")
    options = {**options, "use.latest.version": "false", "auto.register.schemas": "true", "value.message": "Order"}
    text = value.select(f.col("value").withField("id", f.lit("x")).alias("value"))
    refused = r"column 'value\.id': the registry refuses .*FIELD_SCALAR_KIND_CHANGED"
    with pytest.raises(IncompatibleSchemaError, match=refused):
        kafka_sink.write(text, options={**options, "value.schema": changed})


@pytest.mark.behaviour("Protobuf", "A row that does not fit the schema fails the write, or is a dead letter")
def test_row_that_does_not_fit_is_named_or_a_dead_letter(
    spark: SparkSession, target: Target, new_topic: NewTopic
) -> None:
    rows = paid(spark.range(ROWS))
    wrong = rows.withColumn(
        "value", f.col("value").withField("state", f.when(f.col("key.id") == 77, "GONE").otherwise("NEW"))
    )
    more = {"value__schema": GIVEN, "value__message": "Order"}
    atomic = {"app_id": target.topic, "version": 0}
    with pytest.raises(
        UnwritableRowsError, match=r"has 'GONE' in column 'value\.state', which is not one of the enum's"
    ):
        kafka_sink.write(wrong, options=target.options(**more), **atomic)  # type: ignore[arg-type]
    assert target.payloads() == []
    letters = new_topic(1)
    kafka_sink.write(wrong, options=target.options(deadLetterTopic=letters, **more), **atomic)  # type: ignore[arg-type]
    read = class_of(GIVEN, "shop.Order").FromString
    assert sorted(read(row).id for _, row in target.payloads()) == [each for each in range(ROWS) if each != 77]
    (letter,) = read_topic(target.servers, letters)
    assert json.loads(letter.value or b"")["id"] == 77


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"value__message": "Order"}, "option value.message has no effect without value.schema or use.latest.version"),
        ({"value__schema": GIVEN}, r"column 'value.customer' has no field in the schema's message shop.Key"),
        ({"value__schema": GIVEN, "value__message": "Ordr"}, "has no message 'Ordr'"),
        ({"value__schema": "gone.proto"}, "option value.schema: the file gone.proto cannot be read on the driver"),
        ({"value__format": "avro", "value__message": "M"}, "value.message has no effect with value.format=avro"),
        ({"value__schema": "message M {"}, "the Protobuf schema is invalid: schema.proto:1:"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_task(
    more: dict[str, str], message: str, spark: SparkSession, target: Target
) -> None:
    with pytest.raises(ConfigError, match=message):
        target.write(paid(spark.range(1)), **more)
