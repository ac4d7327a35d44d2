"""Avro with a schema registry on a real Spark: confluent-kafka's deserializer reads the payloads, with the same
registry; a schema that the registry refuses fails the write before any task."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

import kafka_sink
from kafka_sink.common.errors import ConfigError, IncompatibleSchemaError, RegistryError, SchemaNotFoundError
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.options import parse_options
from kafka_sink.testing import EmbeddedRegistry
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

NewTopic = Callable[..., str]
ROWS = 60


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


class Orders:
    """A topic whose keys and values are Avro, and both sides of its registry."""

    def __init__(self, cluster: Any, topic: str, registry: EmbeddedRegistry) -> None:
        self._servers, self.topic, self._url = cluster.bootstrap_servers, topic, registry.url
        self.client = SchemaRegistryClient({"url": registry.url})

    def options(self, **more: str) -> dict[str, str]:
        own = {"kafka.bootstrap.servers": self._servers, "topic": self.topic, "schema.registry.url": self._url}
        given = {"key.format": "avro", "value.format": "avro", **own}
        return {**given, **{name.replace("__", "."): value for name, value in more.items()}}

    def write(self, df: DataFrame, **more: str) -> None:
        kafka_sink.write(df, options=self.options(**more))

    def read(self) -> list[tuple[Any, Any]]:
        """Return sorted keys and values, as confluent-kafka's deserializer reads them."""
        read = AvroDeserializer(self.client)
        key, value = (SerializationContext(self.topic, part) for part in (MessageField.KEY, MessageField.VALUE))
        messages = read_topic(self._servers, self.topic)
        return sorted(((read(each.key, key), read(each.value, value)) for each in messages), key=lambda pair: pair[0])


@pytest.fixture
def orders(cluster: Any, new_topic: NewTopic, registry: EmbeddedRegistry) -> Orders:
    return Orders(cluster, new_topic(2), registry)


def rows(source: DataFrame, *columns: str) -> DataFrame:
    selected = [f.coalesce("id", f.lit(0)).alias("id"), *(f.expr(column) for column in columns)]
    return source.select(selected[0].alias("key"), f.struct(*selected).alias("value"))


def expected(count: int) -> list[tuple[int, dict[str, Any]]]:
    return [(number, {"id": number, "name": f"no-{number}"}) for number in range(count)]


NAME = "concat('no-', id) as name"


@pytest.mark.behaviour("Schema registry", "confluent-kafka's deserializer reads every row, in every guarantee")
@pytest.mark.parametrize("guarantee", ["at-least-once", "atomic", pytest.param("stream", marks=requires_data_sources)])
def test_confluents_deserializer_reads_every_row(
    guarantee: str, spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    if guarantee == "stream":
        source = tmp_path / "source"
        source.mkdir()
        for part in range(2):
            ids = range(part * ROWS // 2, (part + 1) * ROWS // 2)
            (source / f"{part}.json").write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
        frame = rows(spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source)), NAME)
        stream = frame.writeStream.format("kafkalite").options(**orders.options())
        stream = stream.options(deliveryGuarantee="exactly-once", transactionalIdPrefix=orders.topic)
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        stream.start().awaitTermination(120)
    else:
        numbered = {"app_id": orders.topic, "version": 0} if guarantee == "atomic" else {}
        kafka_sink.write(rows(spark.range(ROWS), NAME), options=orders.options(), **numbered)  # type: ignore[arg-type]
    assert orders.read() == expected(ROWS)
    assert orders.client.get_subjects() == [f"{orders.topic}-key", f"{orders.topic}-value"]


