"""``kafkalite ui`` over HTTP: what the pages say of a cluster and of a stream's report, and whom they answer."""

from __future__ import annotations

import html
import http.client
import io
import json
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import fastavro
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kafka_sink import EmbeddedCluster
from kafka_sink.broker.config import BrokerConfig
from kafka_sink.cli.commands import ui
from kafka_sink.cli.main import run
from kafka_sink.cli.values.typed_values import shown_by_schema
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.errors import RequirementError
from kafka_sink.common.exposition import OPENMETRICS
from kafka_sink.common.model import TopicPartition
from kafka_sink.exactly_once.model import Progress
from kafka_sink.producer.kafka_producer import KafkaProducer, ProducerRecord
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.testing import EmbeddedRegistry
from kafka_sink.ui.pages import PageServer
from tests.exactly_once.world import PARTITIONS, QUERY, World

pytestmark = pytest.mark.behaviour(
    "Pages in the browser", "Topics, records, groups, transactions and streams are shown"
)
SECRET = "not-for-the-page"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def words(self) -> str:
        """The text of the page, as one line."""
        return " ".join(html.unescape(re.sub("<[^>]*>", " ", self.body)).split())


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def url(cluster: EmbeddedCluster, reports: Path) -> Iterator[str]:
    # Of a client without SASL the password has no meaning, and it is still a secret.
    properties = {"sasl.jaas.config": f'PlainLoginModule required username="u" password="{SECRET}";'}
    with PageServer(cluster.bootstrap_servers, 0, report=reports, properties=properties) as server:
        yield server.url


def get(url: str, path: str, method: str = "GET", **headers: str) -> Answer:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read().decode())
    finally:
        connection.close()


def send(cluster: EmbeddedCluster, *records: ProducerRecord) -> None:
    with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for record in records:
            producer.send(record)


def test_topics_are_listed_and_searched(cluster: EmbeddedCluster, url: str) -> None:
    cluster.create_topic("listed-Orders", partitions=3)
    send(cluster, *(ProducerRecord("listed-Orders", b"x", partition=1) for _ in range(1_234)))
    page = get(url, "/topics?q=LISTED-o")
    assert page.status == 200
    assert re.search(r"listed-Orders 3 1,234 ", page.words)
    assert "No topic’s name contains “<none>”." in get(url, "/topics?q=%3Cnone%3E").words
    detail = get(url, "/topics/listed-Orders").words
    assert re.search(r"listed-Orders 1,234 offsets .* 0 1 1 1 0 0 . 1 1 1 1 0 1,234 ", detail)


def test_newest_records_are_shown_and_found_by_key(cluster: EmbeddedCluster, url: str) -> None:
    cluster.create_topic("records", partitions=2)
    send(
        cluster,
        *(
            ProducerRecord("records", f'{{"n": {n}}}'.encode(), key=f"key-{n}".encode(), timestamp=n)
            for n in range(200)
        ),
        ProducerRecord("records", None, key=b"gone", headers=[("trace", b"7f")]),
    )
    newest = get(url, "/topics/records").words
    assert "text gone null trace text 7f" in newest
    assert 'text key-199 JSON {"n": 199}' in newest
    assert "key-3 " not in newest
    found = get(url, "/topics/records?key=key-3").words
    assert [int(n) for n in re.findall(r"text key-(\d+) JSON", found)] == [*range(39, 29, -1), 3]
    assert "No record was found." in get(url, "/topics/records?key=nobody").words

    def shown(query: str) -> list[int]:
        return [int(n) for n in re.findall(r"text key-(\d+) JSON", get(url, f"/topics/records?{query}").words)]

    assert shown("value=%3A+77") == [77]
    # From a time on, the oldest first, which is 190 ms after 1970; from an offset of each partition on.
    assert shown("from=1970-01-01T00:00:00.190") == list(range(190, 200))
    assert shown("from=1970-01-01T00:00:00.190&key=5") == [195]
    late = shown("from=95")
    assert late == sorted(late) and 0 < len(late) < 12 and late[-1] == 199
    page = get(url, "/topics/records?from=1970-").words
    assert "'1970-': expected an offset, or a time such as 2026-01-31T12:00 (UTC)" in page and "Value" in page
    assert "/no/such is not a page All topics" in get(url, "/no/such").words


