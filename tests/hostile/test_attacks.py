"""A small, fixed part of the standing attack (``scripts/test.sh --fuzz``), and what it found before it was mended."""

from __future__ import annotations

import json
import socket
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from google.protobuf import any_pb2

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.cli.values.typed_values import shown, shown_by_schema
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.requests.outcomes import only_one
from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.errors import CorruptRecordError, ProtocolError, SerializationError
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.log_reader import SHOW_DAMAGED, LogReader, PeekLimits, newest_records
from kafka_sink.formats.schema_text import MOST_DEPTH
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.protocol.messages.group_admin import DescribedGroup
from kafka_sink.records.compression import CompressionType
from kafka_sink.ui.cluster_view import ClusterView, RecordSearch
from kafka_sink.ui.shown import ByteView
from tests.conftest import Figure
from tests.hostile import guarded, servers
from tests.hostile.batches import BASE_MS, DAMAGED, batch_of, record_of, store
from tests.hostile.fuzz import ATTACKS, attacked
from tests.hostile.records import PROTO, WIRE, OneSchema
from tests.hostile.servers import CHUNKED, SECRET, EvilHttp, asked, echo
from tests.support.kdc import requires_kerberos

pytestmark = pytest.mark.behaviour("Schema registry", "What is read is bounded: no schema, record or answer does harm")

#: Cases of each attack; those of properties are in tests/property.
CASES = {**dict.fromkeys(ATTACKS, 60), "HTTP answers": 20, "command lines": 30, "echoing registries": 20}
CASES |= {"answers of every API": 10, "guarded listeners": 40, "slow TLS": 8}
IN_PROPERTY = ("Avro columns", "Avro slices", "Avro nulls", "Protobuf columns", "Protobuf slices")

#: A record of everything that a schema can nest: an array, a map, a union and itself.
NESTED = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "u", "type": ["null", "R"]},
            {"name": "a", "type": {"type": "array", "items": "R"}},
            {"name": "m", "type": {"type": "map", "values": "R"}},
        ],
    }
)


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    with servers.OPEN:
        yield


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=requires_kerberos) if name == "Kerberos answers" else name
        for name in ATTACKS
        if name not in IN_PROPERTY
    ],
)
def test_an_attack_finds_nothing(name: str, figure: Figure) -> None:
    for case in range(CASES[name]):
        found = attacked(name, 1, case)
        if found is not None:
            raise found
    if name == "guarded listeners":
        figure("ms that a client waited meanwhile, at most", round(max(guarded.WAITS_MS), 1))


@pytest.mark.parametrize("groups", [[], [DescribedGroup(), DescribedGroup()]])
def test_an_answer_about_another_number_of_groups_is_refused(groups: list[DescribedGroup]) -> None:
    with pytest.raises(ProtocolError, match=f"answered about {len(groups)} things, and was asked about one"):
        only_one(groups)


