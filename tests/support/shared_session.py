"""The Spark session that the tests of a process share, on which hundreds of small queries run."""

from __future__ import annotations

import os
import sys
from typing import Final

from pyspark.sql import SparkSession

from kafka_sink import register
from tests.support.spark_version import HAS_DATA_SOURCES

#: Small queries take less time to run than Java code that is made for each of them takes to be compiled.
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_CONFIG: Final = {
    **INTERPRETED,
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "tests.support.loaded_daemon",
}


def start_session(name: str, **more: str) -> SparkSession:
    """A local session with two cores; *more* are configurations, with underscores for dots."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName(name)
    for option, value in (_CONFIG | {option.replace("_", "."): value for option, value in more.items()}).items():
        builder = builder.config(option, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if HAS_DATA_SOURCES:
        register(session)
    return session
