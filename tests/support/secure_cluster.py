"""An embedded cluster with a listener for every security protocol, and clients of each kind for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.config import parse
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MAX_BLOCK_MS = 20_000
USER = "al,ice=1"
#: Unlike any other text, so that tests can search for it.
PASSWORD = 'S3cr3t,"x\\y=ü'
#: Texts that no log, repr or error may contain.
SECRETS = ("S3cr3t", "PRIVATE KEY", "k3y-p4ss")


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def users(**passwords: str) -> str:
    """Return the broker's ``sasl.jaas.config``; a name with other characters than letters is passed like ``USER``."""
    entries = " ".join(f"user_{name}={quoted(password)}" for name, password in passwords.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {entries};"


@contextlib.contextmanager
def guarded_cluster(**passwords: str) -> Iterator[EmbeddedCluster]:
    """Within, a cluster with ACLs runs: clients with PLAIN need them, and unauthenticated ones have all permissions."""
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": users(**passwords),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedCluster(config=parse(BrokerConfig, properties)) as running:
        yield running


@contextlib.contextmanager
def secure_cluster(keystore: str, host: str = "127.0.0.1", **properties: Any) -> Iterator[EmbeddedCluster]:
    """Within, a cluster of one node runs: its first listener is PLAINTEXT, those with TLS have the PEM *keystore*."""
    key, _, chain = keystore.partition("-----BEGIN CERTIFICATE-----")
    config = parse(
        BrokerConfig,
        {
            "listeners": [f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS],
            "advertised.listeners": [f"{protocol}://{host}:0" for protocol in PROTOCOLS if protocol != "PLAINTEXT"],
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE-----{chain}",
            "sasl.enabled.mechanisms": MECHANISMS,
            "sasl.jaas.config": users(alice=PASSWORD, bob="b"),
            **{name.replace("_", "."): value for name, value in properties.items()},
        },
    )
    with EmbeddedCluster(config=config) as cluster:
        cluster.create_topic("t", 1)
        yield cluster


def address(cluster: EmbeddedCluster, listener: str) -> str:
    endpoint = cluster.nodes[1][listener]
    return f"{endpoint.host}:{endpoint.port}"


def client_properties(cluster: EmbeddedCluster, listener: str, **properties: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address(cluster, listener),
        "security.protocol": listener,
        "max.block.ms": MAX_BLOCK_MS,
        "delivery.timeout.ms": 30_000,
        "request.timeout.ms": 10_000,
        **{name.replace("_", "."): value for name, value in properties.items()},
    }


def produce(properties: Mapping[str, Any], count: int = 10, topic: str = "t") -> int:
    """Send *count* records and return how many were acknowledged; raise the first error, without sending more."""
    with KafkaProducer(properties) as producer:
        producer.send(ProducerRecord(topic, b"first")).result(60)
        futures = [producer.send(ProducerRecord(topic, b"%d" % number)) for number in range(1, count)]
        producer.flush()
        return 1 + len([future.result(60) for future in futures])
