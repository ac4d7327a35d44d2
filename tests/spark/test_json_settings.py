"""Settings of Spark's session that change what ``to_json`` writes: the payloads are equal, with each value."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import kafka_sink
from tests.support.readback import read_topic
from tests.support.spark_version import requires_spark

IGNORES_NULLS = "spark.sql.jsonGenerator.ignoreNullFields"
ZONE = "spark.sql.session.timeZone"
COLUMNS = """named_struct('a', cast(null as int), 'inner', named_struct('b', cast(null as string), 'c', 1),
    'list', array(named_struct('d', cast(null as date))), 'at', timestamp'2026-07-01 12:00:00', 'n', null)"""


@pytest.mark.behaviour("JSON", "Settings of Spark's session change payloads as they change to_json")
@pytest.mark.parametrize("way", ["write", "format"])
@pytest.mark.parametrize(
    ("setting", "value"), [(IGNORES_NULLS, "false"), (IGNORES_NULLS, "true"), (ZONE, "Asia/Kolkata"), (ZONE, "UTC")]
)
def test_payloads_follow_the_settings(spark: SparkSession, cluster: Any, setting: str, value: str, way: str) -> None:
    if way == "format" and not hasattr(spark, "dataSource"):
        pytest.skip("needs Spark 4.0: Python data sources")
    topic = f"{way}-{setting}-{value}".replace("/", "-")
    cluster.create_topic(topic, partitions=1)
    before = spark.conf.get(setting, None)
    spark.conf.set(setting, value)
    try:
        frame = spark.sql(f"select {COLUMNS} as value")
        expected = frame.select(f.to_json("value")).first()[0]  # type: ignore[index]
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": topic,
            "value.format": "json",
        }
        if way == "write":
            kafka_sink.write(frame, options)
        else:
            kafka_sink.register(spark)
            frame.write.format("kafkalite").mode("append").options(**options).save()
    finally:
        spark.conf.unset(setting) if before is None else spark.conf.set(setting, before)
    (record,) = read_topic(cluster.bootstrap_servers, topic)
    assert record.value == expected.encode()
    assert ("a" in json.loads(expected)) is (value == "false")


@requires_spark("4.1", "the type TIME")
def test_times_of_day_are_those_of_to_json(spark: SparkSession, cluster: Any) -> None:
    texts = ("12:34:56.123456", "12:34:56", "23:59:59.1", "00:00:00.000001", "00:00:01.01", "01:02:03.120")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    cluster.create_topic("times", partitions=1)
    fields = ", ".join(f"'t{at}', time'{text}'" for at, text in enumerate(texts))
    frame = spark.sql(f"select named_struct({fields}, 'null', cast(null as time)) as value")
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "times", "value.format": "json"}
    kafka_sink.write(frame, options)
    (record,) = read_topic(cluster.bootstrap_servers, "times")
    assert record.value == frame.select(f.to_json("value")).first()[0].encode()  # type: ignore[index]
