"""``format("kafkalite")`` is found after ``register``: in any thread, after any interrupt, with any interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from tests.support import ways
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

pytestmark = requires_data_sources

THREADS: Final = 8
ROWS: Final = "cast(id as string) as value"


def errors_of(work: Callable[[int], object], kind: type[threading.Thread]) -> list[str]:
    """What goes wrong in threads that all do *work* at once."""
    found: list[str] = []
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            work(number)
        except Exception as error:
            found.append(str(error)[:300])

    threads = [kind(target=run, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return found


@pytest.mark.way(ways.DF_WRITE)
@pytest.mark.behaviour("Package", "After register, df.write and writeStream find the format in any thread")
@pytest.mark.parametrize("kind", [threading.Thread, InheritableThread], ids=["Thread", "InheritableThread"])
def test_df_write_finds_the_format_in_threads_at_once(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], kind: type[threading.Thread]
) -> None:
    topic = new_topic(1)

    def write(number: int) -> None:
        rows = spark.range(number, number + 1, 1, 1).selectExpr(ROWS)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
        rows.write.format("kafkalite").mode("append").options(**options).save()

    assert errors_of(write, kind) == []
    values = sorted(message.value or b"" for message in read_topic(cluster.bootstrap_servers, topic))
    assert values == sorted(str(number).encode() for number in range(THREADS))


@pytest.mark.way(ways.AT_LEAST_ONCE_STREAM)
@pytest.mark.behaviour("Package", "After register, df.write and writeStream find the format in any thread")
def test_streams_start_in_threads_at_once(
    spark: SparkSession, cluster: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")

    def start(number: int) -> None:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
        writer = rows.writeStream.format("kafkalite").options(**options)
        writer.option("checkpointLocation", str(tmp_path / str(number))).start().stop()

    assert errors_of(start, threading.Thread) == []


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