def test_records_of_open_and_aborted_transactions_are_marked(cluster: EmbeddedCluster, url: str) -> None:
    cluster.create_topic("marked", partitions=1)
    options = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "marked"}
    with KafkaProducer(options) as producer:
        producer.init_transactions()
        for value in ("committed", "given up", "waiting"):
            producer.begin_transaction()
            producer.send(ProducerRecord("marked", value.encode()))
            producer.flush()
            if value == "committed":
                producer.commit_transaction()
            elif value == "given up":
                producer.abort_transaction()
        page = get(url, "/topics/marked").words
        producer.abort_transaction()
    assert re.search(r" open null text waiting .* aborted null text given up .*[0-9] null text committed", page)


@pytest.mark.behaviour("Pages in the browser", "Avro and Protobuf are decoded by the schemas of a registry")
def test_values_are_decoded_by_the_schemas_of_the_registry(cluster: EmbeddedCluster, url: str) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, {"total": 7.5})
    cluster.create_topic("avro")
    with EmbeddedRegistry() as registry:
        client = RegistryClient(*registry_configs({"schema.registry.url": registry.url}))
        number = client.register("avro-value", json.dumps(schema))
        text = 'syntax = "proto3"; message Order { double total = 1; }'
        other = client.register("protobuf-value", text, "PROTOBUF")
        protobuf = b"\0" + other.to_bytes(4) + b"\0\x09" + struct.pack("<d", 8.5)
        avro = b"\0" + number.to_bytes(4) + data.getvalue()
        send(cluster, ProducerRecord("avro", avro), ProducerRecord("avro", protobuf))
        with PageServer(cluster.bootstrap_servers, 0, decode=shown_by_schema(client)) as server:
            words = get(server.url, "/topics/avro").words
            assert f'schema {number} {{"total": 7.5}}' in words
            assert f'schema {other} {{"total": 8.5}}' in words
    assert f"schema {number} 00 00 00 00" in get(url, "/topics/avro").words


def test_pages_decode_by_the_registry_of_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def not_served(*_: Any, decode: Any, **__: Any) -> None:
        given.append(decode)
        raise RequirementError("not served here")

    monkeypatch.setattr(ui, "page_server", not_served)
    with EmbeddedRegistry() as registry:
        client = RegistryClient(*registry_configs({"schema.registry.url": registry.url}))
        number = client.register("value", '"long"')
        assert run(["ui", "--registry", registry.url]) == run(["ui"]) != 0
        decode, none = given
        assert none is None
        assert decode(b"\0" + number.to_bytes(4) + b"\x02") == "1"


def test_groups_show_lag_and_sinks_their_batch(cluster: EmbeddedCluster, url: str) -> None:
    cluster.create_topic("read", partitions=1)
    send(cluster, *(ProducerRecord("read", b"x") for _ in range(10)))
    with GroupAdmin(cluster.bootstrap_servers) as admin:
        admin.set_offsets("readers/a?b", {TopicPartition("read", 0): 4})
    cluster.create_topic("sunk", partitions=PARTITIONS)
    world = World(cluster.bootstrap_servers, "sunk")
    plan = world.parallel.plan()
    world.steps.decide(plan, Progress(7, QUERY, plan.transaction_version, 1_700_000_000, ()))
    world.client.close()
    page = get(url, "/groups")
    assert "readers/a?b Empty 0 6 " in page.words
    assert re.search(rf" 0 – batch 6 of sunk, \d+ days, \S+ ago by {QUERY}", page.words)
    path = re.findall(r'href="(/groups/readers[^"]*)"', page.body)[0]
    assert " read 0 4 10 6 – – " in get(url, path).words


