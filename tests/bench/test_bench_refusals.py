"""The comparison of refused writes, with the smallest number of tasks that shows whether each of them logs in."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.bench.bench_refusals import SINKS, measured, write_by_format, write_by_kafka
from tests.support.spark_version import HAS_DATA_SOURCES


@pytest.mark.behaviour("Tasks", "A wrong password is one login, however many tasks a write has")
@pytest.mark.parametrize("sink", [name for name in SINKS if SINKS[name] is not write_by_kafka])
def test_wrong_password_is_one_login_of_all_tasks(spark: SparkSession, sink: str) -> None:
    if SINKS[sink] is write_by_format and not HAS_DATA_SOURCES:
        pytest.skip("this Spark has no Python data sources")
    df = spark.range(0, 4, 1, 4).selectExpr("cast(id as string) as value")
    assert measured(df, "wrong password", sink, 60_000).endswith("connections: 1")
