"""kill -9 of the broker while Spark writes: the write recovers or fails, and no acknowledged row is missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kafka_sink
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.model import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.readback import read_topic
from tests.support.spark_version import HAS_DATA_SOURCES

ROWS = 30_000
#: The write takes six seconds, so that the kill is during it on a busy machine, too.
SLOWLY = {"maxRecordsPerSecond": "2500"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    yield process
    process.stop()


def write(df: DataFrame, broker: BrokerProcess, options: dict[str, str]) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **options}
    if HAS_DATA_SOURCES:
        df.write.format("kafkalite").options(**options).mode("append").save()
    else:
        kafka_sink.write(df, options=options)


def wait_for_rows(broker: BrokerProcess, topic: str, stop: threading.Event) -> None:
    """Return once the topic has rows, so that the kill is during the write."""
    with AdminClient(broker.bootstrap_servers) as admin:
        while not stop.wait(0.02):
            ends = admin.offsets(TopicPartition(topic, number) for number in range(4))
            if sum(ends.values()) > ROWS // 10:
                return


def test_write_recovers_when_the_broker_comes_back(spark: SparkSession, broker: BrokerProcess) -> None:
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic("crash", partitions=4)
    df = spark.range(0, ROWS, numPartitions=2).select(
        f.col("id").cast("string").alias("key"), f.repeat(f.lit("v"), 100).alias("value")
    )
    stop = threading.Event()

    def crash() -> None:
        wait_for_rows(broker, "crash", stop)
        broker.kill()
        broker.start()

    killer = threading.Thread(target=crash)
    killer.start()
    try:
        write(df, broker, {"topic": "crash", "kafka.batch.size": "16384", **SLOWLY})
        assert broker.kills == 1, "the write was over before the broker was killed"
    finally:
        stop.set()
        killer.join()
    keys = [int(message.key or b"-1") for message in read_topic(broker.bootstrap_servers, "crash")]
    # The sink's producer is idempotent, so the batches that it retried are stored once.
    assert len(keys) == ROWS
    assert set(keys) == set(range(ROWS))


def test_write_fails_when_the_broker_stays_away(spark: SparkSession, broker: BrokerProcess) -> None:
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic("gone", partitions=2)
    broker.stop()
    df = spark.range(10_000).select(f.col("id").cast("string").alias("value"))
    with pytest.raises(Exception, match="no broker could be reached within 1500 ms"):
        write(df, broker, {"topic": "gone", "kafka.max.block.ms": "1500"})
