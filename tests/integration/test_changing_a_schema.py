"""Runs each row of the page about changing a schema, with a registry in memory and without one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kafka_sink.common.errors import KafkaError, RegistryDeniedError
from kafka_sink.formats.column_format import ColumnFormat, format_of
from kafka_sink.formats.protobuf.descriptors import descriptors
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.spark.driver.column_formats import arrow_type, formats_of
from kafka_sink.spark.options import parse_options
from kafka_sink.testing import EmbeddedRegistry

PAGE = (Path(__file__).parents[2] / "docs" / "changing-a-schema.md").read_text()
FORMATS = ("avro", "json", "protobuf")


def field(name: str, kind: DataType, *, nullable: bool = False) -> StructField:
    return StructField(name, kind, nullable)


ID, AMOUNT = field("id", LongType()), field("amount", IntegerType())
CUSTOMER, NOTE = field("customer", StringType(), nullable=True), field("note", StringType(), nullable=True)
PRICE = field("price", FloatType())

#: By the first cell of a row: the columns before and after.
CHANGES: Mapping[str, tuple[list[StructField], list[StructField]]] = {
    "add a nullable column at the end": ([ID, CUSTOMER], [ID, CUSTOMER, NOTE]),
    "add a nullable column (not last)": ([ID, CUSTOMER, AMOUNT], [ID, CUSTOMER, NOTE, AMOUNT]),
    "add a column that is never null": ([ID, CUSTOMER], [ID, CUSTOMER, AMOUNT]),
    "drop the last column, nullable": ([ID, CUSTOMER, NOTE], [ID, CUSTOMER]),
    "drop a nullable column (not last)": ([ID, CUSTOMER, AMOUNT], [ID, AMOUNT]),
    "drop a column that is never null": ([ID, CUSTOMER, AMOUNT], [ID, CUSTOMER]),
    "rename a nullable column": ([ID, CUSTOMER], [ID, field("client", StringType(), nullable=True)]),
    "rename a column that is never null": ([ID, AMOUNT], [ID, field("total", IntegerType())]),
    "`int` to `bigint`": ([ID, AMOUNT], [ID, field("amount", LongType())]),
    "`int` to `double`": ([ID, AMOUNT], [ID, field("amount", DoubleType())]),
    "`float` to `double`": ([ID, PRICE], [ID, field("price", DoubleType())]),
    "`bigint` to `int`": ([ID, AMOUNT], [field("id", IntegerType()), AMOUNT]),
    "`int` to `string`": ([ID, AMOUNT], [ID, field("amount", StringType())]),
    "nullable, and was never null": ([ID, AMOUNT], [ID, field("amount", IntegerType(), nullable=True)]),
    "never null, and was nullable": ([ID, CUSTOMER], [ID, field("customer", StringType())]),
}


def table(heading: str) -> dict[str, list[str]]:
    """Return the table below *heading*: the other cells by the first one."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows[2:]}


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


