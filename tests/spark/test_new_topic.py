"""topicPartitions in Spark: every way to write creates the topic before its tasks begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources


@pytest.fixture(scope="module")
def strict_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as running:
        yield running


@pytest.mark.behaviour("Dead letters", "topicPartitions creates the dead letter topic too")
@pytest.mark.behaviour("Sink options and commit messages", "topicPartitions creates a missing topic, once")
@pytest.mark.parametrize(
    "way", ["write", *(pytest.param(way, marks=requires_data_sources) for way in ("save", "numbered save", "stream"))]
)
def test_topic_is_created(strict_cluster: EmbeddedCluster, spark: SparkSession, way: str, tmp_path: Path) -> None:
    servers, topic = strict_cluster.bootstrap_servers, f"new-{os.urandom(4).hex()}"
    rejected = f"{topic}-rejected"
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "topicPartitions": "3", "deadLetterTopic": rejected}
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    if way == "stream":
        source = str(tmp_path / "rows")
        rows.write.text(source)
        stream = spark.readStream.schema("value string").text(source).writeStream.format("kafkalite")
        stream = stream.options(**options).option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.trigger(availableNow=True).start().awaitTermination()
    elif way == "write":
        kafka_sink.write(rows, options=options, app_id=f"app-{topic}", version=0)
    else:
        numbered = {"txnAppId": f"app-{topic}", "txnVersion": "0"} if way == "numbered save" else {}
        rows.write.format("kafkalite").mode("append").options(**options, **numbered).save()
    assert sorted(int(message.value or b"") for message in read_topic(servers, topic)) == list(range(10))
    with AdminClient(servers) as admin:
        found = admin.describe_topics([topic, rejected])
        assert [len(found[each].partitions) for each in (topic, rejected)] == [3, 3]
