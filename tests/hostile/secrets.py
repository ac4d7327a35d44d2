"""Secrets in invalid addresses and in responses that repeat them, and values of rows in reports."""

from __future__ import annotations

import base64
import json
import random
import socket
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import parse
from kafka_sink.common.errors import KafkaError, RowSerializationError
from kafka_sink.errors import UnwritableRowsError
from kafka_sink.formats.payloads import refuse_rows
from kafka_sink.producer.config import ProducerConfig, check_elsewhere
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.reports.chart import chart_of
from kafka_sink.reports.writes import SinkProgress, StreamFigures, read_writes, recent_rows_per_s, with_before
from kafka_sink.spark.driver.job_failures import reported
from kafka_sink.spark.driver.lineage import file_name
from tests.hostile.servers import EvilHttp, shared_server

_SCHEMES: Final = ("http://", "https://", "HTTPS://", "//", "", "https:", "https:/", "https//", "https:\\\\", "ftp://")
_AT: Final = ("@", "@@", "%40", "\uff20", "/@", "#@", "?@", " @", "@[")
_HOSTS: Final = (
    "host",
    "host:1",
    "host:99999",
    "host:port",
    "[::1",
    "h\u00e9.x",
    "",
    "ho st",
    "host/token",
    "host,b:1",
)
#: Almost the largest response: the limit is 4 MiB.
_LARGE: Final = "x" * 3_000_000


def _secret(rng: random.Random) -> str:
    return "Zx9" + "".join(rng.choices(string.ascii_letters + string.digits + "-_.~", k=rng.randint(8, 20)))


def _registry(address: str) -> object:
    return RegistryClient(*registry_configs({"schema.registry.url": address}))


def _issuer(address: str) -> object:
    options = {"schema.registry.url": "http://127.0.0.1:1", "bearer.auth.credentials.source": "OAUTHBEARER"}
    client = {
        "bearer.auth.client.id": "a",
        "bearer.auth.client.secret": "b",
        "bearer.auth.issuer.endpoint.url": address,
    }
    return RegistryClient(*registry_configs({**options, **client}))


def _endpoint(address: str) -> object:
    options = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": address,
        "sasl.oauthbearer.client.credentials.client.id": "a",
        "sasl.oauthbearer.client.credentials.client.secret": "b",
    }
    config = parse(ProducerConfig, options)
    check_elsewhere(config)
    create_channel_builder(config, SYSTEM_CLOCK, "x")
    return config


def _bootstrap(address: str) -> object:
    return parse(ProducerConfig, {"bootstrap.servers": address})


_READERS: Final[tuple[Callable[[str], object], ...]] = (_registry, _issuer, _endpoint, _bootstrap, file_name)


def addresses(rng: random.Random) -> None:
    """No text about an address with a password, in any form, contains the password."""
    secret = _secret(rng)
    user = rng.choice(("alice:", "alice:x/", "alice:%2F", ":"))
    address = rng.choice(_SCHEMES) + user + secret + rng.choice(_AT) + rng.choice(_HOSTS)
    for reader in _READERS:
        if reader is file_name and not ("://" in address and address.partition(secret)[2].startswith("@")):
            # The end of the login is ambiguous here, and the file system decides.
            continue
        try:
            said = repr(reader(address))
        except KafkaError as error:
            said = f"{error} {error.__cause__!r}"
        except ValueError as error:
            assert reader is file_name, error
            continue
        assert secret not in said, (reader.__name__, address, said)


_FIELDS: Final = (
    "id",
    "version",
    "schema",
    "schemaType",
    "references",
    "subject",
    "message",
    "messages",
    "is_compatible",
)


