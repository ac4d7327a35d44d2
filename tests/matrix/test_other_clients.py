"""Clients of other projects write and read the rows on the embedded broker over TLS, and so do kafkalite's commands.

Kafka's Java tools, which need a JVM each, run only in ``scripts/test.sh --matrix``.
"""

from __future__ import annotations

import base64
import collections
import json
import re
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from confluent_kafka import KafkaError, Producer

from kafka_sink import KafkaProducer
from tests.bench.topics import fresh_topic
from tests.conftest import Figure
from tests.matrix.conftest import IS_FULL
from tests.matrix.payload import WHOLE, Payload, judge, verdict_on
from tests.support.command_line import run_command
from tests.support.deliveries import noting
from tests.support.real_kafka import run_script
from tests.support.securities import PASSWORD, SASL_SSL, SSL, USER, SecureServer, Security

PARTITIONS = 4
LIMIT_S = 600
TOOLS = "org.apache.kafka.tools."
JAVA_RECORD_BYTES = 1_000

pytestmark = pytest.mark.timeout(LIMIT_S + 40)
over_tls = pytest.mark.parametrize(
    "security", [SSL, SASL_SSL] if IS_FULL else [SASL_SSL], ids=lambda security: security.name
)


@pytest.fixture
def topic(embedded: SecureServer, security: Security) -> Iterator[str]:
    with fresh_topic(embedded.looks[security], PARTITIONS) as name:
        yield name


@pytest.mark.behaviour("Security under load", "Other clients write and read over TLS")
@over_tls
def test_librdkafka_writes_and_reads_over_tls(
    embedded: SecureServer, security: Security, topic: str, payload: Payload
) -> None:
    properties = embedded.librdkafka_properties(security)
    failed: list[KafkaError] = []
    producer = Producer({**properties, "linger.ms": 5, "enable.idempotence": True})
    for number, value in enumerate(payload.values):
        while True:
            try:
                producer.produce(topic, value, b"%d" % number, on_delivery=noting(failed))
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(LIMIT_S) == 0
    assert failed == []
    assert judge(payload, properties, topic) == WHOLE


@pytest.mark.behaviour("Security under load", "Other clients write and read over TLS")
@over_tls
def test_kafka_python_writes_and_reads_over_tls(
    embedded: SecureServer, security: Security, topic: str, payload: Payload
) -> None:
    properties = {
        "bootstrap_servers": embedded.addresses[security],
        "security_protocol": security.protocol,
        "ssl_cafile": str(embedded.keys.truststore),
    }
    if security.mechanism:
        properties |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
    producer = kafka.KafkaProducer(**properties, acks="all", linger_ms=5, batch_size=262_144)
    try:
        sent = [producer.send(topic, value, b"%d" % number) for number, value in enumerate(payload.values)]
        producer.flush(LIMIT_S)
        assert all(future.succeeded() for future in sent)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**properties, consumer_timeout_ms=20_000)
    found: dict[int, list[tuple[int, bytes | None]]] = collections.defaultdict(list)
    try:
        partitions = [kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        rest = sum(consumer.end_offsets(partitions).values())
        while rest:
            polled = consumer.poll(20_000)
            assert polled
            for partition, records in polled.items():
                found[partition.partition] += [(int(record.key), record.value) for record in records]
                rest -= len(records)
    finally:
        consumer.close()
    assert verdict_on(payload, found.values()) == WHOLE


@pytest.mark.behaviour("Security under load", "Other clients write and read over TLS")
@pytest.mark.skipif(not IS_FULL, reason="a part of scripts/test.sh --matrix")
@over_tls
def test_javas_performance_tools_over_tls(
    embedded: SecureServer, security: Security, topic: str, payload: Payload, tmp_path: Path, figure: Figure
) -> None:
    config = tmp_path / "client.properties"
    properties = embedded.client_properties(security)
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    common = ("--bootstrap-server", properties["bootstrap.servers"], "--command-config", str(config), "--topic", topic)
    count = str(payload.rows)
    size = ("--record-size", str(JAVA_RECORD_BYTES), "--throughput", "-1")
    written = run_script(
        "run", f"{TOOLS}ProducerPerformance", *common, "--num-records", count, *size, timeout_s=LIMIT_S
    )
    assert f"{count} records sent" in written
    figure("records/s written", re.findall(r"([\d.]+) records/sec", written)[-1])
    read = run_script(
        "run", f"{TOOLS}ConsumerPerformance", *common, "--num-records", count, "--hide-header", timeout_s=LIMIT_S
    )
    figures = [part.strip() for part in read.strip().splitlines()[-1].split(",")]
    assert figures[4] == count, read
    figure("MB/s read", figures[3])


@pytest.mark.behaviour("Security under load", "kafkalite consume and kafkalite verify read over TLS")
@over_tls
def test_consume_and_verify_read_over_tls(
    embedded: SecureServer, security: Security, topic: str, payload: Payload
) -> None:
    properties = embedded.client_properties(security)
    with KafkaProducer(properties) as producer:
        producer.send_columns(topic, payload.table).result(LIMIT_S)
    connection = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")][2:]
    connection += ["--bootstrap-server", properties["bootstrap.servers"]]
    printed = printed_by("consume", topic, *connection)
    found: dict[int, list[tuple[int, bytes | None]]] = collections.defaultdict(list)
    for line in printed.splitlines():
        record = json.loads(line)
        value = record["value"]
        value = base64.b64decode(value["base64"]) if isinstance(value, dict) else value.encode()
        found[record["partition"]].append((int(record["key"]), value))
    assert verdict_on(payload, found.values()) == WHOLE
    verdict = json.loads(printed_by("verify", topic, "--against", str(payload.files[0].parent), "--json", *connection))
    assert verdict["equal"]
    assert verdict["expected"] == payload.rows


def printed_by(*arguments: str) -> str:
    done = run_command(arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
