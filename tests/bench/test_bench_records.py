"""The comparison of clients still runs, and every client stores every record; its measurements are not checked."""

from __future__ import annotations

import pytest

from kafka_sink import EmbeddedCluster
from tests.bench.bench_records import CLIENTS, make_pairs, measure


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_stores_every_record(name: str, each: bool) -> None:
    with EmbeddedCluster() as cluster:
        pairs = make_pairs(key_bytes=8, value_bytes=20)
        assert measure(name, cluster.bootstrap_servers, pairs, 300, partitions=2, each=each) > 0
