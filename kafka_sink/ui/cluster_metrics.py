"""The metrics of a cluster for Prometheus, under the names that kafka_exporter gives to those that it has as well.

Called by the threads of the web server; it asks what the pages show.

Source: https://github.com/danielqsj/kafka_exporter#metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafka_sink.common.errors import KafkaError
from kafka_sink.common.metrics import Family, Metric
from kafka_sink.ui.cluster_view import ClusterView

_UP: Final = Family(
    "cluster",
    "up",
    "1 if the cluster answers, 0 if not: all other metrics of the cluster are then missing. Try kafkalite topics list "
    "with the same options from the same machine.",
)
_UNDER_REPLICATED: Final = Family(
    "topic",
    "partition-under-replicated-partition",
    "1 if a replica of the partition is not in sync. Look for the broker that is down or slow: kafkalite topics "
    "describe.",
)
_OLDEST_OFFSET: Final = Family(
    "topic",
    "partition-oldest-offset",
    "First offset that the partition still has. It moves when retention or compaction deletes.",
)
_CURRENT_OFFSET: Final = Family(
    "topic",
    "partition-current-offset",
    "Offset of the next record of the partition, transaction markers included. Its rate is that of all writers.",
)
_MEMBERS: Final = Family(
    "consumergroup",
    "members",
    "Members of the group. 0 is normal for the group of an exactly-once sink, which is no consumer.",
)
_LAG: Final = Family(
    "consumergroup",
    "lag",
    "Records of the partition that the group has not committed. If it grows, its consumers are slower than the "
    "writers, or stopped; readers of committed records may also wait for an open transaction.",
)
_PROGRESS_BATCH: Final = Family("sink", "progress-batch", "Last batch that an exactly-once sink has committed.")
_PROGRESS_AGE: Final = Family(
    "sink",
    "progress-age-seconds",
    "Time since that commit. If it is far above the trigger's interval, the query is stalled or its source is empty.",
)
_OPEN: Final = Family(
    "transactions",
    "open",
    "Transactions that are open in the cluster, of any application. It goes up and down with each batch.",
)
_OLDEST_AGE: Final = Family(
    "transactions",
    "oldest-age-seconds",
    "Age of the oldest open transaction; 0 if there is none. Readers of committed records wait behind it: beyond "
    "transaction.timeout.ms it hangs, see kafkalite txn hanging.",
)
FAMILIES: Final = (
    _UP,
    _UNDER_REPLICATED,
    _OLDEST_OFFSET,
    _CURRENT_OFFSET,
    _MEMBERS,
    _LAG,
    _PROGRESS_BATCH,
    _PROGRESS_AGE,
    _OPEN,
    _OLDEST_AGE,
)


def cluster_metrics(cluster: ClusterView) -> Iterator[Metric]:
    """Offsets of partitions, lags of groups, batches of sinks, and open transactions; only that the cluster is down, if
    it does not answer."""
    try:
        metrics = [*_of_topics(cluster), *_of_groups(cluster), *_of_transactions(cluster)]
    except (KafkaError, OSError):
        yield _UP.at(0)
        return
    yield _UP.at(1)
    yield from metrics


def _of_topics(cluster: ClusterView) -> Iterator[Metric]:
    for topic in cluster.topics():
        for each in topic.partitions:
            tags = (("topic", topic.name), ("partition", str(each.number)))
            under_replicated = len(each.in_sync) < len(each.replicas)
            yield _UNDER_REPLICATED.at(under_replicated, *tags)
            if each.first is not None and each.end is not None:
                yield _OLDEST_OFFSET.at(each.first, *tags)
                yield _CURRENT_OFFSET.at(each.end, *tags)


def _of_groups(cluster: ClusterView) -> Iterator[Metric]:
    for group in cluster.groups()[1]:
        name = ("consumergroup", group["group"])
        if group["problem"]:
            continue
        yield _MEMBERS.at(group["members"], name)
        for each in group["partitions"]:
            if each["lag"] is not None:
                tags = (name, ("topic", each["topic"]), ("partition", str(each["partition"])))
                yield _LAG.at(each["lag"], *tags)
        for sink in group["sinks"]:
            of_sink = (("sink", group["group"]), ("topic", sink["topic"]))
            yield _PROGRESS_BATCH.at(sink["last_batch"], *of_sink)
            yield _PROGRESS_AGE.at(sink["age_s"], *of_sink)


def _of_transactions(cluster: ClusterView) -> Iterator[Metric]:
    _, transactions = cluster.transactions()
    yield _OPEN.at(len(transactions))
    yield _OLDEST_AGE.at(max((each.age_s or 0 for each in transactions), default=0))
