"""Why Spark does not find ``format("kafkalite")``: a check names the cause, and ``register`` mends it. In a process of
its own, whose environment names no interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import ways
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

pytestmark = requires_data_sources

ROWS: Final = "cast(id as string) as value"

#: The interpreter that Spark finds first cannot be run, and its environment names no other one, as with
#: spark.pyspark.python alone. Without its session the thread is as an interrupt leaves it.
JOB: Final = f"""
import sys, threading
from pyspark.sql import SparkSession
import kafka_sink
from kafka_sink.spark.format_lookup import look_up

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def look():
    found = look_up(spark)
    print(found.status.value, found.found, found.what_to_do, sep=" | ")

look()
other = threading.Thread(target=look)
other.start()
other.join()
spark.newSession().createDataFrame([], "value string")
look()
kafka_sink.register(spark)
spark._jvm.org.apache.spark.sql.SparkSession.clearActiveSession()
look()
options = {{"kafka.bootstrap.servers": sys.argv[1], "topic": sys.argv[2]}}
spark.range(1).selectExpr("{ROWS}").write.format("kafkalite").mode("append").options(**options).save()
"""


@pytest.mark.way(ways.DF_WRITE)
@pytest.mark.behaviour(
    "Package", "Where Spark does not find the format, a check names the cause, and register mends it for good"
)
def test_cause_is_named_and_register_mends_it(cluster: Any, new_topic: Callable[..., str], tmp_path: Path) -> None:
    job, python3, topic = tmp_path / "job.py", tmp_path / "python3", new_topic(1)
    job.write_text(JOB)
    python3.write_text("#!/bin/sh\nexit 1\n")
    python3.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, job, cluster.bootstrap_servers, topic],
        env={**environ, "PATH": f"{tmp_path}:{environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    of_session, of_thread, of_another, registered = done.stdout.splitlines()
    assert of_session.startswith("failed | Spark has looked for formats with the interpreter python3, which has no ")
    assert of_thread.startswith("failed | no session is active in this thread")
    assert of_another.startswith("failed | another session is active in this thread")
    for line in (of_session, of_thread, of_another):
        assert "call kafka_sink.register(spark)" in line
    assert f"PYSPARK_PYTHON={sys.executable}" in of_session
    assert registered.startswith("ok | ")
    assert [message.value for message in read_topic(cluster.bootstrap_servers, topic)] == [b"0"]