def nested(levels: int) -> bytes:
    """A datum of NESTED, ending in the middle of its deepest level."""
    return (b"\2" * 3 + b"\0\2") * (levels // 4)


def test_consume_shows_the_records_around_a_hostile_one(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        hostile = WIRE + nested(800_000)
        with EvilHttp(_schema) as evil, KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for value in (WIRE + b"\0\0\0", hostile, WIRE + b"\2\0\0\0\0\0"):
                producer.send(ProducerRecord("t", value))
            producer.flush()
            common = ["--bootstrap-server", cluster.bootstrap_servers, "--format", "avro"]
            code = run(["consume", "t", *common, "--registry", f"http://127.0.0.1:{evil.port}"])
    out, err = capfdbinary.readouterr()
    before, between, after = map(json.loads, out.splitlines())
    assert code == 3
    assert before["value"] == {"u": None, "a": [], "m": {}}
    assert after["value"] == {"u": {"u": None, "a": [], "m": {}}, "a": [], "m": {}}
    assert between["value"] == {"hex": hostile.hex()}
    assert between["error"].startswith(
        "t-0 at offset 1: the value is not valid Avro of schema 1: it is nested more than"
    )
    assert b"t-0 at offset 1" in err


def _schema(connection: socket.socket, head: bytes) -> None:
    body = json.dumps({"schema": NESTED}).encode()
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_a_page_shows_a_hostile_record_in_hex_with_the_reason() -> None:
    view = ByteView(shown_by_schema(OneSchema(NESTED)))  # type: ignore[arg-type]
    found = view(WIRE + nested(1_000_000))
    assert found.text.startswith("00 00 00 00 01 02")
    assert f"nested more than {MOST_DEPTH} levels" in found.problem
    assert view(WIRE + b"\0\0\0").text == '{"u": null, "a": [], "m": {}}'


def test_items_without_bytes_are_not_counted_to_the_end() -> None:
    endless = WIRE + encode_varint(1 << 40) + b"\0"
    for items in ("null", '{"type": "record", "name": "E", "fields": []}', '{"type": "fixed", "name": "F", "size": 0}'):
        schema = f'{{"type": "array", "items": {items if items != "null" else json.dumps(items)}}}'
        with pytest.raises(SerializationError, match="too long as JSON to be shown"):
            shown("avro", "value", OneSchema(schema))(endless)  # type: ignore[arg-type]
        page = shown_by_schema(OneSchema(schema))  # type: ignore[arg-type]
        assert page(endless).startswith(("[null, null", "[{}, {}", '[{"base64": ""}'))


def test_messages_are_weighed_before_objects_are_made_of_them() -> None:
    show = shown("protobuf", "value", OneSchema(PROTO, "PROTOBUF"))  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="more than 200000 values"):
        show(WIRE + b"\0" + b"\x22\0" * 500_000)
    nested_any = b""
    for _ in range(MOST_DEPTH + 1):
        nested_any = any_pb2.Any(type_url="x/M", value=b"\x4a" + encode_length(nested_any)).SerializeToString()
    with pytest.raises(SerializationError, match="nested more than"):
        show(WIRE + b"\0\x4a" + encode_length(nested_any))


def encode_length(data: bytes) -> bytes:
    size, found = len(data), b""
    while size > 0x7F:
        found, size = found + bytes([size & 0x7F | 0x80]), size >> 7
    return found + bytes([size]) + data


def look_up(cluster: EmbeddedCluster, topic: str, timestamp: int) -> int:
    with AdminClient(cluster.bootstrap_servers, {}) as admin:
        return admin.offsets([TopicPartition(topic, 0)], timestamp)[TopicPartition(topic, 0)]


@pytest.mark.behaviour("Log reader", "A damaged record is shown with the reason, and the next one follows")
def test_damaged_records_cost_themselves_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        let_in = {
            said: make for said, make in DAMAGED.items() if said not in ("beyond 64 bits", "longer than 10 bytes")
        }
        made = [make(number) for number, make in enumerate(let_in.values())]
        assert store(cluster.bootstrap_servers, "t", batch_of([*made, record_of(len(made), b"last")])) == 0
        assert run(["consume", "t", "--bootstrap-server", cluster.bootstrap_servers]) == 3
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for number, (line, said) in enumerate(zip(lines, let_in, strict=False)):
            assert line["value"] == {"hex": made[number][1:].hex()}
            assert (
                line["error"].startswith(f"t-0 at offset {number}: the record is damaged: ") and said in line["error"]
            )
        assert [line["offset"] for line in lines] == [*range(len(made) + 1)]
        assert lines[-1]["value"] == "last"
        view = ClusterView(cluster.bootstrap_servers, {}, 5_000)
        shown_there = [
            ByteView().of_page()(record.value, record.problem) for record in view.records("t", RecordSearch())
        ]
        view.close()
        assert [each.kind for each in shown_there] == ["text", *["damaged"] * len(made)][: len(shown_there)]
        with (
            pytest.raises(CorruptRecordError, match="offset 0"),
            LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader,
        ):
            list(reader.read("t"))


@pytest.mark.behaviour("Log reader", "A record costs what is shown of it, however many its batch announces")
def test_a_bomb_of_small_records_costs_what_is_shown(figure: Figure) -> None:
    """Many records in some kB: one of them, the newest ones and a look by time take a few MiB."""
    count = 200_000
    bomb = batch_of([record_of(number, b"") for number in range(count)], CompressionType.ZSTD)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        assert store(cluster.bootstrap_servers, "t", bomb) == 0
        tracemalloc.start()
        with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
            assert [record.offset for record in reader.read("t", max_records=1, looking=SHOW_DAMAGED)] == [0]
        newest = newest_records({"bootstrap.servers": cluster.bootstrap_servers}, "t", 50, PeekLimits())
        assert [record.offset for record in newest] == [*range(count - 50, count)]
        assert look_up(cluster, "t", BASE_MS) == 0
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    figure(f"MB for a look at {count:,} records in {len(bomb):,} bytes", round(most / 1e6))
    assert most < 40 << 20


@pytest.mark.parametrize("size", [b"-1", b"-5", b"1e9", b"ffffffffffffffffff", b"7fffffff;x=y", b" +25800000"])
def test_an_answer_is_bounded_whatever_its_chunks_say(size: bytes, figure: Figure) -> None:
    taken = [0]

    def answer(connection: socket.socket, head: bytes) -> None:
        connection.sendall(CHUNKED + size + b"\r\n")
        for _ in range(600):
            connection.sendall(b"x" * (1 << 20))
            taken[0] += 1

    with EvilHttp(answer) as server:
        for said in asked(server.port, 4_000):
            assert "the answer is larger than" in said or "the answer is not valid HTTP" in said
        time.sleep(0.1)
    figure("MB of 1,200 that were taken", taken[0])
    assert taken[0] < 40


def test_secrets_that_servers_repeat_are_hidden() -> None:
    with EvilHttp(echo) as server:
        for said in asked(server.port):
            assert "[hidden]" in said
            for secret in (SECRET, "S3cr3t", "UzNjcjN0", "YWxpY2U6UzNj", "Y2lkOlMzY3Iz"):
                assert secret not in said
