"""The limits of SECURITY.md: an input at the limit is accepted, and one above it is rejected with that number."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.log.segment import SEARCHED_RECORDS
from kafka_sink.broker.network.listener_security import LOGIN_BYTES, LOGIN_FREE_BYTES
from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.config import parse
from kafka_sink.common.errors import CorruptRecordError, ErrorCode, RegistryError
from kafka_sink.consumer.log_reader import PeekLimits
from kafka_sink.formats.avro.matching import writer_for
from kafka_sink.formats.avro.parsing import parse_schema
from kafka_sink.formats.errors import FormatError
from kafka_sink.http.exchange import MAX_ANSWER_BYTES
from kafka_sink.http.local_server import REQUEST_MS
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.codec import LEAST_BYTES, MOST_TIMES
from kafka_sink.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafka_sink.records.reader import DEFAULT_MAX_DECOMPRESSED_BYTES, read_batches
from kafka_sink.reports.writes import read_writes
from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry
from kafka_sink.ui.pages import MOST_HEADERS
from kafka_sink.ui.shown import SHOWN_CHARACTERS
from tests.fakes.broker_node import BrokerNode
from tests.hostile.batches import batch_of, record_of
from tests.hostile.servers import EvilHttp, registry_at
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("Schema registry", "What is read is bounded: no schema, record or answer does harm")

PAGE = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())


def record(*types: Any) -> Any:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{at}", "type": each} for at, each in enumerate(types)],
    }


def of_named(fields: int) -> str:
    """Return a schema whose rows have *fields* values: a record of 100 that many fields repeat by name, and ints."""
    hundred = {"type": "record", "name": "H", "fields": [{"name": f"f{at}", "type": "int"} for at in range(99)]}
    repeated, ints = divmod(fields - 1, 100)
    return json.dumps(record(hundred, *["H"] * (repeated - 1), *["int"] * ints))


def nested(levels: int) -> str:
    return '{"type": "array", "items": ' * (levels - 1) + '"int"' + "}" * (levels - 1)


#: By the text of SECURITY.md: the limit, a function from a size to a schema, and the error of a schema above the limit.
SCHEMAS: dict[str, tuple[int, Callable[[int], str], str]] = {
    "1 MiB of text": (1 << 20, '"int"'.ljust, "more than 1048576"),
    "100 levels": (100, nested, "more than 100 levels"),
    "100,000 values of a row after all named types are expanded": (100_000, of_named, "more than 100000 values"),
    "a `fixed` of 1 MiB": (1 << 20, lambda size: json.dumps({"type": "fixed", "name": "F", "size": size}), "1048576"),
    "a precision of 1,000": (
        1_000,
        lambda digits: json.dumps({"type": "bytes", "logicalType": "decimal", "precision": digits}),
        "more than 1000",
    ),
}


@with_each("said", SCHEMAS)
def test_a_schema_has_as_much_as_the_page_says(said: str) -> None:
    assert said in PAGE
    most, schema, problem = SCHEMAS[said]
    parse_schema(schema(most))
    with pytest.raises(FormatError, match=problem):
        parse_schema(schema(most + 1))


def of_default(kind: Any, default: Any) -> str:
    fields = [{"name": "a", "type": "int"}, {"name": "missing", "type": kind, "default": default}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def of_values(count: int) -> str:
    """Return a default of *count* values: a record with one field less."""
    names = [f"f{at}" for at in range(count - 1)]
    kind = {"type": "record", "name": "D", "fields": [{"name": name, "type": "int"} for name in names]}
    return of_default(kind, dict.fromkeys(names, 0))


@pytest.mark.parametrize(
    ("said", "most", "schema", "problem"),
    [
        ("has 5,000 values and 64 KiB", 5_000, of_values, "more than 5000 values"),
        # The limit includes the three bytes of the length.
        ("64 KiB", (1 << 16) - 3, lambda size: of_default("string", "x" * size), "65537 bytes, more than 65536"),
    ],
)
def test_a_default_has_as_much_as_the_page_says(
    said: str, most: int, schema: Callable[[int], str], problem: str
) -> None:
    assert said in PAGE
    written = pa.struct([("a", pa.int32())])
    writer_for(parse_schema(schema(most)), written, "value")
    with pytest.raises(FormatError, match=problem):
        writer_for(parse_schema(schema(most + 1)), written, "value")


def test_a_record_has_as_many_headers_as_the_page_says() -> None:
    assert "a record has 131,072 headers at most" in PAGE
    for count in (131_072, 131_073):
        data = batch_of([record_of(0, headers=encode_varint(count) + b"\2h\1" * count)])
        (batch,) = read_batches(data)
        if count == 131_072:
            (found,) = batch.records()
            assert len(found.headers) == count
        else:
            with pytest.raises(CorruptRecordError, match="131073 headers, more than 131072"):
                list(batch.records())


def test_a_text_of_a_registry_is_as_long_as_the_page_says() -> None:
    assert "Texts of a registry are cut to 1,500 characters" in PAGE
    body = json.dumps({"message": "m" * 5_000}).encode()

    def answer(connection: socket.socket, head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 422 No\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with EvilHttp(answer) as server, pytest.raises(RegistryError) as refused:
        registry_at(server.port).latest("s")
    assert str(refused.value).count("m" * 1_500) == 1 and "m" * 1_501 not in str(refused.value)


def test_a_request_creates_what_the_page_says() -> None:
    assert "creates 10,000 partitions at most" in PAGE
    node = BrokerNode()
    for partitions, code in ((10_001, ErrorCode.POLICY_VIOLATION), (10_000, ErrorCode.NONE)):
        topics = [CreatableTopic("a", partitions - 5_000, 1), CreatableTopic("b", 5_000, 1)]
        answer = node.call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics, validate_only=True))
        assert isinstance(answer, CreateTopicsResponse)
        assert [topic.error_code for topic in answer.topics] == [code, code]


def test_bodies_and_reports_are_as_large_as_the_page_says(tmp_path: Path) -> None:
    assert "its body 4 MiB" in PAGE and "a line of 16 MiB, numbers of 64 bits, an error of 2,000 characters" in PAGE
    with EmbeddedRegistry() as registry:
        for size, status in (((4 << 20) + 1, 413), (4 << 20, 400)):
            asked = http.client.HTTPConnection("127.0.0.1", registry.port, timeout=60)
            with contextlib.closing(asked), contextlib.suppress(BrokenPipeError, ConnectionResetError):
                asked.putrequest("POST", "/subjects/s/versions")
                asked.putheader("Content-Length", str(size))
                asked.endheaders()
                if status == 400:
                    asked.send(b" " * size)
                assert asked.getresponse().status == status
    file = tmp_path / "r.jsonl"
    figures = dict.fromkeys(("rows", "bytes", "wire_bytes", "tasks", "elapsed_ms", "ack_p50_ms", "ack_p99_ms"), 1)
    line = {**figures, "partitions": {}, "error": "e" * 5_000}
    for rows, size, problem in ((2**63 - 1, 16 << 20, ""), (1, (16 << 20) + 1, "line 1 is"), (2**63, 9_000, "line 1")):
        file.write_text(json.dumps(line | {"rows": rows}).ljust(size - 1) + "\n")
        if problem:
            with pytest.raises(ValueError, match=problem):
                read_writes(file, 1)
        else:
            _, (write,) = read_writes(file, 1)
            assert (write.rows, write.error) == (rows, "e" * 2_000)


#: Numbers of the page that tests replace by smaller ones or take from the code.
NUMBERS: dict[str, tuple[object, object]] = {
    "up to 256 MiB (`max.decompressed.bytes`)": (DEFAULT_MAX_DECOMPRESSED_BYTES, 256 << 20),
    "compares a million records of a batch": (SEARCHED_RECORDS, 1 << 20),
    "reads records that take 16 MiB in memory": (PeekLimits().max_bytes, 16 << 20),
    "2,000 characters of a value and 20 headers of a record": ((SHOWN_CHARACTERS, MOST_HEADERS), (2000, 20)),
    "4 MiB and a deadline, for any announced size": (MAX_ANSWER_BYTES, 4 << 20),
    "takes eight times its size, or 64 MiB, of memory": ((MOST_TIMES, LEAST_BYTES), (8, 64 << 20)),
    "10 s (`socket.connection.setup.timeout.ms`)": (parse(BrokerConfig, {}).socket_connection_setup_timeout_ms, 10000),
    "share 16 MiB of memory, of which each always gets 16 KiB": ((LOGIN_BYTES, LOGIN_FREE_BYTES), (16 << 20, 16 << 10)),
    "A request has 10 s": (REQUEST_MS, 10000),
}


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    for said, (in_code, on_page) in NUMBERS.items():
        assert said in PAGE and in_code == on_page, said
