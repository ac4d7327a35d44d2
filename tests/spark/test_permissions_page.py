"""The table of docs/permissions.md: each way to write works with exactly its ACLs; its error names a missing one."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.cli.main import run
from kafka_sink.common.acl import AclBinding, AclOperation, PatternType, ResourceType
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckReport, CheckTarget, ExactlyOnceTarget, NewTopicTarget
from scripts.pages import printed
from tests.support.acl_commands import acls_of
from tests.support.pages import blocks
from tests.support.readback import read_topic
from tests.support.secure_cluster import guarded_cluster
from tests.support.spark_version import requires_data_sources

PAGE: Final = Path(__file__).parents[2] / "docs" / "permissions.md"
ROWS: Final = 10


class Needed(NamedTuple):
    """A row of the table."""

    way: str
    acl: AclBinding
    error: str


def rows() -> list[Needed]:
    marked = printed(PAGE, "permissions")
    found = []
    for line in marked.strip().splitlines()[2:]:
        way, operation, resource_type, name, error = (cell.strip() for cell in line.strip("|").split(" | "))
        acl = AclBinding(
            principal="User:job",
            operation=AclOperation[operation],
            resource_type=ResourceType[resource_type],
            resource_name=name.split("`")[1],
            pattern_type=PatternType.PREFIXED if "prefix" in name else PatternType.LITERAL,
        )
        found.append(Needed(way.replace("`", ""), acl, error.strip("`")))
    return found


def few_rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).selectExpr("cast(id as string) as value")


WAYS: Final = list(dict.fromkeys(row.way for row in rows()))


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedCluster]:
    with guarded_cluster(job="job-s3cret") as running:
        yield running


class Job:
    """A job that writes in one way to a topic with a unique name."""

    _numbers = itertools.count()

    def __init__(self, way: str, cluster: EmbeddedCluster) -> None:
        self.way = way
        self._cluster = cluster
        self.topic = f"orders{next(self._numbers)}-{os.urandom(3).hex()}"
        self.options = {
            "kafka.bootstrap.servers": cluster.nodes[1]["SASL_PLAINTEXT"].address,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": 'PlainLoginModule required username="job" password="job-s3cret";',
            "kafka.retry.backoff.ms": "1",
            "topic": self.topic,
        }
        if "topicPartitions" in way:
            self.options["topicPartitions"] = "2"
        else:
            cluster.create_topic(self.topic, 2)

    def named(self, text: str) -> str:
        return text.replace("orders", self.topic)

    def grant(self, needed: list[Needed]) -> None:
        self._cluster.create_acls(
            [replace(each.acl, resource_name=self.named(each.acl.resource_name)) for each in needed]
        )

    def write(self, df: DataFrame) -> None:
        if "exactly once" in self.way:
            atomic = "atomic" in self.way
            kafka_sink.write(df, options=self.options, app_id=self.named("orders-sink"), version=1, atomic=atomic)
        else:
            kafka_sink.write(df, options=self.options)

    def check(self) -> CheckReport:
        """Return the findings of ``kafka_sink.check`` on the driver, which checks permissions."""
        properties = {
            name.removeprefix("kafka."): value for name, value in self.options.items() if name.startswith("kafka.")
        }
        sink = ExactlyOnceTarget(self.named("orders-sink"), self.topic) if "exactly once" in self.way else None
        new = (NewTopicTarget(self.topic, 2),) if "topicPartitions" in self.options else ()
        return CheckReport(check_all(CheckTarget(properties, (self.topic,), sink, new_topics=new), "driver"))


@pytest.mark.behaviour("ACLs", "Each way to write works with exactly the ACLs of docs/permissions.md; the check agrees")
@pytest.mark.parametrize("way", WAYS)
def test_the_sink_writes_with_exactly_these_acls(way: str, spark: SparkSession, guarded: EmbeddedCluster) -> None:
    job = Job(way, guarded)
    job.grant([row for row in rows() if row.way == way])
    report = job.check()
    assert report.is_ok, report
    job.write(few_rows(spark))
    assert len(read_topic(guarded.bootstrap_servers, job.topic)) == ROWS


@pytest.mark.behaviour(
    "ACLs", "Without one of these ACLs a write fails, names it and writes no row; the check finds it"
)
@pytest.mark.parametrize(
    "number", range(len(rows())), ids=lambda number: f"{rows()[number].acl.operation.name}-{number}"
)
def test_a_write_without_one_acl_names_it(number: int, spark: SparkSession, guarded: EmbeddedCluster) -> None:
    missing = rows()[number]
    job = Job(missing.way, guarded)
    job.grant([row for at, row in enumerate(rows()) if row.way == missing.way and at != number])
    with pytest.raises(Exception, match=re.escape(job.named(missing.error))):
        job.write(few_rows(spark))
    if "topicPartitions" not in missing.way:
        assert read_topic(guarded.bootstrap_servers, job.topic) == []
    report = job.check()
    assert not report.is_ok
    advice = " ".join(f"{each.found} {each.what_to_do}" for each in report.problems)
    assert missing.acl.operation.name in advice


@pytest.mark.behaviour("ACLs", "'kafkalite check --print-acls' prints exactly the ACLs of docs/permissions.md")
@pytest.mark.parametrize("way", WAYS)
def test_the_printed_acls_are_those_of_the_page(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    sink = ("--exactly-once", "orders-sink") if "exactly once" in way else ()
    creates = ("--topic-partitions", "2") if "topicPartitions" in way else ()
    assert run(["check", "orders", *sink, *creates, "--print-acls", "User:job"]) == 0
    assert set(acls_of(capsys.readouterr().out)) == {row.acl for row in rows() if row.way == way}


@requires_data_sources
def test_the_code_of_the_page_works(spark: SparkSession) -> None:
    (code,) = blocks(PAGE, "python")
    names: dict[str, Any] = {"df": few_rows(spark)}
    # The block of the page ends with the cluster.
    exec(code + "\n    written = read_topic(cluster.bootstrap_servers, 'orders')", {**globals(), **names}, names)
    assert len(names["written"]) == ROWS
