"""Spark's own format("kafka"), unmodified, on the embedded broker: as source of queries and streams, and as sink."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from tests.conftest import Figure
from tests.support.amounts import only_long
from tests.support.real_kafka import skip_without_kafka
from tests.support.spark_jars import connector_jars

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
#: The number of transactions; every sixth one is aborted.
TRANSACTIONS = 12
ROWS = 25
TIMEOUT_S = 200

Row = list[Any]


def write(cluster: EmbeddedCluster, topic: str, first_ms: int) -> tuple[list[Row], list[Row]]:
    """Return rows as :mod:`tests.support.spark_connector` prints them: all rows, and the committed ones."""
    everything, committed = [], []
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    with KafkaProducer(properties) as producer:
        producer.init_transactions()
        for transaction in range(TRANSACTIONS):
            producer.begin_transaction()
            sent = []
            for number in range(transaction * ROWS, (transaction + 1) * ROWS):
                key = None if number % 7 == 0 else f"key-{number}"
                headers = [("row", str(number).encode())] * (number % 3)
                record = ProducerRecord(
                    topic,
                    f"väl {number}".encode(),
                    key=None if key is None else key.encode(),
                    partition=number % PARTITIONS,
                    timestamp=first_ms + number * 1000,
                    headers=headers,
                )
                sent.append((number, key, headers, producer.send(record)))
            producer.flush()
            rows: list[Row] = [
                [
                    number % PARTITIONS,
                    future.result().offset,
                    key,
                    f"väl {number}",
                    first_ms + number * 1000,
                    [[name, value.decode()] for name, value in headers],
                ]
                for number, key, headers, future in sent
            ]
            everything += rows
            if transaction % 6 == 5:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed += rows
    return sorted(everything, key=lambda row: row[:2]), sorted(committed, key=lambda row: row[:2])


def contents(cluster: EmbeddedCluster, topic: str) -> list[tuple[Any, ...]]:
    """Return partition, key, value and headers of all records in *topic*, as librdkafka reads them."""
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer(properties)
    found: list[tuple[Any, ...]] = []
    ended: set[int | None] = set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
                continue
            # Without deserializers all values are bytes, and here none is null.
            given = cast("list[tuple[str, bytes]]", message.headers() or [])
            headers = [[name, data.decode()] for name, data in given]
            key, value = message.key(), message.value()
            assert value is not None
            found.append((message.partition(), None if key is None else key.decode(), value.decode(), headers))
    finally:
        consumer.close()
    return sorted(found, key=repr)


@only_long
@pytest.mark.behaviour(
    "Spark's own Kafka connector", "A query with one checkpoint goes from it to kafkalite and back, each row once"
)
@pytest.mark.behaviour(
    "Spark's own Kafka connector",
    "Queries and streams read rows with headers and timestamps, and committed rows only; its sink writes",
)
def test_sparks_own_source_and_sink(tmp_path: Path, figure: Figure) -> None:
    skip_without_kafka()
    with EmbeddedCluster(nodes=3) as cluster:
        for name in ("t", "t-query", "t-stream", "t-turns"):
            cluster.create_topic(name, partitions=PARTITIONS)
        # From now on: transaction markers have timestamps, too, and a search for a later timestamp must skip them.
        first_ms = int(time.time() * 1000)
        everything, committed = write(cluster, "t", first_ms)
        since_ms = first_ms + 100_000
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.support.spark_connector", connector_jars(), cluster.bootstrap_servers),
                *("t", str(since_ms), str(tmp_path / "checkpoint")),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        read = json.loads(done.stdout.splitlines()[-1])
        assert read == {
            "query": everything,
            "query, committed": committed,
            "query, since": [row for row in everything if row[4] >= since_ms],
            "stream, committed, since": [row for row in committed if row[4] >= since_ms],
        }
        wanted = sorted(((row[0], row[2], row[3], row[5]) for row in committed), key=repr)
        assert contents(cluster, "t-query") == wanted
        assert contents(cluster, "t-stream") == wanted
        in_turns = [value for _, _, value, _ in contents(cluster, "t-turns")]
        assert sorted(in_turns, key=int) == [str(number) for number in range(50)]
        figure("rows, and committed", f"{len(everything)}, {len(committed)}")
