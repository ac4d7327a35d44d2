"""The Spark session that the tests of a process share, on which hundreds of small queries run."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from kafka_sink import register
from tests.support.spark_version import HAS_DATA_SOURCES

_CONFIG: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Files without checksums: for each file Hadoop starts a process, chmod.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.python.daemon.module": "tests.support.loaded_daemon",
}


def start_session() -> SparkSession:
    """A local session with two cores."""
    builder = SparkSession.builder.master("local[2]").appName("kafkalite-tests")
    for option, value in _CONFIG.items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if HAS_DATA_SOURCES:
        register(session)
    return session
