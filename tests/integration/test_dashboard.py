"""The dashboard in ``examples/``: its queries ask for what is exported, and Prometheus answers each with series."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import Progress
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.ui.pages import PageServer
from tests.exactly_once.world import PARTITIONS, QUERY, World
from tests.support.ports import free_ports

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana-dashboard.json"
PROMETHEUS = shutil.which("prometheus")
LIMIT_S = 60


def queries() -> list[str]:
    """As Grafana sends them for all instances."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        target["expr"].replace("$instance", ".*").replace("$__rate_interval", "10s")
        for panel in panels
        for target in panel["targets"]
    ]


def line(number: int) -> str:
    report = {"decision": "written", "version": number, "rows": 1_000, "bytes": 1, "wire_bytes": 1, "tasks": 1}
    report |= {"elapsed_ms": 400, "commit_ms": 100, "ack_p50_ms": 3, "ack_p99_ms": 40}
    report |= {
        "timestamp_ms": int(time.time() * 1000),
        "partitions": {"sunk-0": {"rows": 1_000, "first": 0, "last": 9}},
    }
    return json.dumps(report) + "\n" + json.dumps({"source": {"batch": number, "lag": 5}}) + "\n"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "orders.jsonl"


@pytest.fixture
def url(report: Path) -> Iterator[str]:
    """The metrics of a cluster with everything that the pages know, and of a stream that runs."""
    report.write_text(line(0))
    with EmbeddedCluster() as cluster:
        cluster.create_topic("sunk", partitions=PARTITIONS)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.send(ProducerRecord("sunk", b"x"))
        with GroupAdmin(cluster.bootstrap_servers) as admin:
            admin.set_offsets("readers", {TopicPartition("sunk", 0): 0})
        world = World(cluster.bootstrap_servers, "sunk")
        plan = world.parallel.plan()
        written = world.write_task(plan, 0, b"row").transaction
        world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, (written,)))
        with PageServer(cluster.bootstrap_servers, 0, report=report) as server:
            yield server.url + "metrics"
        world.client.close()


@pytest.mark.behaviour("Metrics", "Every query of the dashboard asks for what is exported")
def test_every_query_asks_for_what_is_exported(url: str) -> None:
    with urllib.request.urlopen(url, timeout=30) as answer:
        exported = answer.read().decode()
    for query in queries():
        names = re.findall(r"kafka_\w+", query)
        assert names, query
        for name in names:
            labels = re.findall(rf'{name}{{[^}}]*(quantile="[^"]*")', query)
            labelled = rf"{{[^}}]*{labels[0]}" if labels else "[{ ]"
            assert re.search(f"^{name}{labelled}", exported, re.MULTILINE), name


@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus: the system's package prometheus is not installed")
@pytest.mark.behaviour("Metrics", "Prometheus answers every query of the dashboard while a stream runs")
def test_prometheus_answers_every_query_with_series(url: str, report: Path, tmp_path: Path) -> None:
    place = urlsplit(url).netloc
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: kafkalite, static_configs: [{{targets: ['{place}']}}]}}]\n"
    )
    address = f"127.0.0.1:{free_ports()}"
    command = [str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    with subprocess.Popen(
        [*command, f"--web.listen-address={address}", "--log.level=error"], stderr=subprocess.DEVNULL
    ) as prometheus:
        try:
            left, number, deadline = set(queries()), 0, time.monotonic() + LIMIT_S
            while left and time.monotonic() < deadline:
                number += 1
                with report.open("a") as file:
                    file.write(line(number))
                time.sleep(0.5)
                left = {query for query in left if not series(address, query)}
        finally:
            prometheus.terminate()
    assert not left


def series(address: str, query: str) -> list[object]:
    asked = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{asked}", timeout=30) as answer:
            found: list[object] = json.load(answer)["data"]["result"]
    except OSError:
        # It is still starting.
        return []
    return found
