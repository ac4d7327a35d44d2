"""Batches without rows: a version of an application is recorded, and a micro-batch opens no transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kafka_sink import EmbeddedCluster
from kafka_sink.spark import data_source
from kafka_sink.spark.data_source import KafkaliteExactlyOnceStreamWriter, KafkaliteNumberedBatchWriter
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.driver.write_report import sink_of
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.write_spec import WriteSpec
from tests.support.readback import read_topic

ROWS = StructType().add("value", "string")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        cluster.create_topic("orders", 2)
        yield cluster


def spec_of(cluster: EmbeddedCluster, *, is_stream: bool, **options: str) -> WriteSpec:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "orders", **options}
    return prepared(ROWS, parse_options(given, is_stream=is_stream))


def rows_of(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch([pa.array(values)], names=["value"])] if values else [])


def last_version(spec: WriteSpec) -> int:
    assert spec.exactly_once is not None
    progress = sink_of(spec, spec.exactly_once).plan().progress
    assert progress is not None
    return progress.version


def test_an_empty_version_of_an_application_is_recorded(cluster: EmbeddedCluster) -> None:
    for version, values in ((3, ("a", "b")), (5, ()), (5, ("c",)), (4, ("d",)), (6, ("e",))):
        spec = spec_of(cluster, is_stream=False, txnAppId="app", txnVersion=str(version))
        assert spec.exactly_once is not None
        writer = KafkaliteNumberedBatchWriter(spec, spec.exactly_once)
        writer.plan()
        writer.commit([writer.write(rows_of(*values)), writer.write(rows_of())])
        assert last_version(spec) == max(version, 5 if version == 4 else 0)
    assert sorted(message.value or b"" for message in read_topic(cluster.bootstrap_servers, "orders")) == [
        b"a",
        b"b",
        b"e",
    ]


@pytest.mark.behaviour("Exactly once: parallel", "An empty batch costs no transaction once there is progress")
def test_an_empty_micro_batch_opens_no_transaction(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(cluster, is_stream=True, deliveryGuarantee="exactly-once", transactionalIdPrefix="sink")
    assert spec.exactly_once is not None
    for batch, values, recorded in ((0, ("a",), 0), (1, (), 0), (2, (), 0), (3, ("b",), 3)):
        monkeypatch.setattr(data_source, "micro_batch_of", lambda _, batch=batch: ("q", str(batch)))
        writer = KafkaliteExactlyOnceStreamWriter(spec, spec.exactly_once)
        writer.plan()
        writer.commit([writer.write(rows_of(*values)), writer.write(rows_of())], batch)
        assert last_version(spec) == recorded
    assert sorted(message.value or b"" for message in read_topic(cluster.bootstrap_servers, "orders")) == [b"a", b"b"]
