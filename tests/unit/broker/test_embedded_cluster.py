"""Configurations that a cluster refuses or warns of, and errors of its start and stop."""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.broker.log.filesystem import OsFileSystem, with_checksum, without_checksum
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError
from kafka_sink.network.transport.resolver import address_of_this_machine
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from tests.support.cases import with_each
from tests.support.certificates import Authority
from tests.support.secure_cluster import users


@pytest.mark.behaviour(
    "SocketServer", "Listeners that contradict each other, shared ports and addresses that nobody can reach are refused"
)
@with_each(
    ("nodes", "listeners", "text"),
    [
        (
            2,
            "A://127.0.0.1:65535",
            "2 nodes use A://127.0.0.1:65535 and the ports after it, but 65536 is not a valid port",
        ),
        (1, "A://127.0.0.1:9092,B://127.0.0.1:9092", "would both use 127.0.0.1:9092"),
        (2, "A://127.0.0.1:9092,B://127.0.0.1:9093", "B://127.0.0.1:9093 of node 1 and A://127.0.0.1:9092 of node 2"),
    ],
)
@with_each("option", ["listeners", "advertised.listeners"])
def test_ports_that_nodes_would_share_are_refused(option: str, nodes: int, listeners: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        EmbeddedCluster(nodes, config=parse(BrokerConfig, {option: listeners}))


def test_port_zero_and_ports_far_apart_are_accepted() -> None:
    EmbeddedCluster(3, config=parse(BrokerConfig, {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0"}))
    EmbeddedCluster(3, config=parse(BrokerConfig, {"listeners": "A://127.0.0.1:9092,B://127.0.0.1:9095"}))


@pytest.mark.behaviour(
    "SocketServer", "Listeners that contradict each other, shared ports and addresses that nobody can reach are refused"
)
@pytest.mark.parametrize(
    ("advertised", "text"),
    [
        ("B://127.0.0.1:5", "option advertised.listeners: listener B does not exist, only A"),
        ("A://0.0.0.0:5", "option advertised.listeners: clients cannot connect to A://0.0.0.0:5"),
        ("A://[::]:5", "option advertised.listeners: clients cannot connect to A://[::]:5"),
    ],
)
def test_addresses_that_lead_nowhere_are_not_advertised(advertised: str, text: str) -> None:
    protocols = {"listener.security.protocol.map": "A:PLAINTEXT"}
    config = parse(BrokerConfig, {"listeners": "A://127.0.0.1:0", "advertised.listeners": advertised, **protocols})
    with pytest.raises(ConfigError, match=re.escape(text)):
        EmbeddedCluster(config=config).start()


@pytest.mark.behaviour("EmbeddedCluster", "A listener without a security protocol is refused")
@with_each("name", ["SASL_SLL", "sasl_ssl", "Sasl_Ssl", "TLS", "SECURE"])
def test_a_listener_without_a_security_protocol_is_refused(name: str) -> None:
    config = parse(
        BrokerConfig,
        {
            "listeners": f"{name}://127.0.0.1:0",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.jaas.config": 'PlainLoginModule required user_alice="pw";',
        },
    )
    text = f"listener.security.protocol.map: no security protocol is defined for listener '{name}'; add {name}:PROTOCOL"
    with pytest.raises(ConfigError, match=re.escape(text)):
        EmbeddedCluster(config=config).start()


def test_a_listener_of_any_name_is_served_as_the_map_says() -> None:
    properties = {"listeners": "INTERNAL://127.0.0.1:0", "listener.security.protocol.map": "INTERNAL:PLAINTEXT"}
    with EmbeddedCluster(config=parse(BrokerConfig, properties)) as cluster:
        cluster.create_topic("t", 1)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            assert producer.send(ProducerRecord("t", b"x")).result(30).offset == 0


def test_ipv6_host_is_advertised_in_brackets() -> None:
    with EmbeddedCluster(host="::1") as cluster:
        assert re.fullmatch(r"\[::1\]:[0-9]+", cluster.bootstrap_servers)


@pytest.mark.behaviour("EmbeddedCluster", "A wildcard address advertises the address of the machine, with a warning")
@pytest.mark.parametrize(
    ("own", "advertised", "text"),
    [
        ("10.1.2.3", "10.1.2.3", "the address of this machine"),
        (None, "127.0.0.1", "which only clients on this machine"),
    ],
)
def test_wildcard_address_is_warned_of_with_what_is_advertised(
    own: str | None, advertised: str, text: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_sink.broker.running_cluster.address_of_this_machine", lambda wildcard: own)
    with EmbeddedCluster(host="0.0.0.0") as cluster:
        port = cluster.nodes[1]["PLAINTEXT"].port
        assert cluster.bootstrap_servers == f"{advertised}:{port}"
    assert f"PLAINTEXT://0.0.0.0:{port} accepts connections on every address, and clients are told to" in caplog.text
    assert f"connect to {advertised}:{port}, {text}" in caplog.text and "advertised.listeners" in caplog.text


def test_machine_knows_its_own_address_without_sending() -> None:
    own = address_of_this_machine("0.0.0.0")
    assert own is None or ipaddress.IPv4Address(own).packed != bytes(4)


@pytest.mark.behaviour("EmbeddedCluster", "A listener for other machines without TLS or authentication is warned of")
@pytest.mark.parametrize(
    ("protocol", "client_auth", "missing"),
    [
        ("PLAINTEXT", "none", "TLS AND AUTHENTICATION: whoever can connect can read, change and delete everything"),
        ("SASL_PLAINTEXT", "none", "TLS: whoever is on the way can read everything"),
        ("SSL", "none", "AUTHENTICATION: whoever can connect"),
        ("SSL", "requested", "AUTHENTICATION: whoever can connect"),
        ("SSL", "required", ""),
        ("SASL_SSL", "none", ""),
    ],
)
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_listener_open_to_others_without_protection_is_warned_of(
    host: str, protocol: str, client_auth: str, missing: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    keystore, authority = tmp_path / "broker.pem", Authority()
    keystore.write_text(authority.issue("127.0.0.1").pem())
    properties = {
        "listeners": f"{protocol}://{host}:0",
        "advertised.listeners": f"{protocol}://127.0.0.1:0",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.certificates": authority.pem,
        "ssl.client.auth": client_auth,
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.jaas.config": users(alice="a"),
    }
    with EmbeddedCluster(config=parse(BrokerConfig, properties)):
        pass
    is_open = host == "0.0.0.0"
    assert ("IS OPEN TO OTHER MACHINES" in caplog.text) == bool(missing and is_open)
    assert not is_open or missing in caplog.text


def test_explicit_advertised_listener_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    listeners = {"listeners": "PLAINTEXT://0.0.0.0:0", "advertised.listeners": "PLAINTEXT://127.0.0.1:0"}
    with EmbeddedCluster(config=parse(BrokerConfig, listeners)):
        assert "accepts connections on every address" not in caplog.text


class FullDisk(OsFileSystem):
    is_full = False

    def replace_file(self, path: Path, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace_file(path, data)


def test_a_start_that_fails_on_a_full_disk_can_be_tried_again(tmp_path: Path) -> None:
    before, disk = set(threading.enumerate()), FullDisk()
    cluster = EmbeddedCluster(data_dir=tmp_path, filesystem=disk)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        cluster.start()
    assert set(threading.enumerate()) == before
    disk.is_full = False
    with cluster:
        cluster.create_topic("t", 1)


def test_a_node_that_cannot_be_stopped_on_a_full_disk_runs_on(tmp_path: Path) -> None:
    before, disk = set(threading.enumerate()), FullDisk()
    cluster = EmbeddedCluster(2, data_dir=tmp_path, filesystem=disk)
    cluster.start()
    cluster.create_topic("t", 2, replication_factor=2)
    disk.is_full = True
    with pytest.raises(OSError, match="No space left"):
        cluster.stop_node(1)
    assert sorted(cluster.nodes) == [1, 2]
    disk.is_full = False
    with KafkaProducer({"bootstrap.servers": cluster.nodes[1]["PLAINTEXT"].address}) as producer:
        assert producer.send(ProducerRecord("t", b"x", partition=0)).result(30).offset == 0
    disk.is_full = True
    cluster.stop()
    assert set(threading.enumerate()) == before


def test_directory_that_several_processes_shared_is_opened(tmp_path: Path) -> None:
    """Earlier releases kept nodes and leaders in the cluster's file, and the topic's id beside each log."""
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", 1)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            assert producer.send(ProducerRecord("t", b"x")).result(30).offset == 0
    file = tmp_path / "cluster.json"
    content = json.loads(without_checksum(file.read_bytes()) or b"")
    content |= {"version": 7, "members": [1, 2, 3], "nodes": {"2": [["PLAINTEXT", "127.0.0.1", 9]]}}
    content["topics"][0]["leaders"] = [2]
    file.write_bytes(with_checksum(json.dumps(content).encode()))
    (tmp_path / "logs" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: x\n")
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert sorted(cluster.nodes) == [1]
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            assert producer.send(ProducerRecord("t", b"y")).result(30).offset == 1


def test_fetches_that_wait_are_counted_once_for_all_nodes() -> None:
    with EmbeddedCluster(2) as cluster:
        found = [metric for metric in cluster.metrics() if metric.name == "PurgatorySize"]
        assert [(metric.value, metric.tags) for metric in found] == [(0, (("delayedOperation", "Fetch"),))]


@pytest.mark.behaviour("EmbeddedCluster", "A notebook shows the nodes and their listeners as a table")
def test_cluster_shows_its_nodes() -> None:
    cluster = EmbeddedCluster(nodes=2)
    assert repr(cluster) == "EmbeddedCluster(not running)"
    assert "not running" in cluster._repr_html_()
    with cluster:
        assert repr(cluster) == f"EmbeddedCluster(bootstrap_servers='{cluster.bootstrap_servers}')"
        html = cluster._repr_html_()
        assert all(f"<td>PLAINTEXT</td><td>{address}</td>" in html for address in cluster.bootstrap_servers.split(","))


@pytest.mark.behaviour("EmbeddedCluster", "Data and progress on the disk can be read by their owner only")
@pytest.mark.parametrize("exists", [False, True])
def test_files_of_the_broker_are_their_owners(exists: bool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    if exists:
        data.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        with EmbeddedCluster(2, data_dir=data) as cluster:
            cluster.create_topic("t", 2)
            with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send(ProducerRecord("t", b"x"))
                producer.commit_transaction()
            during = {path: path.stat().st_mode for path in data.rglob("*")}
    finally:
        os.umask(before)
    after = {path: path.stat().st_mode for path in data.rglob("*")}
    readable = {path.name for path, mode in {**during, **after}.items() if mode & 0o077}
    assert readable == set()
    assert {".log", ".sqlite", ".json"} <= {path.suffix for path in after}
    assert (data.stat().st_mode & 0o077 == 0) != exists


def test_a_second_cluster_beside_a_forgotten_one_is_told_once() -> None:
    program = """
from kafka_sink import EmbeddedCluster
with EmbeddedCluster(), EmbeddedCluster():
    pass
clusters = [EmbeddedCluster() for _ in range(3)]
clusters[0].start()
print(clusters[0].bootstrap_servers)
for cluster in clusters[1:]:
    cluster.start()
for cluster in clusters:
    cluster.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    (line,) = done.stderr.splitlines()
    assert f"another EmbeddedCluster of this process still runs, at {done.stdout.strip()}, besides" in line
    assert "call stop() before a cell is run again" in line


@with_each("wrong", [{"port": "9092"}, {"nodes": "3"}, {"nodes": True}, {"port": 1.5}])
def test_arguments_that_are_no_numbers_are_refused(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(
        ConfigError, match=rf"{name} must be a whole number, got .*{value}.* \({type(value).__name__}\)"
    ):
        EmbeddedCluster(**wrong)