def test_open_transactions_tell_what_their_sink_decided(cluster: EmbeddedCluster, url: str) -> None:
    cluster.create_topic("torn", partitions=PARTITIONS)
    world = World(cluster.bootstrap_servers, "torn")
    plan = world.parallel.plan()
    decided, loser = (world.write_task(plan, 0, row).transaction for row in (b"row", b"copy"))
    world.steps.decide(plan, Progress(1, QUERY, plan.transaction_version, 0, (decided,)))
    words = get(url, "/transactions").words
    for transaction, said in ((decided, "decided to commit"), (loser, "not decided")):
        assert re.search(
            rf" {re.escape(transaction.transactional_id)} Ongoing 0:0\d:\d\d \S+: {said} torn-\d ", words
        ), words
    world.client.close()


#: The end of batch 0 of a report, and the time between two.
START_MS, EVERY_MS = 1_700_000_000_000, 2_000


def line(number: int, rows: int = 1_000, partition_rows: int = 1_000, **more: Any) -> str:
    report = {"decision": "written", "version": number, "rows": rows, "elapsed_ms": 400, "commit_ms": 100}
    report |= {"bytes": 1, "wire_bytes": 1, "tasks": 1, "timestamp_ms": START_MS + number * EVERY_MS, **more}
    parts = {"t-0": {"rows": partition_rows, "first": 0, "last": 1}}
    return json.dumps({**report, "ack_p50_ms": 3, "ack_p99_ms": 40, "partitions": parts}) + "\n"


def test_streams_show_rates_gaps_and_torn_batches(url: str, reports: Path) -> None:
    assert "has no write yet. A write or a stream with the option reportPath" in get(url, "/streams").words
    file = reports / "orders & more.jsonl"
    broken = line(6, rows=0, decision="failed", error="no broker <b>", partition_rows=0)
    source = '{"source": {"batch": 5, "lag": 4321}}\n'
    file.write_text(line(0) + line(1) + line(4) + line(5, partition_rows=999) + source + broken + '{"half of a li')
    page = get(url, "/streams")
    # Two of the four rows of batches came after the first one, which begins the time: 3,000 rows in 10 s.
    assert (
        "orders & more.jsonl 5 writes Rows/s of the stream 300 Rows/s of the write 0 Acknowledged, p50 3" in page.words
    )
    assert "Behind the source 4,321 rows" in page.words
    assert re.findall(r'class="said bad">([^<]+)<', page.body) == [
        "failed: no broker &lt;b&gt;",
        "torn: its partitions have 999 rows",
        "2 before it missing from the file",
    ]
    # The clock of the first and of the last.
    assert re.search(
        r"2023-11-14 22:13:32.000 6 .* 2023-11-14 22:13:20.000 0 1,000 0 – 2,000 400 100 3 40 – ", page.words
    )
    assert re.search(r"2023-11-14 22:13:22.000 1 1,000 0 500 2,000 ", page.words)
    chart = json.loads(html.unescape(page.body.split('data-chart="')[1].split('"')[0]))
    drawn = {trace["name"]: trace["x"] for trace in chart["data"]}
    assert [len(drawn[name]) for name in ("failed", "torn", "missing")] == [1, 1, 1]
    assert len(drawn["rows/s"]) == 2 and len(drawn["tasks"]) == len(drawn["p99 until acknowledged"]) == 5
    assert drawn["behind the source"] == drawn["p99 until acknowledged"]
    assert get(url, "/static/plotly.min.js").status == 200
    assert "no broker &lt;b&gt;" in str(chart) and "<b>" not in str(chart)
    file.write_text("nonsense\n")
    assert "is not a report of a write: 'nonsense'" in get(url, "/streams").words
    assert get(url, "/streams?file=../secret").status == 404
    file.unlink()


