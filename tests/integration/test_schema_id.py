"""``use.schema.id``: rows by the schema that a job pins, as confluent-kafka's serializer writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Rule, RuleSet, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from pyspark.sql.types import LongType, StructField, StructType

from kafka_sink.errors import IncompatibleSchemaError, SchemaNotFoundError, UnusableSchemaError
from kafka_sink.formats.column_format import format_of
from kafka_sink.spark.driver.column_formats import formats_of
from kafka_sink.spark.options import parse_options
from kafka_sink.testing import EmbeddedRegistry

ROW: dict[str, Any] = {"id": 7}
COLUMNS = StructType([StructField(name, StructType([StructField("id", LongType())])) for name in ("key", "value")])
_AVRO = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}%s]}'
_JSON = '{"title":"R","type":"object","properties":{"id":{"type":"integer"}%s},"required":["id"]}'
#: Of each format a schema with an optional field, the latest one without it, and Confluent's serializer.
FORMATS: dict[str, tuple[str, str, Any]] = {
    "avro": (_AVRO % ',{"name":"note","type":["null","string"],"default":null}', _AVRO % "", AvroSerializer),
    "json": (_JSON % ',"note":{"type":"string"}', _JSON % "", JSONSerializer),
}


def payload_of(form: str, registry: EmbeddedRegistry, schema_id: int, **more: str) -> bytes:
    options = {
        **more,
        "kafka.bootstrap.servers": "b:1",
        "topic": "orders",
        "value.format": form,
        "schema.registry.url": registry.url,
        f"{'value.' if more else ''}use.schema.id": str(schema_id),
    }
    decided = formats_of(COLUMNS, parse_options(options))[-1]
    rows = pa.array([ROW], pa.struct([("id", pa.int64())]))
    payload: bytes = format_of(form).encoder(decided, rows.type).encode(rows, decided.prefix)[0].as_py()
    return payload


@pytest.mark.behaviour("Schema registry", "use.schema.id writes by the schema with this id, as confluent-kafka does")
@pytest.mark.parametrize("form", FORMATS)
def test_rows_have_the_schema_with_the_id(form: str) -> None:
    wider, latest, serializer = FORMATS[form]
    with EmbeddedRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        client.set_compatibility("orders-value", level="NONE")
        ids = [client.register_schema("orders-value", Schema(each, form.upper())) for each in (wider, latest)]
        other = client.register_schema("other-value", Schema(latest.replace("id", "no"), form.upper()))
        for each in ids:
            conf = {"auto.register.schemas": False, "use.schema.id": each}
            arguments = (client, latest) if form == "avro" else (latest, client)
            judge = serializer(*arguments, conf=conf)
            theirs = judge(ROW, SerializationContext("orders", MessageField.VALUE))
            assert payload_of(form, registry, each).replace(b" ", b"") == theirs.replace(b" ", b"")
        keys = client.register_schema("orders-key", Schema(latest, form.upper()))
        assert payload_of(form, registry, ids[0], **{"key.format": form, "key.use.schema.id": str(keys)})[1:5] == (
            ids[0].to_bytes(4, "big")
        )
        for wrong in (other, 99):
            with pytest.raises(SchemaNotFoundError, match=f"has no schema for use.schema.id={wrong}"):
                payload_of(form, registry, wrong)


#: Rules of data contracts, and whether Confluent's serializer runs them when it writes.
RULES: list[tuple[dict[str, Any], bool]] = [
    ({"name": "never", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "false"}, True),
    ({"name": "both", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}, True),
    ({"name": "off", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "false", "disabled": True}, False),
    ({"name": "read", "kind": "CONDITION", "type": "CEL", "mode": "READ", "expr": "false"}, False),
]


@pytest.mark.behaviour("Schema registry", "A schema with rules that confluent-kafka would run is not written by")
@pytest.mark.parametrize(("rule", "is_run"), RULES, ids=lambda value: value["name"] if isinstance(value, dict) else "")
def test_rules_that_would_be_run_are_refused(rule: dict[str, Any], is_run: bool) -> None:
    with EmbeddedRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        ruled = Schema(_AVRO % "", "AVRO", rule_set=RuleSet(None, [Rule.from_dict(rule)]))
        schema_id = client.register_schema("orders-value", ruled)
        judge = AvroSerializer(client, None, conf={"auto.register.schemas": False, "use.latest.version": True})
        context = SerializationContext("orders", MessageField.VALUE)
        if not is_run:
            theirs = judge(ROW, context)
            assert payload_of("avro", registry, schema_id) == theirs
            return
        # It has no executor for the rule here, and so does not write either.
        with pytest.raises(SerializationError):
            judge(ROW, context)
        with pytest.raises(UnusableSchemaError, match=rf"orders-value has rules .* {rule['name']} \({rule['type']}\)"):
            payload_of("avro", registry, schema_id)


def test_a_second_type_of_records_is_told_its_strategy() -> None:
    with EmbeddedRegistry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        client.register_schema("orders-value", Schema((_AVRO % "").replace('"R"', '"Other"'), "AVRO"))
        options = {"kafka.bootstrap.servers": "b:1", "topic": "orders", "schema.registry.url": registry.url}
        options |= {"value.format": "avro", "value.schema": _AVRO % ""}
        with pytest.raises(IncompatibleSchemaError, match=r"value\.subject\.name\.strategy=TopicRecordNameStrategy"):
            formats_of(COLUMNS, parse_options(options))
        formats_of(COLUMNS, parse_options({**options, "value.subject.name.strategy": "TopicRecordNameStrategy"}))
