"""What tasks of one worker process tell each other of their clusters, and what they do not."""

from __future__ import annotations

from kafka_sink.client.cluster import Cluster
from kafka_sink.client.metadata import KnownCluster
from kafka_sink.spark.known_clusters import MOST_AGE_MS, KnownClusters
from tests.fakes.manual_clock import ManualClock

HERE = {"bootstrap.servers": "a:9092", "linger.ms": "5"}


def test_each_cluster_is_told_only_to_producers_of_the_same_properties() -> None:
    clock = ManualClock()
    known = KnownClusters(clock)
    here, there = (KnownCluster(Cluster([], []), clock.now_ms) for _ in range(2))
    known.keep(HERE, here)
    elsewhere = {**HERE, "bootstrap.servers": "b:9092"}
    assert known.find(elsewhere) is None
    known.keep(elsewhere, there)
    assert known.find(dict(reversed(HERE.items()))) is here
    assert known.find(elsewhere) is there
    known.keep(elsewhere, None)
    assert (known.find(HERE), known.find(elsewhere)) == (here, None)


def test_what_is_too_old_is_not_told() -> None:
    clock = ManualClock()
    known = KnownClusters(clock)
    known.keep(HERE, KnownCluster(Cluster([], []), clock.now_ms))
    clock.advance(MOST_AGE_MS)
    assert known.find(HERE) is not None
    clock.advance(1)
    assert known.find(HERE) is None
