"""``kafkalite broker``: options and signals; the integration tests start a real one."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kafka_sink.broker.config import AUTHORIZER, EndPoint
from kafka_sink.cli.commands import broker
from kafka_sink.cli.main import run
from kafka_sink.cli.serving import StopSignals
from kafka_sink.common.metrics import Family, Metric
from kafka_sink.common.version import VERSION


class FakeCluster:
    """Receives its stop signal as soon as it has started."""

    made: ClassVar[dict[str, Any]] = {}
    events: ClassVar[list[str]] = []
    bootstrap_servers = "127.0.0.1:5,127.0.0.1:6"
    acls: ClassVar[list[object]] = []
    nodes: ClassVar[dict[int, dict[str, EndPoint]]] = {
        1: {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 5)},
        2: {"PLAINTEXT": EndPoint("PLAINTEXT", "127.0.0.1", 6)},
    }

    def __init__(self, nodes: int, **options: Any) -> None:
        self.made.update(nodes=nodes, **options)

    def __enter__(self) -> FakeCluster:
        self.events.append("start")
        os.kill(os.getpid(), signal.SIGTERM)
        return self

    def metrics(self) -> list[Metric]:
        return [Family("here", "figures-total", "Figures.").at(7)]

    def describe_acls(self) -> list[object]:
        return self.acls

    def __exit__(self, *error: object) -> None:
        self.events.append("stop" if error[0] is None else f"stop after {error[0]}")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[FakeCluster]:
    monkeypatch.setattr(FakeCluster, "made", {})
    monkeypatch.setattr(FakeCluster, "events", [])
    monkeypatch.setattr(broker, "EmbeddedCluster", FakeCluster)
    return FakeCluster


def test_figures_are_in_their_file_at_the_end(cluster: type[FakeCluster], tmp_path: Path) -> None:
    path = tmp_path / "broker.prom"
    assert run(["broker", "--metrics-file", str(path)]) == 0
    assert "\nkafka_here_figures_total 7.0\n" in path.read_text()


@pytest.mark.behaviour("Schema registry", "kafkalite broker --registry-port runs a registry beside the broker")
def test_registry_runs_beside_the_broker(cluster: type[FakeCluster], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--registry-port", "0"]) == 0
    said = capsys.readouterr()
    assert said.out == "bootstrap.servers=127.0.0.1:5,127.0.0.1:6\n"
    assert re.search(r"schema\.registry\.url=http://127\.0\.0\.1:\d+\n", said.err)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["broker", "--registry-port", str(port)]) != 0
    told = capsys.readouterr().err
    assert f"--registry-port {port}: cannot listen on 127.0.0.1:{port}: Address already in use; choose" in told


def test_broker_prints_only_ready_line_and_stops_on_signal(
    cluster: type[FakeCluster], capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run(["broker"]) == 0
    assert capsys.readouterr().out == "bootstrap.servers=127.0.0.1:5,127.0.0.1:6\n"
    assert cluster.events == ["start", "stop"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_defaults_and_options_reach_the_cluster(cluster: type[FakeCluster], tmp_path: Path) -> None:
    run(["broker"])
    assert (cluster.made["nodes"], cluster.made["host"], cluster.made["port"]) == (1, "127.0.0.1", 9092)
    assert cluster.made["data_dir"] is None
    settings = tmp_path / "broker.properties"
    settings.write_text("num.partitions=7\n")
    assert cluster.made["config"].authorizer_class_name == ""
    assert run(["broker", "--authorizer", "--config", str(settings)]) == 0
    assert cluster.made["config"].authorizer_class_name == AUTHORIZER
    options = ["--port", "0", "--host", "0.0.0.0", "--nodes", "3", "--data-dir", str(tmp_path)]
    assert run(["broker", *options, "--config", str(settings)]) == 0
    assert (cluster.made["nodes"], cluster.made["host"], cluster.made["port"]) == (3, "0.0.0.0", 0)
    assert cluster.made["data_dir"] == tmp_path
    assert cluster.made["config"].num_partitions == 7


def test_broker_logs_which_node_serves_which_listener(
    cluster: type[FakeCluster], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["broker", "--nodes", "2", "--data-dir", str(tmp_path)]) == 0
    lines = [line.partition(" INFO ")[2].strip() for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        f"kafkalite {VERSION}; data in {tmp_path}; SIGTERM or Ctrl-C stops it",
        "broker 1 listens on PLAINTEXT://127.0.0.1:5",
        "broker 2 listens on PLAINTEXT://127.0.0.1:6",
        "stopping",
    ]


@pytest.mark.behaviour("ACLs", "A broker that refuses everything to everybody says so at its start")
@pytest.mark.parametrize(
    ("settings", "acls", "is_warned"),
    [
        ("", [], True),
        ("super.users=User:admin\n", [], False),
        ("allow.everyone.if.no.acl.found=true\n", [], False),
        ("", ["one"], False),
    ],
)
def test_broker_that_refuses_everything_says_so(
    settings: str,
    acls: list[object],
    is_warned: bool,
    cluster: type[FakeCluster],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(FakeCluster, "acls", acls)
    (tmp_path / "broker.properties").write_text(settings)
    for authorizer in (["--authorizer"], []):
        assert run(["broker", *authorizer, "--config", str(tmp_path / "broker.properties")]) == 0
        said = "no super user who could add one" in capsys.readouterr().err
        assert said == (is_warned and bool(authorizer))


def test_node_id_option_says_what_to_use_instead(
    cluster: type[FakeCluster], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["broker", "--node-id", "2", "--data-dir", "x"]) == 2
    assert "one process is the whole cluster; use --nodes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "options", "text"),
    [
        ("num.partitons=7", [], "unknown option num.partitons (did you mean num.partitions?)"),
        ("num.partitions=many", [], "option num.partitions: 'many' is not a whole number"),
        ("num.partitions", [], "broker.properties line 1: expected name=value"),
        ("listeners=PLAINTEXT://127.0.0.1:5", ["--port", "5"], "--host and --port contradict the listeners in"),
    ],
)
def test_a_wrong_configuration_is_wrong_usage(
    settings: str,
    options: list[str],
    text: str,
    cluster: type[FakeCluster],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "broker.properties"
    path.write_text(settings)
    assert run(["broker", "--config", str(path), *options]) == 2
    assert text in capsys.readouterr().err
    assert cluster.events == []


def test_a_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        stop.wait()
        assert codes == []
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait()
    assert codes == [128 + signal.SIGTERM]


def test_the_command_may_open_as_many_files_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        broker.raise_descriptor_limit()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised == hard or raised > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
