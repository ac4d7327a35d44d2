"""The output in notebooks: the newest records as a DataFrame, and results as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafka_sink import SinkProgress, peek, write
from kafka_sink.common.errors import ConfigError
from kafka_sink.reports.writes import PartitionRange


@pytest.mark.behaviour("Streams and foreachBatch", "peek has the columns of Spark's Kafka source")
def test_peek_and_report(spark: SparkSession, cluster: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "kafka.linger.ms": "5"}
    rows = spark.range(30).selectExpr(
        "if(id = 29, null, cast(id as string)) as key",
        "cast(id as string) as value",
        "timestamp_millis(1700000000123 + id) as timestamp",
        "array(named_struct('key', 'h', 'value', cast('v' as binary))) as headers",
    )
    # One task, because the last offsets of a partition are those of the task that wrote last.
    report = write(rows.coalesce(1), options=options)
    html = report._repr_html_()
    assert "<td>rows</td><td>30</td>" in html
    assert f"<td>{topic}-0</td>" in html

    shown = peek(spark, {**options, "txnAppId": "not of interest"}, 5)
    # The columns are those of Spark's Kafka source with includeHeaders.
    assert shown.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    found = shown.selectExpr("cast(value as string) v", "key is null n", "unix_millis(timestamp) t", "topic", "headers")
    records = found.collect()
    assert [(row.v, row.n, row.t) for row in records] == [
        (str(number), number == 29, 1700000000123 + number) for number in range(25, 30)
    ]
    assert {row.topic for row in records} == {topic}
    assert [(each.key, bytes(each.value)) for each in records[0].headers] == [("h", b"v")]
    assert peek(spark, options, topic=new_topic(1)).count() == 0


def test_peek_explains_missing_topic_and_wrong_count(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="peek needs a topic"):
        peek(spark, {"kafka.bootstrap.servers": "127.0.0.1:9092"})
    with pytest.raises(ConfigError, match="count must be 1 or more, got 0"):
        peek(spark, {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}, 0)


def test_progress_as_html() -> None:
    partitions = {f"<t>-{number}": PartitionRange(1, 0, 0) for number in range(51)}
    progress = SinkProgress(7, "written", 1234567, 1, 1, 1, 1, 1, None, None, partitions)
    html = progress._repr_html_()
    assert "<td>rows</td><td>1,234,567</td>" in html
    assert "<td>ack_p50_ms</td><td></td>" in html
    assert "&lt;t&gt;-0" in html and "<t>" not in html
    assert "<td>and 1 more</td>" in html
