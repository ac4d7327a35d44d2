"""The metrics of a cluster for Prometheus, under the names that kafka_exporter gives to those that it has as well.

Called by the threads of the web server; it asks what the pages show.

Source: https://github.com/danielqsj/kafka_exporter#metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.metrics import Metric
from kafka_sink.ui.cluster_view import ClusterView


def cluster_metrics(cluster: ClusterView) -> Iterator[Metric]:
    """Offsets of partitions, lags of groups, batches of sinks, and open transactions; only that the cluster is down, if
    it does not answer."""
    try:
        found = [*_of_topics(cluster), *_of_groups(cluster), *_of_transactions(cluster)]
    except (KafkaError, OSError):
        yield Metric("up", "cluster", (), 0)
        return
    yield Metric("up", "cluster", (), 1)
    yield from found


def _of_topics(cluster: ClusterView) -> Iterator[Metric]:
    for topic in cluster.topics():
        for each in topic.partitions:
            tags = (("topic", topic.name), ("partition", str(each.number)))
            under_replicated = len(each.in_sync) < len(each.replicas)
            yield Metric("partition-under-replicated-partition", "topic", tags, under_replicated)
            if each.first is not None and each.end is not None:
                yield Metric("partition-oldest-offset", "topic", tags, each.first)
                yield Metric("partition-current-offset", "topic", tags, each.end)


def _of_groups(cluster: ClusterView) -> Iterator[Metric]:
    for group in cluster.groups()[1]:
        name = ("consumergroup", group["group"])
        yield Metric("members", "consumergroup", (name,), group["members"])
        for each in group["partitions"]:
            if each["lag"] is not None:
                tags = (name, ("topic", each["topic"]), ("partition", str(each["partition"])))
                yield Metric("lag", "consumergroup", tags, each["lag"])
        for sink in group["sinks"]:
            of_sink = (("sink", group["group"]), ("topic", sink["topic"]))
            yield Metric("progress-batch", "sink", of_sink, sink["last_batch"])
            yield Metric("progress-age-seconds", "sink", of_sink, sink["age_s"])


def _of_transactions(cluster: ClusterView) -> Iterator[Metric]:
    _, found = cluster.transactions()
    yield Metric("open", "transactions", (), len(found))
    yield Metric("oldest-age-seconds", "transactions", (), max((each.age_s or 0 for each in found), default=0))
