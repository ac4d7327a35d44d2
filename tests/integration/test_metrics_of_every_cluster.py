"""Metrics of clusters with many transactional ids, and of services without transactions."""

from __future__ import annotations

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.ui.cluster_view import MOST_TRANSACTIONS, ClusterView, cluster_metrics
from tests.support.hosted_proxy import HostedProxy


def found(servers: str) -> dict[str, float]:
    view = ClusterView(servers, {}, 15_000)
    try:
        return {metric.name: metric.value for metric in cluster_metrics(view)}
    finally:
        view.close()


def test_an_open_transaction_is_seen_behind_many_ids() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        client = CoordinatorClient({"bootstrap.servers": cluster.bootstrap_servers}, timeout_ms=20_000)
        for number in range(MOST_TRANSACTIONS):
            client.run(client.init_producer_id(f"a-{number:04}", 60_000))
        client.close()
        to = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "z"}
        with KafkaProducer(to) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(ProducerRecord("t", b"x"))
            producer.flush()
            assert found(cluster.bootstrap_servers)["open"] == 1
            producer.abort_transaction()


def test_a_service_without_transactions_is_up() -> None:
    with EmbeddedCluster() as cluster, HostedProxy(cluster.bootstrap_servers) as proxy:
        cluster.create_topic("t", 1)
        metrics = found(proxy.bootstrap_servers)
        assert metrics["up"] == 1 and "partition-current-offset" in metrics and "open" not in metrics
