"""A batch that fails in Spark's planner, before any task, has a line in the report like every other failed write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from kafka_sink.errors import ProgressError
from kafka_sink.reports.writes import read_writes
from kafka_sink.spark.driver.before_write import prepared
from kafka_sink.spark.driver.write_report import sink_of
from kafka_sink.spark.options import parse_options
from tests.support.spark_version import requires_data_sources

ROWS = StructType().add("value", "string")


@requires_data_sources
def test_a_batch_refused_by_the_planner_is_in_the_report(
    cluster: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    # Spark 3.5 cannot import this module.
    from kafka_sink.spark.data_source import KafkaliteDataSource

    topic, report, checkpoint = new_topic(1), tmp_path / "report.jsonl", tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"another"}')
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n0")
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": topic,
        "checkpointLocation": str(checkpoint),
        "reportPath": str(report),
    }
    spec = prepared(ROWS, parse_options(options, is_stream=True))
    assert spec.exactly_once is not None
    sink = sink_of(spec, spec.exactly_once)
    sink.commit(sink.plan("query first"), 0, "query first", [])
    with pytest.raises(ProgressError, match="belongs to query first"):
        KafkaliteDataSource(options).streamWriter(ROWS, False)
    (line,) = report.read_text().splitlines()
    assert json.loads(line)["decision"] == "failed"
    (write,) = read_writes(report, 10)[1]
    assert "belongs to query first" in str(write.error)