def test_schema_of_several_files_is_written_with_references(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    def record(name: str, kind: str) -> str:
        return json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": kind}]})

    for name, kind in (("shop.Order", "shop.Line"), ("shop.Line", "shop.Item"), ("shop.Item", "long")):
        (tmp_path / f"{name}.avsc").write_text(record(name, kind))
    frame = spark.range(ROWS).select(f.expr("id as key"), f.expr("struct(struct(struct(id) as id) as id) as value"))
    orders.write(frame, value__schema=str(tmp_path))
    assert orders.read() == [(number, {"id": {"id": {"id": number}}}) for number in range(ROWS)]
    references = orders.client.get_latest_version(f"{orders.topic}-value").schema.references or []
    assert [(each.name, each.subject, each.version) for each in references] == [("shop.Line", "shop.Line", 1)]


@pytest.mark.behaviour("Schema registry", "Columns may come and go as the subject's compatibility allows")
def test_columns_may_change_as_the_registry_allows(spark: SparkSession, orders: Orders) -> None:
    with_default = json.dumps(
        {
            "type": "record",
            "name": "topLevelRecord",
            "fields": [{"name": "id", "type": "double"}, {"name": "note", "type": "string", "default": "none"}],
        }
    )
    orders.write(rows(spark.range(1)))
    orders.write(rows(spark.range(1, 2)), value__schema=with_default)
    orders.write(rows(spark.range(2, 3), "'new' as note"), value__schema=with_default)
    assert orders.client.get_versions(f"{orders.topic}-value") == [1, 2]
    values = [value for _, value in orders.read()]
    assert values == [{"id": 0}, {"id": 1.0, "note": "none"}, {"id": 2.0, "note": "new"}]


@pytest.mark.behaviour(
    "Schema registry", "A schema that the registry refuses is refused before any task, with the column"
)
def test_incompatible_column_is_named_before_any_task(spark: SparkSession, orders: Orders) -> None:
    orders.write(rows(spark.range(1)))
    with pytest.raises(IncompatibleSchemaError) as caught:
        orders.write(rows(spark.range(5), "struct(1 as x) as part", "5 as amount"))
    assert str(caught.value).startswith("column 'value.part': the registry refuses the schema of subject")
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(caught.value)
    with pytest.raises(
        SchemaNotFoundError, match=r"column 'key': its schema is not a version of subject other-key .*not found"
    ):
        orders.write(rows(spark.range(5)), topic="other", auto__register__schemas="false")
    assert len(orders.read()) == 1


def test_latest_schema_decides_what_is_written(spark: SparkSession, orders: Orders) -> None:
    latest = {"auto__register__schemas": "false", "use__latest__version": "true"}
    with pytest.raises(SchemaNotFoundError, match=f"column 'key': subject {orders.topic}-key has no schema"):
        orders.write(rows(spark.range(1)), **latest)
    value = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": ["null", "float"]}]}
    orders.client.register_schema(f"{orders.topic}-key", Schema('"long"', "AVRO"))
    orders.client.register_schema(f"{orders.topic}-value", Schema(json.dumps(value), "AVRO"))
    # The sink does not cache that the registry had no schema.
    orders.write(rows(spark.range(2)), **latest)
    assert orders.read() == [(0, {"id": 0.0}), (1, {"id": 1.0})]
    with pytest.raises(ConfigError, match=r"column 'value\.name' has no field in the schema's record Order"):
        orders.write(rows(spark.range(1), NAME), **latest)


def test_subjects_are_named_by_the_strategy(spark: SparkSession, orders: Orders) -> None:
    orders.write(rows(spark.range(1)), value__subject__name__strategy="TopicRecordNameStrategy")
    assert orders.client.get_subjects() == [f"{orders.topic}-key", f"{orders.topic}-topLevelRecord"]
    with pytest.raises(ConfigError, match=r"key\.subject\.name\.strategy=RecordNameStrategy needs a record"):
        orders.write(rows(spark.range(1)), key__subject__name__strategy="RecordNameStrategy")


def test_registry_that_is_gone_fails_the_write_before_any_task(
    spark: SparkSession, cluster: Any, new_topic: NewTopic
) -> None:
    with EmbeddedRegistry() as gone:
        orders = Orders(cluster, new_topic(), gone)
    with pytest.raises(
        RegistryError, match=r"the schema registry cannot be used \(http://127\.0\.0\.1:\d+: Connection"
    ):
        orders.write(rows(spark.range(1)))
    assert read_topic(cluster.bootstrap_servers, orders.topic) == []


@pytest.mark.behaviour("Schema registry", "The tasks get the ids of schemas, and no option of the registry")
def test_tasks_get_ids_and_no_credentials(registry: EmbeddedRegistry) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "value.format": "avro"}
    asking = {"schema.registry.url": registry.url, "bearer.auth.token": "s3cr3t"}
    ready = prepared(StructType().add("value", "long"), parse_options({**given, **asking}))
    assert [(each.column, each.prefix) for each in ready.formats] == [("value", b"\0\0\0\0\1")]
    assert b"s3cr3t" not in pickle.dumps(ready)
    assert "s3cr3t" not in repr(parse_options({**given, **asking}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "none-such"}, "expected one of avro"),
        ({"schema.registry.url": "http://h"}, "no effect without key.format or value.format"),
        ({"value.format": "avro", "schema.registry.urls": "http://h"}, "did you mean schema.registry.url"),
        ({"value.format": "avro", "auto.register.schemas": "false"}, "set without schema.registry.url"),
        (
            {
                "value.format": "avro",
                "schema.registry.url": "http://h",
                "auto.register.schemas": "false",
                "use.latest.version": "true",
                "value.schema": '"int"',
            },
            "no effect with use.latest.version=true",
        ),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, str], message: str, spark: SparkSession) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **options}
    with pytest.raises(ConfigError, match=message):
        kafka_sink.write(rows(spark.range(1)), options=given)
