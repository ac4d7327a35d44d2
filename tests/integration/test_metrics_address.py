"""The address that Prometheus scrapes, read by the parser of Prometheus' own client."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.common import metrics
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.exposition import OPENMETRICS
from kafka_sink.http.local_server import MetricsServer
from scripts.metric_table import SECTIONS


def by_name(text: str) -> dict[str, Metric]:
    families: Iterable[Metric] = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {family.name: family for family in families}


@pytest.mark.behaviour("Metrics", "Brokers and producers show OpenMetrics, at an address too")
def test_metrics_are_openmetrics_with_help_and_types() -> None:
    with EmbeddedCluster() as cluster, MetricsServer("127.0.0.1", 0, cluster.metrics) as server:
        cluster.create_topic("t", 2)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "me"}) as producer:
            for number in range(10):
                producer.send(ProducerRecord("t", b"x", partition=number % 2))
            producer.flush()
            sent = by_name(producer.prometheus())
            families = {each.family for each in (*producer.all_metrics(), *cluster.metrics())}
        asked = urllib.request.Request(server.url, headers={"Accept": f"{OPENMETRICS};version=1.0.0"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith(OPENMETRICS)
            found = by_name(answer.read().decode())
    assert len(found) > 10 and all(family.documentation for family in found.values())
    assert families <= {family for _, named in SECTIONS.values() for family in named}
    (records,) = (each for each in sent["kafka_producer_metrics_record_send"].samples)
    assert (records.name, records.value, records.labels) == (
        "kafka_producer_metrics_record_send_total",
        10,
        {"client_id": "me"},
    )
    assert sent["kafka_producer_metrics_record_send"].type == "counter"


def failing() -> list[metrics.Metric]:
    raise ValueError("orders.jsonl line 1 is no report")


def test_other_paths_and_other_hosts_are_refused() -> None:
    with MetricsServer("127.0.0.1", 0, list) as server:
        url = server.url
        for request, code in (
            (urllib.request.Request(url.removesuffix("/metrics")), 404),
            (urllib.request.Request(url, headers={"Host": "example.org"}), 403),
            (urllib.request.Request(url, headers={"Origin": "http://example.org"}), 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=30)
            assert refused.value.code == code
        server_of_nothing = MetricsServer("127.0.0.1", 0, failing)
        with server_of_nothing, pytest.raises(urllib.error.HTTPError, match="503") as failed:
            urllib.request.urlopen(server_of_nothing.url, timeout=30)
        assert failed.value.read().decode() == "orders.jsonl line 1 is no report\n"
        port = int(url.rpartition(":")[2].partition("/")[0])
        with (
            pytest.raises(
                ConfigError, match=f"cannot be served: cannot listen on 127.0.0.1:{port}: .*choose another port, or 0"
            ),
            MetricsServer("127.0.0.1", port, list),
        ):
            raise AssertionError("the port is in use")
