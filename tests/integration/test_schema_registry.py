"""The client of a schema registry against the one in memory, against confluent-kafka's client, and against servers that
fail, lie and dawdle."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

from kafka_sink.common.clock import ExponentialBackoff
from kafka_sink.common.errors import (
    ConfigError,
    IncompatibleSchemaError,
    RegistryError,
    RegistryUnavailableError,
    SchemaNotFoundError,
)
from kafka_sink.common.tls_config import SslConfig
from kafka_sink.http.exchange import MAX_ANSWER_BYTES
from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.testing import EmbeddedRegistry
from kafka_sink.testing.registry import schema_store
from tests.support.certificates import Authority
from tests.support.token_server import CLIENT, SECRET, Issuer, token_server

A = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
B = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"b","type":"int"}]}'
C = A.replace("]}", ',{"name":"b","type":"int","default":0}]}')
LIMIT_MS = 400


def client(*urls: str, tls: SslConfig | None = None, timeout_ms: int = 20_000, **config: Any) -> RegistryClient:
    backoff = ExponentialBackoff(initial_ms=1, max_ms=1)
    return RegistryClient(
        RegistryConfig(urls=urls, **config), tls or SslConfig(), timeout_ms=timeout_ms, backoff=backoff
    )


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as running:
        yield running


@pytest.mark.behaviour("Schema registry", "confluent-kafka's client and ours see the same schemas and ids in memory")
def test_confluents_client_and_ours_see_the_same(registry: EmbeddedRegistry) -> None:
    ours, theirs = client(registry.url), SchemaRegistryClient({"url": registry.url})
    first = ours.register("a/b-value", A)
    assert theirs.register_schema("a/b-value", Schema(A, "AVRO")) == first
    assert theirs.get_schema(first).schema_str == A
    second = theirs.register_schema("other", Schema(B, "AVRO"))
    assert ours.id_of("other", B) == second != first
    assert ours.latest("other").schema.text == B
    assert theirs.get_subjects() == ["a/b-value", "other"]
    assert theirs.get_latest_version("other").version == 1
    assert not theirs.test_compatibility("a/b-value", Schema(B, "AVRO"))
    theirs.set_compatibility("a/b-value", level="NONE")
    assert ours.register("a/b-value", B) == second
    assert theirs.get_versions("a/b-value") == [1, 2]


def test_refusals_are_those_of_confluents_client(registry: EmbeddedRegistry) -> None:
    ours, theirs = client(registry.url), SchemaRegistryClient({"url": registry.url})
    ours.register("s", A)
    with pytest.raises(IncompatibleSchemaError, match="READER_FIELD_MISSING_DEFAULT_VALUE: b at path '/fields/1'"):
        ours.register("s", B)
    with pytest.raises(SchemaNotFoundError, match="Schema not found"):
        ours.id_of("s", B)
    with pytest.raises(SchemaNotFoundError, match="Subject 'none' not found"):
        ours.latest("none")
    with pytest.raises(SchemaRegistryError) as caught:
        theirs.register_schema("s", Schema(B, "AVRO"))
    assert caught.value.http_status_code == 409


@pytest.mark.behaviour("Schema registry", "confluent-kafka's client deletes, configures and looks up in memory")
def test_all_that_confluents_client_asks(registry: EmbeddedRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    first, second = (client.register_schema("s", Schema(each, "AVRO")) for each in (A, C))
    assert [client.get_subjects_by_schema_id(each) for each in (first, second)] == [["s"], ["s"]]
    assert [(each.subject, each.version) for each in client.get_schema_versions(second)] == [("s", 2)]
    guid = client.register_schema_full_response("s", Schema(A, "AVRO")).guid
    assert guid is not None and client.get_schema_by_guid(guid).schema_str == A
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_contexts() == ["."]
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_config("s")
    assert (caught.value.http_status_code, caught.value.error_code) == (404, 40408)
    client.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_compatibility("s") == "FULL"
    assert client.delete_config("s").compatibility_level == "FULL"
    assert not client.test_compatibility_all_versions("s", Schema('"int"', "AVRO"))
    assert client.update_mode("s", "READONLY") == client.get_mode("s") == client.delete_mode("s") == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert client.delete_version("s", 1) == 1
    assert (client.get_versions("s"), client.get_versions("s", deleted=True)) == ([2], [1, 2])
    assert client.delete_subject("s", permanent=False) == [2]
    assert client.get_subjects(deleted=True) == ["s"]
    assert client.delete_subject("s", permanent=True) == [1, 2]
    contract = Metadata(tags=None, properties=MetadataProperties({"owner": "x"}), sensitive=None)
    rule = Rule("r", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "message.a > 0", None, "ERROR", False)
    client.register_schema("t", Schema(A, "AVRO", metadata=contract, rule_set=RuleSet(None, [rule])))
    latest = SchemaRegistryClient({"url": registry.url}).get_latest_version("t").schema
    assert latest.metadata is not None and latest.metadata.properties == contract.properties
    assert latest.rule_set is not None and latest.rule_set.domain_rules == [rule]
    client.register_schema("t", Schema(C, "AVRO", metadata=Metadata(None, MetadataProperties({"owner": "y"}), None)))
    assert client.get_latest_with_metadata("t", {"owner": "x"}).version == 1
    assert client.get_latest_with_metadata("t", {}).version == 2
    for subject, code in (("t", 40403), ("nobody", 40401)):
        with pytest.raises(SchemaRegistryError) as caught:
            client.get_latest_with_metadata(subject, {"owner": "z"})
        assert caught.value.error_code == code


@pytest.mark.behaviour("Schema registry", "A registry with a data directory has its schemas and ids after a restart")
def test_ids_go_on_after_a_restart(tmp_path: Path) -> None:
    with EmbeddedRegistry(data_dir=tmp_path) as registry:
        first = client(registry.url).register("s", A)
        with pytest.raises(OSError, match="is in use by another schema registry"):
            EmbeddedRegistry(data_dir=tmp_path)
    with EmbeddedRegistry(data_dir=tmp_path) as registry:
        asked = client(registry.url)
        assert asked.register("other", C) == first + 1
        assert asked.register("s", A) == first


def received(peer: socket.socket) -> bytes:
    found = peer.recv(65_536)
    if not found:
        raise ConnectionError("the client is gone")
    return found


class Scripted:
    """A server that sends *answers*, one a connection, and then the last one again."""

    def __init__(
        self, *answers: bytes, drip: bool = False, silent: bool = False, context: ssl.SSLContext | None = None
    ) -> None:
        self._answers, self._drip, self._silent, self._context = answers, drip, silent, context
        #: Bytes of each answer that the system took.
        self.sent: list[int] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.requests: list[bytes] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http{'' if self._context is None else 's'}://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        # A client that has had enough goes away, and at the end the socket is closed.
        while not self._closing.is_set():
            with contextlib.suppress(OSError):
                plain, _ = self._socket.accept()
                with plain if self._context is None else self._context.wrap_socket(plain, server_side=True) as peer:
                    self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        self.requests.append(self._request(peer))
        found = self._answers[min(len(self.requests), len(self._answers)) - 1]
        self.sent.append(0)
        if self._silent:
            self._closing.wait(10 * LIMIT_MS / 1000)
        step = 1 if self._drip else 65_536
        for at in range(0, len(found), step):
            peer.sendall(found[at : at + step])
            self.sent[-1] = at + step
            if self._drip and self._closing.wait(0.02):
                return

    @staticmethod
    def _request(peer: socket.socket) -> bytes:
        """All of it: what is left unread when the connection is closed would reset it."""
        found = b""
        while b"\r\n\r\n" not in found:
            found += received(peer)
        size = re.search(rb"Content-Length: (\d+)", found)
        missing = int(size[1]) - len(found.partition(b"\r\n\r\n")[2]) if size else 0
        while missing > 0:
            found += (more := received(peer))
            missing -= len(more)
        return found

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


OK = http(200, b'{"id": 7}')


@pytest.mark.behaviour("Schema registry", "A registry that is down, slow, hostile or none at all is named, in bounds")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http(200, b'{"id": "7"}'), "answered with the id of type str"),
        (http(200, b"[7]"), "answers without a JSON object: it is not a schema registry"),
        (http(200, b"[" * 100_000), "answers without a JSON object"),
        (http(200, b"<html>"), "answers without a JSON object"),
        (http(200, b'{"id": 7, "x": "' + b"x" * MAX_ANSWER_BYTES), f"larger than {MAX_ANSWER_BYTES} bytes"),
        (b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n" + b"fffff\r\n" + b"x" * 2**20, "is not valid HTTP"),
        (http(302, b"", "Location: http://elsewhere/"), "redirects to 'http://elsewhere/', which is not followed"),
        (http(401, b'{"message": "who?"}'), "refuses the credentials (HTTP 401: who?)"),
        (http(422, b'{"message": "a\\nb"}'), "refuses the request (HTTP 422: a b)"),
        (http(500, b'{"message": "busy"}'), "cannot be used (http://127.0.0.1"),
        (b"SSH-2.0\r\n\r\n", "is not valid HTTP"),
        (b"", "closed connection without response"),
        (b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 1000, "is not valid HTTP"),
    ],
)
def test_answers_of_hostile_servers_are_refused(answer: bytes, expected: str) -> None:
    with Scripted(answer) as server, pytest.raises(RegistryError) as caught:
        client(server.url).register("s", A)
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 3_000
    # Only these say something about other requests.
    is_down = expected.startswith(("cannot be used", "closed connection"))
    assert isinstance(caught.value, RegistryUnavailableError) is is_down


def test_a_server_that_drips_is_left_after_the_limit() -> None:
    """Each byte comes in time, the answer does not."""
    with Scripted(b"HTTP/1.1 200 X\r\n" + b"A: b\r\n" * 10_000, drip=True) as server:
        with pytest.raises(RegistryError, match=f"no answer within {LIMIT_MS} ms"):
            client(server.url, timeout_ms=LIMIT_MS).register("s", A)
        assert len(server.requests) == 3


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    endless = b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n" + b"x" * (16 * MAX_ANSWER_BYTES)
    with Scripted(endless) as server, pytest.raises(RegistryError, match=f"larger than {MAX_ANSWER_BYTES} bytes"):
        client(server.url).register("s", A)
    # The rest of what was sent lies in the buffers of the system.
    assert max(server.sent) < 12 * MAX_ANSWER_BYTES


def test_a_silent_server_is_left_after_the_limit() -> None:
    with Scripted(b"", silent=True) as server, pytest.raises(RegistryError, match=f"no answer within {LIMIT_MS} ms"):
        client(server.url, timeout_ms=LIMIT_MS).register("s", A)


def test_the_next_address_is_asked_when_one_is_down_or_busy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        down = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with Scripted(http(503, b"")) as busy, Scripted(OK) as healthy:
        assert client(down, busy.url, healthy.url).register("s", A) == 7
    assert len(healthy.requests) == 1


def test_a_busy_server_is_asked_again() -> None:
    with Scripted(http(503, b""), http(429, b""), OK) as server:
        assert client(server.url).register("s", A) == 7
    assert len(server.requests) == 3


@pytest.mark.behaviour("Schema registry", "Credentials reach only the registry, and appear in no error")
@pytest.mark.parametrize("source", ["address", "option", "reference", "token"])
def test_credentials_are_sent_and_never_shown(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER", "me:s3cr3t")
    config: dict[str, Any] = {
        "address": {},
        "option": {"credentials_source": "USER_INFO", "user_info": "me:s3cr3t"},
        "reference": {"credentials_source": "USER_INFO", "user_info": "${env:REGISTRY_USER}"},
        "token": {"bearer_token": "s3cr3t"},
    }[source]
    with Scripted(OK, http(500, b"")) as server:
        url = server.url.replace("//", "//me:s3cr3t@") if source == "address" else server.url
        asked = client(url, **config)
        assert asked.register("s", A) == 7
        with pytest.raises(RegistryError) as caught:
            asked.register("s", B)
    expected = b"Bearer s3cr3t" if source == "token" else b"Basic bWU6czNjcjN0"
    assert b"\r\nAuthorization: " + expected + b"\r\n" in server.requests[0]
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.behaviour("Schema registry", "Client credentials are exchanged for the registry's token, once")
def test_client_credentials_are_exchanged_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    with token_server(Issuer(None)) as idp, Scripted(OK) as server:
        config: dict[str, Any] = {
            "bearer_source": "OAUTHBEARER",
            "issuer_url": idp.url,
            "client_id": CLIENT,
            "client_secret": "${env:CLIENT_SECRET}",
            "scope": "registry",
            "logical_cluster": "lsrc-1",
        }
        for _ in range(2):
            assert client(server.url, **config).register("s", A) == 7
        assert len(idp.asked) == 1 and idp.asked[0].body["scope"] == ["registry"]
        assert re.search(rb"\r\nAuthorization: Bearer [\w.-]+\r\n", server.requests[1])
        assert b"\r\ntarget-sr-cluster: lsrc-1\r\n" in server.requests[1]
        monkeypatch.setenv("CLIENT_SECRET", "Wr0ng")
        with pytest.raises(RegistryError, match="HTTP 401: invalid_client") as caught:
            client(server.url, **config).register("s", A)
    assert "Wr0ng" not in str(caught.value)
    LOGINS.forget()


def test_another_servers_certificate_is_refused(tmp_path: Path) -> None:
    trusted, other = Authority(), Authority("another authority")
    for authority, name, works in (
        (trusted, "127.0.0.1", True),
        (trusted, "elsewhere", False),
        (other, "127.0.0.1", False),
    ):
        keystore = tmp_path / "server.pem"
        keystore.write_text(authority.issue(name).pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keystore)
        with Scripted(OK, context=context) as server:
            asked = client(server.url, tls=SslConfig(ssl_truststore_certificates=trusted.pem))
            if works:
                assert asked.register("s", A) == 7
            else:
                with pytest.raises(RegistryError, match=r"(?i)certificate"):
                    asked.register("s", A)
                assert server.requests == []


@pytest.mark.parametrize("url", ["http://", "http://host:99999", "https://me:s3cr3t@host:x"])
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"option schema\.registry\.url: the value is not an address") as caught:
        client(url)
    assert "s3cr3t" not in str(caught.value)


def test_type_that_is_null_is_avro() -> None:
    body = json.dumps(
        {"subject": "s", "id": 7, "version": 1, "schema": A, "schemaType": None, "references": None}
    ).encode()
    with Scripted(http(200, body)) as server:
        assert client(server.url).latest("s").schema.text == A


def test_schemas_that_cannot_be_used_are_refused() -> None:
    latest = {"subject": "s", "id": 7, "version": 1, "schema": A}
    for more, expected in (
        ({"schemaType": "PROTOBUF"}, "is 'PROTOBUF', expected AVRO"),
        ({"references": [{"name": "R"}]}, "has the reference {'name': 'R'}, expected name, subject and version"),
        ({"references": "R"}, "has the reference None"),
        ({"references": [{"name": "R", "subject": "s", "version": 1}]}, "refers to .* or to itself"),
    ):
        body = json.dumps({**latest, **more}).encode()
        with Scripted(http(200, body)) as server, pytest.raises(RegistryError, match=expected):
            client(server.url).latest("s")


@pytest.mark.behaviour("Schema registry", "The embedded registry answers to this machine only, and to nobody slowly")
@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Host": "localhost@x"}]
)
def test_pages_of_others_are_refused(headers: dict[str, str]) -> None:
    with EmbeddedRegistry() as registry:
        host, _, port = registry.url.removeprefix("http://").rpartition(":")
        for method, path in (("POST", "/subjects/evil/versions"), ("PUT", "/config"), ("GET", "/subjects")):
            connection = HTTPConnection(host, int(port), timeout=10)
            connection.request(method, path, b'{"schema": "\\"int\\"", "compatibility": "NONE"}', headers)
            assert connection.getresponse().status == 403
            connection.close()


def test_a_slow_client_holds_nobody_up() -> None:
    with EmbeddedRegistry() as registry:
        host, _, port = registry.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nX:")
            connection = HTTPConnection(host, int(port), timeout=60)
            connection.request("GET", "/subjects")
            assert connection.getresponse().status == 200
            connection.close()


def status_of(registry: EmbeddedRegistry, method: str, path: str, **body: str) -> int:
    connection = HTTPConnection("127.0.0.1", registry.port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, json.dumps(body))
        return connection.getresponse().status


@pytest.mark.behaviour("Schema registry", "No lock is held while schemas are compared")
def test_others_are_answered_while_a_schema_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def problems(*pair: Any) -> list[str]:
        asked.append(status_of(server, "GET", "/subjects"))
        asked.append(status_of(server, "PUT", "/mode/other", mode="READONLY"))
        asked.append(status_of(server, "POST", "/subjects/another/versions", schema=A))
        return []

    monkeypatch.setattr(schema_store, "problems", problems)
    with EmbeddedRegistry() as server:
        for schema in (A, B):
            assert status_of(server, "POST", "/subjects/s/versions", schema=schema) == 200
        assert status_of(server, "POST", "/compatibility/subjects/s/versions", schema=A) == 200
    assert asked == [200] * 6