def test_streams_mark_bad_rows(url: str, reports: Path) -> None:
    file = reports / "orders.jsonl"
    file.write_text(line(0) + line(1, partition_rows=1_007, bad_rows=7))
    page = get(url, "/streams")
    assert re.findall(r"Bad rows| 1 1,000 7 | 0 1,000 0 ", page.words) == ["Bad rows", " 1 1,000 7 ", " 0 1,000 0 "]
    assert re.findall(r'class="n bad">([^<]+)<', page.body) == ["7"]
    file.unlink()


@pytest.mark.behaviour("Pages in the browser", "A page that has nothing to show says what would fill it")
def test_pages_without_content_say_what_fills_them() -> None:
    with EmbeddedCluster() as empty, PageServer(empty.bootstrap_servers, 0) as server:
        for path, said in (
            ("/topics", "kafkalite topics create NAME"),
            ("/groups", "consumers that commit offsets make one"),
            ("/transactions", "for as long as a batch takes"),
            ("/streams", "kafkalite ui --report PATH"),
        ):
            page = get(server.url, path)
            assert (page.status, said in page.words) == (200, True), page.words
        empty.create_topic("t")
        assert "none was written, or all have been deleted" in get(server.url, "/topics/t").words


@pytest.mark.behaviour("Metrics", "The pages export streams, topics, groups and transactions as OpenMetrics")
def test_metrics_of_streams_and_cluster_are_exported(cluster: EmbeddedCluster, url: str, reports: Path) -> None:
    file = reports / "orders.jsonl"
    file.write_text(line(0) + line(1, bad_rows=7, partition_rows=1_007))
    cluster.create_topic("exported", partitions=1)
    send(cluster, *(ProducerRecord("exported", b"x") for _ in range(10)))
    with GroupAdmin(cluster.bootstrap_servers) as admin:
        admin.set_offsets("scraped", {TopicPartition("exported", 0): 4})
    # Other tests of this module asked for the topics within the last second.
    with PageServer(cluster.bootstrap_servers, 0, report=reports) as fresh:
        answer = get(fresh.url, "/metrics", Accept=OPENMETRICS)
        found = samples(answer.body)
    assert answer.headers["content-type"].startswith(OPENMETRICS)
    assert found["kafka_sink_rows_total", "orders.jsonl"] == 2_000
    assert found["kafka_topic_partition_current_offset", "0", "exported"] == 10
    assert found["kafka_consumergroup_lag", "scraped", "0", "exported"] == 6
    assert found["kafka_cluster_up",] == 1
    assert samples(get(url, "/metrics", Accept=OPENMETRICS).body)["kafka_sink_rows_total", "orders.jsonl"] == 2_000
    with file.open("a") as more:
        more.write(line(2))
    assert samples(get(url, "/metrics", Accept=OPENMETRICS).body)["kafka_sink_rows_total", "orders.jsonl"] == 3_000
    file.write_text("nonsense\n")
    assert "is not a report of a write" in get(url, "/metrics").body
    file.unlink()
    with PageServer("127.0.0.1:1", 0, timeout_ms=300) as alone:
        assert samples(get(alone.url, "/metrics", Accept=OPENMETRICS).body) == {("kafka_cluster_up",): 0}


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The values by name and labels."""
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_what_does_not_exist_is_said(url: str) -> None:
    assert get(url, "/topics/never-created").status == 404
    assert "never-created" in get(url, "/topics/never-created").words
    assert get(url, "/nothing").status == 404
    assert get(url, "/static/../pages.py").status == 404


@pytest.mark.behaviour("Pages in the browser", "Other hosts, other origins and other methods are refused")
def test_other_hosts_origins_and_methods_are_refused(url: str) -> None:
    port = urlsplit(url).port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", "[::1]:8088"):
        assert get(url, "/groups", Host=host).status == 200, host
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ""):
        assert get(url, "/groups", Host=host).status == 403, host
    own = f"localhost:{port}"
    assert get(url, "/groups", Host=own, Origin=f"http://{own}").status == 200
    for origin in ("http://evil.example", f"http://127.0.0.1:{port}", f"https://{own}", "null"):
        assert get(url, "/static/page.js", Host=own, Origin=origin).status == 403, origin
    for method in ("POST", "PUT", "DELETE"):
        assert get(url, "/topics", method).status == 405


@pytest.mark.behaviour("Pages in the browser", "No page has a secret, a script of its own or content from elsewhere")
def test_pages_have_no_secret_and_nothing_from_elsewhere(url: str) -> None:
    for path in (
        "/topics",
        "/groups",
        "/transactions",
        "/streams",
        "/metrics",
        "/nothing",
        "/static/page.css",
        "/static/page.js",
    ):
        page = get(url, path)
        assert SECRET not in page.body
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy and "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        assert re.findall(r"""(?:src|href)="(?!/|#|\?)""", page.body) == []
        assert re.findall(r"<script(?! src=)|\son\w+=|\sstyle=|@import|url\(", page.body) == []