def echoing_registries(rng: random.Random) -> None:
    """No text shows secrets that a registry repeats in its response, with any status."""
    secret = _secret(rng)
    sent = rng.choice((secret, f"alice:{secret}", base64.b64encode(f"alice:{secret}".encode()).decode(), _LARGE))
    texts: list[Any] = [
        sent,
        f"x {sent}",
        [sent],
        {"x": sent},
        [{"name": sent, "subject": sent, "version": 1}],
        [[sent]],
    ]
    answer: Any = {"id": 1, "version": 1, "schema": '"int"', rng.choice(_FIELDS): rng.choice(texts)}
    if rng.random() < 0.2:
        answer = rng.choice(([sent], [[sent]], sent))
    body = json.dumps(answer).encode()
    status = rng.choice((200, 200, 200, 201, 302, 400, 403, 404, 409, 422))

    def reply(connection: socket.socket, head: bytes) -> None:
        connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)

    server: EvilHttp = shared_server()
    server.answer = reply
    options = {
        "schema.registry.url": f"http://127.0.0.1:{server.port}",
        "basic.auth.credentials.source": "USER_INFO",
        "basic.auth.user.info": f"alice:{secret}",
    }
    client = RegistryClient(*registry_configs(options), timeout_ms=5_000, rounds=1)
    ask: Callable[[], object] = rng.choice(
        (
            lambda: client.schema(5),
            lambda: client.latest("s"),
            lambda: client.register("s", '"int"'),
            lambda: client.id_of("s", '"int"'),
            lambda: client.kind(7),
            client.types,
            lambda: client.incompatibilities("s", '"int"'),
        )
    )
    try:
        said = repr(ask())
    except KafkaError as error:
        said = str(error)
    if '"schema"' in json.dumps(answer) and isinstance(answer, dict) and sent in str(answer.get("schema")):
        # The text of a schema is used unchanged.
        return
    assert secret not in said and base64.b64encode(f"alice:{secret}".encode()).decode() not in said, said[:500]
    assert len(said) < 10_000, len(said)


def values_of_rows(rng: random.Random) -> None:
    """A report on a row that cannot be written has the row's number and column, and not its value."""
    secret = _secret(rng)
    value = rng.choice((secret, f"' in column 'x', {secret}", f"{secret}\n", f"has {secret} in column 'y' has "))
    array = pa.array([value.encode() if rng.random() < 0.5 else value])
    try:
        refuse_rows(pa.array([True]).to_numpy(zero_copy_only=False), None, array, "value.person", "expected 3 bytes")
    except RowSerializationError as error:
        told = UnwritableRowsError(str(RowSerializationError(7, f"of this task {error.problem}", error.column)))
        for each in (error, told, ValueError(f"[DIVIDE_BY_ZERO] {value}"), KafkaError(str(told))):
            assert secret[:6] not in reported(each), reported(each)
        assert "row 7 of this task has a value in column 'value.person', expected 3 bytes" in reported(told)
    else:
        raise AssertionError("the row was not refused")


_WRITE: Final[dict[str, Any]] = {
    "decision": "written",
    "batch": 1,
    "rows": 5,
    "bytes": 10,
    "wire_bytes": 10,
    "tasks": 1,
    "elapsed_ms": 10,
    "commit_ms": 1,
    "ack_p50_ms": 1,
    "ack_p99_ms": 2,
    "partitions": {"t-0": {"rows": 5, "first": 0, "last": 4}},
    "timestamp_ms": 1764000000000,
}
_ODD: Final[tuple[Any, ...]] = (
    *(None, True, "x", "7", [1], {}, float("nan"), float("inf"), 1.5, -5, 10**30, -(10**30), 10**400, 2**63 - 1),
    *({"t-0": {"rows": "x", "first": 0, "last": 4}}, {"t-0": 1}, {"t-0": {"rows": 1, "first": 0, "last": 10**400}}),
    *("\ud800", "\u202e\x1b", "<script>", {"batch": 1, "lag": 10**400}),
)


def report_lines(rng: random.Random) -> None:
    """A damaged report is rejected as a whole, and each line that is read can be shown."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "r.jsonl"
        lines = []
        for batch in range(3):
            line = {**_WRITE, "batch": batch}
            if rng.random() < 0.6:
                line[rng.choice((*_WRITE, "error", "source", "bad_rows"))] = rng.choice(_ODD)
            text = json.dumps(line) if rng.random() < 0.9 else "[" * rng.choice((1, 990, 100_000))
            lines.append(text[: rng.randrange(len(text))] if rng.random() < 0.1 else text)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
        try:
            _, writes = read_writes(file, 100)
        except ValueError as error:
            assert "is not a report of a write" in str(error) and len(str(error)) < 500, error
            return
    figures = StreamFigures(("report", "r"))
    for write in writes:
        figures.add(write)
    assert all(isinstance(each, SinkProgress) for each in writes)
    shown = (list(figures.metrics()), chart_of(writes), recent_rows_per_s(writes), with_before(writes))
    assert len(str(shown)) < 1_000_000
