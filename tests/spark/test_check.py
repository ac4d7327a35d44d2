"""``kafka_sink.check``: the same steps from the driver and from an executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import kafka_sink
from kafka_sink import check
from kafka_sink.preflight.findings import CheckReport, Status
from kafka_sink.spark.format_lookup import STEP
from kafka_sink.testing import EmbeddedRegistry
from tests.support.ports import free_ports


def places(report: CheckReport) -> list[str]:
    return list(dict.fromkeys(each.place.split()[0] for each in report.findings))


@pytest.mark.behaviour("kafkalite check", "Spark's driver and an executor both try every broker")
@pytest.mark.parametrize(
    "extra", [{}, {"txnAppId": "app"}, {"transactionalIdPrefix": "sink"}], ids=["plain", "batch", "stream"]
)
def test_both_places(spark: SparkSession, cluster: Any, new_topic: Callable[..., str], extra: dict[str, str]) -> None:
    topic = new_topic()
    nothing = dict.fromkeys(["deadLetterTopic", "kafka.client.id", "schema.registry.url"])
    report = check(spark, {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **extra, **nothing})
    assert report.is_ok, report
    assert "None" not in repr(report)
    assert places(report) == ["driver", "executor"]
    for place in places(report):
        mine = [each for each in report.findings if each.place.startswith(place)]
        assert [each.step for each in mine][:4] == ["options", "name", "port", "cluster"]
        assert "broker" in [each.step for each in mine]
    assert [each.place for each in report.findings if each.step == STEP] == ["driver"]
    assert ("group of the progress" in [each.step for each in report.findings]) is bool(extra)
    assert topic in report._repr_html_()


def test_a_job_that_spark_cannot_run_is_a_finding(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is Py4J's: PySpark has no specific class for most failures of a job."""

    def fail(*_: object) -> None:
        raise RuntimeError('An error occurred while calling o1.x.\n: Cannot run program "/nowhere/python"')

    monkeypatch.setattr("kafka_sink.spark.check.run_stoppable", fail)
    report = check(spark, {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": new_topic()})
    assert not report.is_ok
    (finding,) = [each for each in report.findings if each.step == "task"]
    assert 'Cannot run program "/nowhere/python"' in finding.found
    assert [each.step for each in report.findings if each.place == "driver"], "those of the driver are kept"


def test_registry_is_asked_by_the_driver_alone(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled: list[bytes] = []
    dumps: Callable[[CloudPickleSerializer, object], bytes] = CloudPickleSerializer.dumps

    def note(self: CloudPickleSerializer, value: object) -> bytes:
        pickled.append(dumps(self, value))
        return pickled[-1]

    monkeypatch.setattr(CloudPickleSerializer, "dumps", note)
    topic, asking = new_topic(), {"value.format": "avro", "value.schema": '"int"'}
    with EmbeddedRegistry() as registry:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **asking}
        login = {"schema.registry.url": registry.url, "basic.auth.user.info": "alice:Q7zSecret"}
        report = check(spark, {**given, **login})
    assert report.is_ok, report
    # The data sent to the executor has no secret.
    assert pickled and b"Q7zSecret" not in b"".join(pickled)
    found = [(each.place, each.subject) for each in report.findings if each.step in ("schema registry", "subject")]
    assert found == [("driver", registry.url), ("driver", f"{topic}-value")]


@pytest.mark.behaviour("kafkalite check", "The schemas that are derived from columns are compared with the registry's")
def test_derived_schemas_are_compared(spark: SparkSession, cluster: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    rows = spark.range(1).select(f.struct(f.col("id")).alias("value"))
    grown = rows.select(f.struct("value.id", f.lit(1).alias("amount")).alias("value"))
    nullable = rows.select(f.struct("value.id", f.nullif(f.lit(1), f.lit(None)).alias("amount")).alias("value"))
    with EmbeddedRegistry() as registry:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "value.format": "avro"}
        options["schema.registry.url"] = registry.url
        kafka_sink.write(rows, options)
        reports = [check(spark, options, schema=each) for each in (None, rows.schema, grown.schema, nullable.schema)]
        kafka_sink.write(nullable, options)
    found = [each for report in reports for each in report.findings if each.step == "subject"]
    assert [each.status for each in found] == [Status.WARNING, Status.OK, Status.FAILED, Status.OK]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE: amount at path '/fields/" in found[2].found
    (columns,) = check(spark, options, schema=spark.range(1).schema).findings
    assert (columns.step, "required column 'value' not found" in columns.found) == ("columns", True)


def test_both_places_say_what_is_wrong(spark: SparkSession) -> None:
    report = check(spark, {"kafka.bootstrap.servers": f"127.0.0.1:{free_ports()}", "topic": "t"})
    assert [each.step for each in report.problems] == ["port", "port"]
    assert places(CheckReport(report.problems)) == ["driver", "executor"]
    assert all("kafka.bootstrap.servers" in each.what_to_do for each in report.problems)


def test_topics_of_a_column(spark: SparkSession, cluster: Any, new_topic: Callable[..., str]) -> None:
    topics = [new_topic(), new_topic()]
    report = check(spark, {"kafka.bootstrap.servers": cluster.bootstrap_servers}, topics=topics)
    assert [each.subject for each in report.findings if each.step == "topic"] == topics


@pytest.mark.behaviour("Dead letters", "A check looks at the dead letter topic too")
def test_dead_letter_topic_is_checked(spark: SparkSession, cluster: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "deadLetterTopic": f"{topic}-dead"}
    found = {each.subject: each for each in check(spark, options).findings if each.step == "topic"}
    assert found[topic].status is Status.OK
    assert "does not exist" in found[f"{topic}-dead"].found
    creates = check(spark, {**options, "topicPartitions": "2"})
    assert f"{topic}-dead: does not exist; the job creates it with 2 partitions" in [
        f"{each.subject}: {each.found}" for each in creates.findings
    ]


def test_options_of_the_sink_are_checked(spark: SparkSession) -> None:
    report = check(spark, {"kafka.bootstrap.servers": "127.0.0.1:9092", "topik": "t"})
    (found,) = report.findings
    assert (found.step, found.status, found.place) == ("options", Status.FAILED, "driver")
    assert "did you mean topic?" in found.found
