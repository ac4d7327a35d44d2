"""The check before a job: it finds each of ten prepared mistakes, recommends an action for each, and writes nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.preflight.check import check_all, check_connections
from kafka_sink.preflight.findings import CheckReport, CheckTarget, ExactlyOnceTarget, Finding, Status
from tests.support.certificates import Authority
from tests.support.librdkafka_mock import MockCluster, is_available
from tests.support.ports import free_ports
from tests.support.secure_cluster import PASSWORD, SECRETS, address, secure_cluster

AUTHORITY = Authority()
#: Long enough for any response on a busy machine.
PATIENT = {"request.timeout.ms": "10000", "max.block.ms": "10000"}
SINK = ExactlyOnceTarget("orders-sink", "t")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=2, auto_create_topics=False) as running:
        running.create_topic("t", 3)
        yield running


@pytest.fixture(scope="module")
def secure() -> Iterator[EmbeddedCluster]:
    with secure_cluster(AUTHORITY.issue("localhost").pem()) as running:
        yield running


def check(
    bootstrap_servers: str, *topics: str, sink: ExactlyOnceTarget | None = None, **properties: str
) -> CheckReport:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    target = CheckTarget({**PATIENT, "bootstrap.servers": bootstrap_servers, **given}, topics, sink)
    return CheckReport(check_all(target, "here"))


def problem(report: CheckReport) -> Finding:
    """Return the only problem, which must recommend an action."""
    assert not report.is_ok
    (found,) = report.problems
    assert found.what_to_do
    return found


def steps(findings: Sequence[Finding], status: Status) -> list[str]:
    return [each.step for each in findings if each.status is status]


@pytest.mark.behaviour("kafkalite check", "A cluster that works is found to work, exactly once too")
def test_nothing_is_wrong(cluster: EmbeddedCluster) -> None:
    report = check(cluster.bootstrap_servers, "t", sink=SINK)
    assert report.is_ok
    assert {each.status for each in report.findings} == {Status.OK}, report
    assert {each.place for each in report.findings} == {"here"}
    subjects = [each.subject for each in report.findings if each.step == "broker"]
    assert subjects == [
        f"broker {number} at {endpoints['PLAINTEXT'].address}" for number, endpoints in sorted(cluster.nodes.items())
    ]


@pytest.mark.behaviour("kafkalite check", "A check writes nothing: no record, topic, group or transactional id")
def test_nothing_is_written() -> None:
    """Not even if the brokers create topics on first use."""
    with EmbeddedCluster(auto_create_topics=True) as cluster:
        at = cluster.bootstrap_servers
        cluster.create_topic("t", 3)
        report = check(at, "t", "missing", sink=SINK)
        assert Status.NOT_TRIED not in {each.status for each in report.findings}
        with AdminClient(at) as admin, GroupAdmin(at) as groups:
            assert admin.list_topics(include_internal=True) == ["t"]
            assert set(admin.offsets(TopicPartition("t", number) for number in range(3)).values()) == {0}
            assert groups.list_groups() == {}
        with CoordinatorClient({"bootstrap.servers": at}) as transactions:
            assert transactions.run(transactions.list_ids()) == []


# --- the ten mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_wrong_port() -> None:
    port = free_ports()
    report = check(f"127.0.0.1:{port}", "t", sink=SINK)
    found = problem(report)
    assert (found.step, found.found) == ("port", f"127.0.0.1:{port}: connection refused")
    assert "check host and port in bootstrap.servers" in found.what_to_do
    untried = [each for each in report.findings if each.status is Status.NOT_TRIED]
    assert [each.found for each in untried if each.step == "cluster"] == ["needs: bootstrap servers"]
    assert "group of the progress" in [each.step for each in untried]


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_wrong_authority(secure: EmbeddedCluster, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(Authority("another authority").pem)
    found = problem(check(tls_address(secure, "SSL"), "t", security_protocol="SSL", ssl_truststore_location=str(other)))
    assert found.step == "TLS"
    assert found.found.startswith("the certificate of localhost was refused")
    assert "ssl.truststore.location" in found.what_to_do


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_wrong_host_name(secure: EmbeddedCluster, tmp_path: Path) -> None:
    found = problem(check(address(secure, "SSL"), "t", **trusting(tmp_path, "SSL")))
    assert found.step == "TLS"
    assert found.found == "the certificate of 127.0.0.1 is not valid for this host name"
    assert "connect to one of the names in it" in found.what_to_do


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
@pytest.mark.behaviour("kafkalite check", "No secret is in the findings")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_password(secure: EmbeddedCluster, tmp_path: Path, mechanism: str) -> None:
    wrong = f"{PASSWORD}-wrong"
    report = check(
        tls_address(secure, "SASL_SSL"),
        "t",
        **trusting(tmp_path, "SASL_SSL"),
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password=wrong,
    )
    found = problem(report)
    assert found.step == "SASL"
    assert "refused the authentication" in found.found
    assert "check sasl.mechanism, the user name and the password" in found.what_to_do
    for text in (repr(report), report._repr_html_()):
        assert not any(secret in text for secret in (*SECRETS, wrong))


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_missing_topic(cluster: EmbeddedCluster) -> None:
    report = check(cluster.bootstrap_servers, "t", "missing")
    found = problem(report)
    assert (found.step, found.subject, found.found) == ("topic", "missing", "does not exist")
    assert "kafkalite topics create missing" in found.what_to_do
    assert "settings of topic missing" in steps(report.findings, Status.NOT_TRIED)


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_missing_permission_for_the_ids(cluster: EmbeddedCluster) -> None:
    with cluster.faults.on("end_txn", error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        report = check(cluster.bootstrap_servers, "t", sink=SINK)
    found = problem(report)
    assert (found.step, found.found) == ("transactional ids", "this principal lacks WRITE")
    assert "grant WRITE and DESCRIBE on the transactional ids that begin with 'orders-sink'" in found.what_to_do
    assert steps(report.findings, Status.NOT_TRIED) == ["transaction coordinator"]


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_missing_permission_for_the_topic(cluster: EmbeddedCluster) -> None:
    with cluster.faults.on("metadata", topic="t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        found = problem(check(cluster.bootstrap_servers, "t"))
    assert (found.step, found.subject) == ("topic", "t")
    assert "grant WRITE" in found.what_to_do


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_unreachable_advertised_listener() -> None:
    """A broker advertises an address on which no server listens."""
    port, nobody = free_ports(2), free_ports()
    config = parse(
        BrokerConfig,
        {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised.listeners": f"PLAINTEXT://127.0.0.1:{nobody}"},
    )
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic("t", 1)
        report = check(f"127.0.0.1:{port}", "t")
    found = problem(report)
    assert (found.step, found.subject) == ("port", f"broker 1 at 127.0.0.1:{nobody}")
    assert "advertised.listeners" in found.what_to_do


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_records_larger_than_the_topic_takes(cluster: EmbeddedCluster) -> None:
    found = problem(check(cluster.bootstrap_servers, "t", max_request_size="2000000"))
    shown = "columns key, value and headers: max.message.bytes=1048588, max.request.size=2000000"
    assert (found.step, found.found) == ("record size", shown)
    assert "--config max.message.bytes=2000000" in found.what_to_do


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
@pytest.mark.skipif(not is_available(), reason="this platform's confluent-kafka has no mock brokers")
def test_brokers_too_old_for_exactly_once() -> None:
    with MockCluster(1) as old:
        old.create_topic("t", 1)
        assert check(old.bootstrap_servers, "t").is_ok
        report = check(old.bootstrap_servers, "t", sink=SINK)
    found = {each.step: each for each in report.problems}
    assert set(found) == {"API versions", "transactions"}
    assert "upgrade" in found["API versions"].what_to_do
    assert found["transactions"].found == "does not verify transactions (KIP-890)"
    assert "3.6" in found["transactions"].what_to_do
    assert "transactional ids" in steps(report.findings, Status.NOT_TRIED)


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_no_permission_for_the_group(cluster: EmbeddedCluster) -> None:
    with cluster.faults.on("heartbeat", error=ErrorCode.GROUP_AUTHORIZATION_FAILED):
        report = check(cluster.bootstrap_servers, "t", sink=SINK)
    found = problem(report)
    assert (found.step, found.found) == ("group of the progress", "this principal lacks READ")
    assert "--operation Read --group orders-sink" in found.what_to_do
    assert steps(report.findings, Status.NOT_TRIED) == ["group coordinator"]


@pytest.mark.behaviour("kafkalite check", "Each of ten prepared mistakes is found, with what to do")
def test_no_coordinator_for_the_group(cluster: EmbeddedCluster) -> None:
    with cluster.faults.on("describe_groups", error=ErrorCode.COORDINATOR_NOT_AVAILABLE):
        found = problem(check(cluster.bootstrap_servers, "t", sink=SINK))
    assert found.step == "group coordinator"
    assert "broker 1: COORDINATOR_NOT_AVAILABLE" in found.found
    assert "__consumer_offsets" in found.what_to_do


# --- more mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("listener", "given"), [("SSL", "PLAINTEXT"), ("SASL_PLAINTEXT", "PLAINTEXT")])
def test_wrong_security_protocol(secure: EmbeddedCluster, listener: str, given: str) -> None:
    found = problem(check(address(secure, listener), "t", security_protocol=given))
    assert found.step == "cluster"
    assert f"check that security.protocol={given} is the protocol of this port" in found.what_to_do


def test_tls_to_a_port_without_it(secure: EmbeddedCluster, tmp_path: Path) -> None:
    found = problem(check(address(secure, "PLAINTEXT"), "t", **trusting(tmp_path, "SSL")))
    assert found.step == "TLS"
    assert "security.protocol" in found.what_to_do


def test_unknown_name_beside_a_good_one(cluster: EmbeddedCluster) -> None:
    """An unusable bootstrap server is a warning if another one is usable."""
    report = check(f"nowhere.invalid:9092,{cluster.bootstrap_servers}", "t")
    assert report.is_ok
    (warning,) = [each for each in report.findings if each.status is Status.WARNING and each.step == "name"]
    assert "nowhere.invalid" in warning.found


def test_invalid_option_is_a_finding() -> None:
    report = check("127.0.0.1:9092", "t", linger_ms="soon")
    assert problem(report).step == "options"
    assert "linger.ms" in report.problems[0].found


def test_topic_that_brokers_create_is_a_warning() -> None:
    with EmbeddedCluster(auto_create_topics=True) as cluster:
        report = check(cluster.bootstrap_servers, "new")
        assert report.is_ok
        assert "topic" in steps(report.findings, Status.WARNING)
        assert not check(cluster.bootstrap_servers, "new", sink=ExactlyOnceTarget("sink", "new")).is_ok


def test_time_out_above_the_brokers_limit(cluster: EmbeddedCluster) -> None:
    found = problem(check(cluster.bootstrap_servers, "t", sink=ExactlyOnceTarget("sink", "t", 900_001)))
    assert found.step == "time-out"
    assert "transaction.max.timeout.ms=900000" in found.found


@pytest.mark.behaviour("kafkalite check", "Every wait is bounded by request.timeout.ms or max.block.ms")
def test_silent_server_is_given_up() -> None:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        report = check(f"127.0.0.1:{port}", "t", request_timeout_ms="300", security_protocol="SASL_PLAINTEXT",
                       sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="a")  # fmt: skip
        assert problem(report).found == "no agreement: no answer within 300 ms"
        plain = check(f"127.0.0.1:{port}", "t", request_timeout_ms="300")
        assert problem(plain).step == "cluster"


def test_connections_are_checked_without_the_cluster(cluster: EmbeddedCluster) -> None:
    target = CheckTarget({**PATIENT, "bootstrap.servers": cluster.bootstrap_servers}, ("t",), SINK)
    findings = check_connections(target, "executor")
    assert {each.step for each in findings} == {"options", "name", "port", "cluster", "broker"}
    assert {each.status for each in findings} == {Status.OK}


# --- the command -----------------------------------------------------------------------------------------------------


def kafkalite_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafka_sink.cli", "check", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )


@pytest.mark.behaviour("kafkalite check", "The command exits with 1 where a job would fail, otherwise with 0")
def test_command(cluster: EmbeddedCluster) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    good = kafkalite_check("t", "--exactly-once", "orders-sink", *at)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.rstrip().splitlines()[-1].startswith("the job can run: ")
    bad = kafkalite_check("missing", *at)
    assert (bad.returncode, bad.stderr) == (1, "")
    assert "the job would fail" in bad.stdout
    listed: list[dict[str, Any]] = json.loads(kafkalite_check("missing", "--json", *at).stdout)
    assert [each["subject"] for each in listed if each["status"] == "failed"] == ["missing"]


def test_command_explains_missing_arguments() -> None:
    done = kafkalite_check("--exactly-once", "sink")
    assert (done.returncode, "needs a TOPIC" in done.stderr) == (2, True)


def tls_address(cluster: EmbeddedCluster, listener: str) -> str:
    """Return the address with the host name of the certificate."""
    return f"localhost:{cluster.nodes[1][listener].port}"


def trusting(folder: Path, protocol: str) -> dict[str, Any]:
    path = folder / "trust.pem"
    path.write_text(AUTHORITY.pem)
    return {"security_protocol": protocol, "ssl_truststore_location": str(path)}