@pytest.mark.parametrize(("password", "status"), [(SECRET, 200), (f"{SECRET}-but-wrong", 503)])
def test_password_of_a_cluster_is_used_and_never_shown(password: str, status: int) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = BrokerConfig(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_enabled_mechanisms=("PLAIN",),
        sasl_jaas_config=f'{module} username="me" password="{SECRET}" user_me="{SECRET}";',
    )
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} username="me" password="{password}";',
    }
    with (
        EmbeddedCluster(config=config) as secured,
        PageServer(secured.bootstrap_servers, 0, properties=properties, timeout_ms=5_000) as server,
    ):
        pages = [get(server.url, path) for path in ("/topics", "/groups", "/transactions")]
    assert [page.status for page in pages] == [status] * 3, pages[0].words
    assert all(SECRET not in page.body for page in pages)


def test_a_cluster_that_does_not_answer_is_told() -> None:
    with PageServer("127.0.0.1:1", 0, timeout_ms=300) as server:
        page = get(server.url, "/topics")
    assert page.status == 503
    assert "127.0.0.1:1" in page.words


@pytest.mark.behaviour("Pages in the browser", "A port in use, a missing package and a wrong option are said in a line")
def test_command_says_what_prevents_it(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["ui", "--port", str(urlsplit(url).port)]) == 1
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err
    assert run(["ui", "--port", "0", "-X", "sasl.mechanism=NONE"]) == 2
    assert "sasl.mechanism" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "kafka_sink.ui.pages")
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    assert run(["ui", "--port", "0"]) == 1
    assert "pip install 'kafkalite[ui]'" in capsys.readouterr().err


def test_broker_serves_the_pages_of_itself() -> None:
    """With the schemas of its own registry, and beside the address of its metrics."""
    command = [sys.executable, "-m", "kafka_sink.cli", "broker", "--port", "0", "--ui", "0"]
    command += ["--registry-port", "0", "--metrics-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None and broker.stderr is not None
        servers = broker.stdout.readline().strip().removeprefix("bootstrap.servers=")
        registry, url, metrics = (
            next(line for line in broker.stderr if f"{name}=" in line).partition(f"{name}=")[2].strip()
            for name in ("schema.registry.url", "ui", "metrics")
        )
        page = get(url, "/topics")
        client = RegistryClient(*registry_configs({"schema.registry.url": registry}))
        number = client.register("value", '"long"')
        with KafkaProducer({"bootstrap.servers": servers}) as producer:
            producer.send(ProducerRecord("avro", b"\0" + number.to_bytes(4) + b"\x02"))
        decoded = get(url, "/topics/avro").words
        exported = get(metrics, "/metrics", Accept=OPENMETRICS).body
        broker.terminate()
        assert broker.wait(timeout=30) == 0
    assert "There is no topic yet" in page.words
    assert servers in page.words
    assert f"schema {number} 1" in decoded
    assert "# TYPE kafka_RequestMetrics_RequestsPerSec gauge" in exported and exported.endswith("# EOF\n")
