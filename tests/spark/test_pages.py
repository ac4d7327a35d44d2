"""Code on the pages that needs only a cluster and a DataFrame does what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.consumer.log_reader import LogReader
from tests.support.pages import block
from tests.support.spark_version import requires_data_sources

ROOT = Path(__file__).parents[2]
ROWS = 500

pytestmark = requires_data_sources


@pytest.mark.behaviour("Documentation", "The writes on the pages run as they stand there")
@pytest.mark.parametrize("page", ["avro", "json", "formats"])
def test_write_of_a_page_runs_as_it_stands_there(page: str, spark: SparkSession, cluster: EmbeddedCluster) -> None:
    orders = spark.range(ROWS).selectExpr("id", "concat('customer ', id % 7) as customer")
    code = block(ROOT / "docs" / f"{page}.md", '"topic", "orders"')
    topic = f"page-{page}"
    cluster.create_topic(topic)
    exec(  # the page's own code
        code.replace("broker:9092", cluster.bootstrap_servers).replace('"topic", "orders"', f'"topic", "{topic}"'),
        {"orders": orders},
    )
    with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        assert sum(1 for _ in reader.read(topic)) == ROWS


@pytest.mark.behaviour("Documentation", "The page of dead letters reads their headers back with Spark")
def test_page_of_dead_letters_reads_them_back(
    spark: SparkSession, cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in ("page-rows", "page-rejected"):
        cluster.create_topic(topic)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "page-rows"}
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value", "cast(if(id = 3, -1, 0) as int) as partition")
    rows.write.format("kafkalite").mode("append").options(**options, deadLetterTopic="page-rejected").save()
    code = block(ROOT / "docs" / "dead-letters.md", "def header(name)")
    capsys.readouterr()
    names = {"spark": spark}
    exec(  # the page's own code
        code.replace("broker:9092", cluster.bootstrap_servers).replace("orders.rejected", "page-rejected"), names
    )
    printed = capsys.readouterr().out
    assert re.search(r"\|NULL\|3 +\|invalid-partition\|row 3 of this task ", printed), printed
    assert re.search(r"\|invalid-partition\|partition\| +1\|", printed), printed
    again = block(ROOT / "docs" / "dead-letters.md", "encoded = rejected")
    exec(again.replace("broker:9092", cluster.bootstrap_servers).replace('"orders"', '"page-rows"'), names)
    with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        assert sum(1 for _ in reader.read("page-rows")) == ROWS


@pytest.mark.behaviour("Documentation", "The writes on the pages run as they stand there")
@pytest.mark.parametrize(
    ("page", "having"),
    [("batch", "1_000_000"), ("options", "topicPartitions"), ("errors", "is_permanent"), ("api", "__version__")],
)
def test_example_of_a_page_runs(page: str, having: str, spark: SparkSession, cluster: EmbeddedCluster) -> None:
    code = block(ROOT / "docs" / f"{page}.md", having)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": f"page-{page}"}
    names = {"df": spark.range(ROWS).selectExpr("cast(id as string) as value"), "options": options}
    # The program finds the session of the tests, as in a notebook where one runs.
    exec(code.replace("broker:9092", cluster.bootstrap_servers), {**names, "spark": spark, "kafka_sink": kafka_sink})


@pytest.mark.behaviour("Documentation", "The writes on the pages run as they stand there")
@pytest.mark.parametrize(("page", "having"), [("streaming", "query = ("), ("from-spark", "orders-sink")])
def test_stream_of_a_page_writes_its_rows(
    page: str, having: str, spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.csv").write_text("k,1\nk,2\n")
    topic = f"page-{page}"
    cluster.create_topic(topic)
    rows = spark.readStream.schema("key string, value string").csv(str(tmp_path / "in"))
    code = block(ROOT / "docs" / f"{page}.md", having)
    for ours, theirs in {
        "broker:9092": cluster.bootstrap_servers,
        '"topic", "orders"': f'"topic", "{topic}"',
        "orders-sink": topic,
        "/data/orders-checkpoint": str(tmp_path / "checkpoint"),
    }.items():
        code = code.replace(ours, theirs)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    exec(code, {"orders": rows, "df": rows, "options": options})
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()
    with LogReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        assert sorted(record.value or b"" for record in reader.read(topic)) == [b"1", b"2"]