def written(registry: EmbeddedRegistry | None, name: str, columns: list[StructField], **more: str) -> ColumnFormat:
    """Return the format in which the driver decides to write rows of *columns*."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "topic": f"t-{name}", "value.format": name, **more}
    if registry is not None:
        given["schema.registry.url"] = registry.url
    (form,) = formats_of(StructType().add("value", StructType(columns), False), parse_options(given))
    return form


def schema_id(form: ColumnFormat) -> int:
    return int.from_bytes(form.prefix[1:5], "big")


@pytest.mark.behaviour(
    "Schema registry", "What becomes of each change of a schema is as the page has it, in all formats"
)
def test_every_row_of_the_page_with_a_registry() -> None:
    rows = table("With a schema registry")
    assert list(rows) == list(CHANGES)
    found = {}
    for change, (before, after) in CHANGES.items():
        with EmbeddedRegistry() as registry:
            found[change] = [outcome(registry, name, before, after) for name in FORMATS]
    assert found == {change: [cell.partition(";")[0] for cell in cells[:3]] for change, cells in rows.items()}


def outcome(registry: EmbeddedRegistry, name: str, before: list[StructField], after: list[StructField]) -> str:
    first = schema_id(written(registry, name, before))
    try:
        second = schema_id(written(registry, name, after))
    except KafkaError as error:
        assert "docs/changing-a-schema.md" in str(error)
        reasons = re.findall(r"\b([A-Z]+(?:_[A-Z]+)+)\b", str(error))
        return f"refused: `{reasons[0]}`"
    return "the same schema" if first == second else "accepted"


ROW = {"id": 7, "customer": "Ada", "note": "new", "amount": 5, "client": "Ada", "total": 5, "price": 0.5}


def encoded(form: ColumnFormat, columns: list[StructField]) -> bytes:
    kind = arrow_type(StructType(columns), "value")
    row = {
        each.name: str(ROW[each.name]) if isinstance(each.dataType, StringType) else ROW[each.name] for each in columns
    }
    (payload,) = format_of(form.name).encoder(form, kind).encode(pa.array([row], kind)).to_pylist()
    assert isinstance(payload, bytes)
    return payload


def decoded(form: ColumnFormat, payload: bytes) -> dict[str, Any]:
    """Return the values of *payload* for a reader with the schema of *form* only."""
    if form.name == "json":
        found: dict[str, Any] = json.loads(payload)
        return found
    if form.name == "avro":
        schema = fastavro.parse_schema(json.loads(form.schema))
        return dict(fastavro.schemaless_reader(BytesIO(payload), schema, None))  # type: ignore[arg-type]
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptors(form.schema).file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("topLevelRecord"))()
    message.ParseFromString(payload)
    return {each.name: getattr(message, each.name) for each in message.DESCRIPTOR.fields}


def seen_by_old_reader(name: str, before: list[StructField], after: list[StructField]) -> str:
    """Return the result of a reader with the schema of *before* for a row of *after*."""
    kinds = [arrow_type(StructType(columns), "value") for columns in (before, after)]
    old, new = (format_of(name).derived(kind, "value") for kind in kinds)
    if name == "json":
        old, new = (ColumnFormat("value", name, "") for _ in kinds)
    try:
        found = decoded(old, encoded(new, after))
    except Exception:
        return "wrong"
    # Protobuf returns the default of a type for a missing value.
    values = {
        each.name: found.get(each.name) or None if name == "protobuf" else found.get(each.name) for each in before
    }
    kept = {each.name: ROW[each.name] for each in before}
    if values == kept:
        return "read"
    return "without it" if all(values[key] in (None, kept[key]) for key in kept) else "wrong"


@pytest.mark.behaviour("Schema registry", "Without a registry a reader with the old schema sees what the page says")
def test_every_row_of_the_page_without_a_registry() -> None:
    rows = table("Without a schema registry")
    assert list(rows) == list(CHANGES)
    found = {
        change: [seen_by_old_reader(name, before, after) for name in FORMATS]
        for change, (before, after) in CHANGES.items()
    }
    assert found == {change: cells[:3] for change, cells in rows.items()}


@pytest.mark.behaviour(
    "Schema registry", "Derived Avro grows: a nullable column more or less is compatible, also nested"
)
@pytest.mark.parametrize("level", ["BACKWARD", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"])
def test_nullable_columns_come_and_go_in_avro(level: str, registry: EmbeddedRegistry) -> None:
    SchemaRegistryClient({"url": registry.url}).set_compatibility(level=level)
    inner = [[CUSTOMER], [CUSTOMER, NOTE], [NOTE], []]
    ids = [
        schema_id(written(registry, "avro", [ID, field("part", StructType([ID, *columns]), nullable=True), *columns]))
        for columns in inner
    ]
    assert ids == [1, 2, 3, 4]


@pytest.mark.behaviour("Schema registry", "A topic that was written by a schema without defaults gets no new one")
@pytest.mark.parametrize("registers", ["true", "false"])
def test_schema_of_earlier_versions_is_kept(registers: str, registry: EmbeddedRegistry) -> None:
    columns = [ID, CUSTOMER, field("part", StructType([NOTE]), nullable=True)]
    kind = arrow_type(StructType(columns), "value")
    earlier = format_of("avro").derived(kind, "value").schema
    assert '["string","null"]' in earlier
    client = RegistryClient(*registry_configs({"schema.registry.url": registry.url}))
    assert client.register("t-avro-value", earlier) == 1
    options = {"auto.register.schemas": registers}
    form = written(registry, "avro", columns, **options)
    assert (form.schema, schema_id(form)) == (earlier, 1)
    if registers == "true":
        # With a further column the schema has defaults, and both versions write to the topic.
        grown = written(registry, "avro", [*columns, field("more", LongType(), nullable=True)])
        assert '{"name":"customer","type":["null","string"],"default":null}' in grown.schema
        assert schema_id(written(registry, "avro", columns)) == 1


def test_credentials_that_may_not_look_up_register(registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> int:
        raise RegistryDeniedError("HTTP 403")

    monkeypatch.setattr(RegistryClient, "id_of", denied)
    form = written(registry, "avro", [ID, CUSTOMER])
    assert (schema_id(form), '"default":null' in form.schema) == (1, True)


def test_payloads_without_a_registry_are_those_of_to_avro() -> None:
    assert '"type":["string","null"]' in written(None, "avro", [ID, CUSTOMER]).schema
    assert "default" not in written(None, "avro", [ID, CUSTOMER]).schema
