"""What a cluster refuses before anything runs."""

from __future__ import annotations

import re

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError


@pytest.mark.parametrize(
    ("nodes", "listeners", "text"),
    [
        (2, "A://127.0.0.1:65535", "2 nodes on A://127.0.0.1:65535 and the ports after it: 65536 is none"),
        (1, "A://127.0.0.1:9092,B://127.0.0.1:9092", "would both be at 127.0.0.1:9092"),
        (2, "A://127.0.0.1:9092,B://127.0.0.1:9093", "B://127.0.0.1:9093 of node 1 and A://127.0.0.1:9092 of node 2"),
    ],
)
@pytest.mark.parametrize("option", ["listeners", "advertised.listeners"])
def test_ports_that_nodes_would_share_are_refused(option: str, nodes: int, listeners: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        EmbeddedCluster(nodes, config=parse(BrokerConfig, {option: listeners}))


def test_free_ports_and_ports_that_are_apart_are_nobodys_trouble() -> None:
    EmbeddedCluster(3, config=parse(BrokerConfig, {"listeners": "A://127.0.0.1:0,B://127.0.0.1:0"}))
    EmbeddedCluster(3, config=parse(BrokerConfig, {"listeners": "A://127.0.0.1:9092,B://127.0.0.1:9095"}))


@pytest.mark.parametrize(
    ("advertised", "text"),
    [
        ("B://127.0.0.1:5", "option advertised.listeners: there is no listener B, only A"),
        ("A://0.0.0.0:5", "option advertised.listeners: nobody can connect to A://0.0.0.0:5"),
        ("A://[::]:5", "option advertised.listeners: nobody can connect to A://[::]:5"),
    ],
)
def test_addresses_that_lead_nowhere_are_not_advertised(advertised: str, text: str) -> None:
    config = parse(BrokerConfig, {"listeners": "A://127.0.0.1:0", "advertised.listeners": advertised})
    with pytest.raises(ConfigError, match=re.escape(text)):
        EmbeddedCluster(config=config).start()


def test_where_version_6_is_spoken_clients_are_told_so() -> None:
    with EmbeddedCluster(host="::1") as cluster:
        assert re.fullmatch(r"\[::1\]:[0-9]+", cluster.bootstrap_servers)
