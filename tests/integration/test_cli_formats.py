"""Avro, JSON and Protobuf on the command line, with a registry; confluent-kafka is the other client."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.cli.main import run
from kafka_sink.formats.protobuf.descriptors import pool_of
from kafka_sink.testing import EmbeddedRegistry
from tests.support.readback import read_topic

TOPIC = "orders"
CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
            {"name": "weights", "type": {"type": "array", "items": "double"}},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
ORDER = {
    "id": 7,
    "price": Decimal("1.50"),
    "at": dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 31),
    "raw": b"\xff\x00",
    "weights": [0.5, float("inf")],
    "note": None,
}
SHOWN = {
    "id": 7,
    "price": "1.50",
    "at": "2026-01-31T12:00:00.000005+00:00",
    "day": "2026-01-31",
    "raw": {"base64": "/wA="},
    "weights": [0.5, "Infinity"],
    "note": None,
}


class Shell:
    """The command line with a cluster and a registry of its own."""

    def __init__(self, cluster: EmbeddedCluster, registry: EmbeddedRegistry, capsys: Any, patch: Any) -> None:
        self._capsys, self._patch = capsys, patch
        self.servers, self.url = cluster.bootstrap_servers, registry.url
        self.client = SchemaRegistryClient({"url": registry.url})

    def __call__(self, *arguments: str, stdin: bytes = b"", code: int = 0, told: str | None = None) -> str:
        """Run a command and return its output, or its errors if *code* is not 0 (*told*: ``out`` or ``err``)."""
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capsys.readouterr()
        assert run([*arguments, "--bootstrap-server", self.servers]) == code
        printed = self._capsys.readouterr()
        return str(getattr(printed, told or ("err" if code else "out")))

    def consume(self, *arguments: str) -> list[Any]:
        return [json.loads(line)["value"] for line in self("consume", TOPIC, *arguments).splitlines()]

    def differences(self, file: Path, *arguments: str, code: int = 0) -> tuple[int, int]:
        """Return how many records the topic lacks, and how many it has in addition, compared with *file*."""
        found = json.loads(self("verify", TOPIC, "--against", str(file), "--json", *arguments, code=code, told="out"))
        return found["missing"], found["extra"]

    def send(self, *values: bytes | None) -> None:
        with KafkaProducer({"bootstrap.servers": self.servers}) as producer:
            for value in values:
                producer.send(ProducerRecord(TOPIC, value))


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with EmbeddedCluster(nodes=1) as cluster, EmbeddedRegistry() as registry:
        cluster.create_topic(TOPIC, partitions=1)
        yield Shell(cluster, registry, capsys, monkeypatch)


@pytest.mark.behaviour("Schema registry", "consume prints the Avro of other clients, and produce writes what they read")
def test_avro_of_other_clients_is_printed_and_written(shell: Shell, tmp_path: Path) -> None:
    theirs = AvroSerializer(shell.client, SCHEMA)(ORDER, CONTEXT)
    shell.send(theirs, None)
    assert shell.consume("--format", "avro", "--registry", shell.url) == [SHOWN, None]
    line = json.dumps({"key": "k", "value": SHOWN}).encode()
    shell("produce", TOPIC, "--format", "avro", "--registry", shell.url, stdin=line)
    (tmp_path / "order.avsc").write_text(SCHEMA)
    given = ["--value-schema", str(tmp_path / "order.avsc"), "-X", f"schema.registry.url={shell.url}"]
    less = {name: value for name, value in SHOWN.items() if name != "note"}
    shell("produce", TOPIC, "--format", "avro", *given, stdin=json.dumps({"value": less}).encode())
    _, _, latest, registered = (each.value for each in read_topic(shell.servers, TOPIC))
    assert latest == registered == theirs
    assert AvroDeserializer(shell.client)(latest, CONTEXT) == ORDER


ORDERS = """
syntax = "proto3";
package shop;
message Key { int64 id = 1; }
message Order {
  message Line { string sku = 1; }
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  bytes raw = 4;
  double weight = 5;
}
"""


def protobuf_class(name: str) -> Any:
    return message_factory.GetMessageClass(pool_of(ORDERS).FindMessageTypeByName(name))


@pytest.mark.behaviour("Schema registry", "consume prints the Protobuf of other clients; produce writes what they read")
def test_protobuf_of_other_clients_is_printed_and_written(shell: Shell, tmp_path: Path) -> None:
    kind, line = protobuf_class("shop.Order"), protobuf_class("shop.Order.Line")
    order = kind(id=7, note="ü", lines=[line(sku="a")], raw=b"\xff", weight=float("inf"))
    theirs = ProtobufSerializer(kind, shell.client)(order, CONTEXT)
    nested = ProtobufSerializer(line, shell.client)(line(sku="b"), CONTEXT)
    empty = ProtobufSerializer(kind, shell.client)(kind(), CONTEXT)
    shell.send(theirs, None, nested, empty)
    shown = {"id": "7", "note": "ü", "lines": [{"sku": "a"}], "raw": "/w==", "weight": "Infinity"}
    asked = ["--format", "protobuf", "--registry", shell.url]
    defaults = {"id": "0", "lines": [], "raw": "", "weight": 0.0}
    assert shell.consume(*asked) == [shown, None, {"sku": "b"}, defaults]
    (tmp_path / "lines.jsonl").write_text(shell("consume", TOPIC, *asked))
    assert shell.differences(tmp_path / "lines.jsonl", *asked) == (0, 0)
    of_order = ["--value-message", "Order"]
    shell("produce", TOPIC, *asked, *of_order, stdin=json.dumps({"key": "k", "value": shown}).encode())
    (tmp_path / "orders.proto").write_text(ORDERS)
    given = ["--value-schema", str(tmp_path / "orders.proto"), "--value-message", "shop.Order.Line"]
    shell("produce", TOPIC, *asked, *given, stdin=b'{"value": {"sku": "b"}}')
    *_, latest, registered = (each.value for each in read_topic(shell.servers, TOPIC))
    assert latest == theirs
    assert registered == nested
    assert ProtobufDeserializer(kind, {}, shell.client)(latest, CONTEXT) == order
    told = shell("produce", TOPIC, *asked, *of_order, stdin=b'{"value": {"id": "x"}}\n{"value": {"di": 1}}', code=1)
    assert "line 1: field value: " in told
    assert 'has no field named "di"' in told


def test_what_is_no_protobuf_names_the_record(shell: Shell) -> None:
    schema_id = shell.client.register_schema("s", Schema(ORDERS, "PROTOBUF"))
    header = b"\0" + schema_id.to_bytes(4, "big")
    for payload, expected in (
        (b"plain", "it was written without a schema registry"),
        (header, "the payload has no position of a message behind the id of its schema"),
        (header + b"\x02\x08", f"of schema {schema_id}: it is of a message that the schema does not have: (4,)"),
        (header + b"\x00\xff", f"orders-0 at offset 3: the value is not valid Protobuf of schema {schema_id}"),
    ):
        shell.send(payload)
        offset = len(read_topic(shell.servers, TOPIC)) - 1
        told = shell("consume", TOPIC, "--format", "protobuf", "--registry", shell.url, "--offset", str(offset), code=3)
        assert expected in told
    assert "set --registry URL" in shell("consume", TOPIC, "--format", "protobuf", code=2)


@pytest.mark.behaviour("Schema registry", "produce writes Avro keys, by a schema of their own")
def test_avro_keys_are_written_by_their_own_schema(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text('{"type": "record", "name": "Id", "fields": [{"name": "id", "type": "long"}]}')
    avro = ["produce", TOPIC, "--key-format", "avro", "--registry", shell.url]
    shell(*avro, "--key-schema", str(tmp_path / "key.avsc"), stdin=b'{"key": {"id": 7}, "value": "plain"}')
    shell(*avro, stdin=b'{"key": {"id": 7}, "value": null}\n{"key": null, "value": "no key"}')
    first, second, third = read_topic(shell.servers, TOPIC)
    assert (first.key, first.value, second.value, third.key) == (second.key, b"plain", None, None)
    assert AvroDeserializer(shell.client)(first.key, SerializationContext(TOPIC, MessageField.KEY)) == {"id": 7}
    assert shell.client.get_subjects() == [f"{TOPIC}-key"]
    assert "line 1: field key.no: the schema has no such field" in shell(
        *avro, stdin=b'{"key": {"no": 7}, "value": "v"}', code=1
    )
    (tmp_path / "key.proto").write_text(ORDERS)
    protobuf = ["--key-format", "protobuf", "--key-schema", str(tmp_path / "key.proto"), "--key-message", "Key"]
    shell.client.set_compatibility(f"{TOPIC}-key", "NONE")
    shell("produce", TOPIC, *protobuf, "--registry", shell.url, stdin=b'{"key": {"id": "7"}, "value": "v"}')
    key = read_topic(shell.servers, TOPIC)[-1].key
    assert key == ProtobufSerializer(protobuf_class("shop.Key"), shell.client)(
        protobuf_class("shop.Key")(id=7), SerializationContext(TOPIC, MessageField.KEY)
    )


_ORDER: dict[str, Any] = json.loads(SCHEMA)
REORDERED = json.dumps({**_ORDER, "doc": "again", "fields": _ORDER["fields"][::-1]})


def avro(shell: Shell, schema: str, ids: range) -> list[bytes]:
    """Return the payloads of orders, with the id of *schema*."""
    serialize = AvroSerializer(shell.client, schema)
    return [serialize({**ORDER, "id": each}, CONTEXT) or b"" for each in ids]


@pytest.mark.behaviour("kafkalite verify", "Decoded values are equal whatever the ids of schemas and order of fields")
def test_verify_compares_what_avro_means(shell: Shell, tmp_path: Path) -> None:
    shell.client.set_compatibility(f"{TOPIC}-value", "NONE")
    shell.send(*avro(shell, SCHEMA, range(3)), None)
    others = [*avro(shell, REORDERED, range(3)), None]
    payloads, structs, lines = (tmp_path / name for name in ("payloads.parquet", "structs.parquet", "lines.jsonl"))
    pq.write_table(pa.table({"value": pa.array(others, pa.binary())}), payloads)
    pq.write_table(pa.table({"value": pa.array([{**ORDER, "id": each} for each in range(3)] + [None])}), structs)
    typed = ["--format", "avro", "--registry", shell.url]
    lines.write_text(shell("consume", TOPIC, *typed))
    assert [shell.differences(file, *typed) for file in (payloads, structs, lines)] == [(0, 0)] * 3
    assert shell.differences(payloads, code=1) == (3, 3)
    shell.send(*avro(shell, SCHEMA, range(7, 8)))
    assert shell.differences(payloads, *typed, code=1) == (0, 1)
    shell.send(b"plain")
    assert f"{TOPIC}-0 at offset 5: the payload does not begin with" in shell(
        "verify", TOPIC, "--against", str(payloads), *typed, code=1
    )
    pq.write_table(pa.table({"value": pa.array([others[0], b"plain"])}), payloads)
    assert "payloads.parquet, row 1 (from 0): the payload does not begin" in shell(
        "verify", TOPIC, "--against", str(payloads), *typed, code=1
    )


def test_verify_compares_keys_and_json_by_meaning(shell: Shell, tmp_path: Path) -> None:
    theirs = JSONSerializer('{"title": "T", "type": "object"}', shell.client)({"b": 1.0, "a": {"c": None}}, CONTEXT)
    with KafkaProducer({"bootstrap.servers": shell.servers}) as producer:
        producer.send(ProducerRecord(TOPIC, theirs, key=b'{"id": 1, "at": "2026-01-31T13:00:00.50+01:00"}'))
    file = tmp_path / "rows.jsonl"
    row = {"key": {"at": "2026-01-31T12:00:00.5Z", "id": 1}, "value": '{"a": {}, "b": 1}'}
    file.write_text(json.dumps(row))
    both = ["--format", "json", "--key-format", "json"]
    assert shell.differences(file, *both) == (0, 0)
    file.write_text(json.dumps({**row, "key": {"at": "2026-01-31T12:00:00.5Z", "id": 2}}))
    assert shell.differences(file, *both, code=1) == (1, 1)
    assert "expected text, null or" in shell("verify", TOPIC, "--against", str(file), "--format", "json", code=1)


def test_json_is_printed_with_all_its_digits(shell: Shell) -> None:
    theirs = JSONSerializer('{"title": "T", "type": "object"}', shell.client)({"a": [1, "ü"]}, CONTEXT)
    exact = b'{"a":\n0.12345678901234567890123}'
    shell.send(theirs, exact, None)
    assert shell.consume("--format", "json") == [{"a": [1, "ü"]}, {"a": 0.12345678901234568}, None]
    assert "0.12345678901234567890123" in shell("consume", TOPIC, "--format", "json")


def test_what_is_no_avro_names_the_record(shell: Shell) -> None:
    avro = ["consume", TOPIC, "--format", "avro", "--registry", shell.url]
    schema_id = shell.client.register_schema("s", Schema(SCHEMA, "AVRO"))
    for value, expected in (
        (b"plain", "orders-0 at offset 0: the payload does not begin with 0 and the id of a schema"),
        (b"\0\0\0\0\x09x", "Schema 9 not found"),
        (
            b"\0" + schema_id.to_bytes(4, "big") + b"\x02",
            f"at offset 2: the value is not valid Avro of schema {schema_id}",
        ),
    ):
        shell.send(value)
        assert expected in shell(*avro, "--offset", str(len(read_topic(shell.servers, TOPIC)) - 1), code=3)
    shell.send((AvroSerializer(shell.client, SCHEMA)(ORDER, CONTEXT) or b"") + b"!")
    told = shell(*avro, "--offset", "3", code=3)
    assert f"at offset 3: the value is not valid Avro of schema {schema_id}: bytes follow it" in told
    assert "orders-0 at offset 0: the value is not valid JSON" in shell("consume", TOPIC, "--format", "json", code=3)
    assert "set --registry URL" in shell("consume", TOPIC, "--format", "avro", code=2)


def test_lines_that_do_not_fit_are_reported_with_the_path(shell: Shell) -> None:
    AvroSerializer(shell.client, SCHEMA)(ORDER, CONTEXT)
    wrong = [
        {**SHOWN, "price": "much"},
        {**SHOWN, "at": "noon"},
        {**SHOWN, "weights": ["x"]},
        {**SHOWN, "other": 1},
        {**SHOWN, "id": "7"},
    ]
    stdin = b"".join(json.dumps({"value": each}).encode() + b"\n" for each in wrong)
    told = shell("produce", TOPIC, "--format", "avro", "--registry", shell.url, stdin=stdin, code=1)
    for expected in (
        "line 1: field value.price: 'much' is not valid for bytes (decimal",
        "line 2: field value.at: 'noon' is not valid for long (timestamp-micros)",
        "line 3: field value.weights[]: 'x' is not valid for double",
        "line 4: field value.other: the schema has no such field in its record Order",
        "line 5: field value: Order.id is <7> of type <class 'str'> expected",
    ):
        assert expected in told
    assert read_topic(shell.servers, TOPIC) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "avro"], "--format needs --registry"),
        (["--key-format", "avro"], "--key-format needs --registry"),
        (["--value-schema", __file__], "--value-schema needs --format and --registry"),
        (["--key-schema", __file__], "--key-schema needs --key-format and --registry"),
        (["--value-message", "M", "--format", "avro"], "--value-message needs --format protobuf"),
        (["--registry", "http://127.0.0.1:1"], "--registry needs --format or --key-format"),
        (["--raw", "--key-format", "avro", "--registry", "http://127.0.0.1:1"], "--raw excludes"),
    ],
)
def test_options_that_do_not_fit_are_refused(shell: Shell, arguments: list[str], said: str) -> None:
    assert said in shell("produce", TOPIC, *arguments, code=2)


@pytest.mark.parametrize(("form", "package"), [("avro", "fastavro"), ("protobuf", "grpc_tools")])
def test_missing_package_is_named(form: str, package: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    command = "produce" if form == "avro" else "consume"
    told = shell(command, TOPIC, "--format", form, "--registry", shell.url, code=2)
    assert f"pip install 'kafkalite[{form}]'" in told
