"""One properties file for producers, consumers and admin clients, given to every command that connects to a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.cli.main import run

SHARED = {
    "security.protocol": "plaintext",
    "client.dns.lookup": "use_all_dns_ips",
    "session.timeout.ms": "45000",
    "group.id": "readers",
    "auto.offset.reset": "earliest",
    "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    "acks": "all",
    "linger.ms": "0",
    "default.api.timeout.ms": "15000",
    "application.id": "counts",
    "consumer.max.poll.records": "10",
    "schema.registry.url": "http://127.0.0.1:1",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "u:s3cret",
    "ssl.protocol": "TLSv1.3",
}
COMMANDS = (
    ("topics", "list"),
    ("topics", "describe", "orders"),
    ("groups", "list"),
    ("groups", "reset-offsets", "readers", "--topic", "orders", "--to-latest", "--yes"),
    ("txn", "list"),
    ("produce", "orders", "--raw"),
    ("consume", "orders"),
    ("check", "orders"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("orders", partitions=1)
        yield running


@pytest.mark.behaviour(
    "What people paste", "A properties file that others share is taken, with one warning of what it has for them"
)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_a_file_that_others_share(
    command: tuple[str, ...],
    cluster: EmbeddedCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "client.properties"
    # As an editor of Windows writes it.
    file.write_text("\r\n".join(f"{name}={value}" for name, value in SHARED.items()), encoding="utf-8-sig", newline="")
    empty = tmp_path / "stdin"
    empty.write_bytes(b"")
    with empty.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        run([*command, "--command-config", str(file), "--bootstrap-server", cluster.bootstrap_servers])
    printed = capsys.readouterr()
    assert "nknown option" not in printed.out + printed.err
    (warning,) = [line for line in printed.err.splitlines() if "options without effect here" in line]
    for name in ("session.timeout.ms (for consumers)", "application.id (for Kafka Streams)", "ssl.protocol ("):
        assert name in warning
    assert "s3cret" not in printed.out + printed.err
