"""Spark finds ``format("kafkalite")`` after ``register``: in any thread, after any interrupt, with any interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from tests.support import ways
from tests.support.readback import read_topic
from tests.support.spark_version import requires_data_sources

pytestmark = requires_data_sources

ROOT: Final = Path(__file__).parents[2]
THREADS: Final = 4
ROWS: Final = "cast(id as string) as value"


def errors_of(work: Callable[[int], object], kind: type[threading.Thread]) -> list[str]:
    """Run *work* in several threads at once; return the texts of their errors."""
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


QUICK: Final = """
import json, os, sys
from pyspark.sql import SparkSession
import kafka_sink
from kafka_sink.spark.format_lookup import look_up
from kafka_sink.spark.internals import has_workers

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = has_workers(spark)
kafka_sink.register(spark)
named = spark.sparkContext.pythonExec
kafka_sink.register(spark)
other = spark.newSession()
other._jvm.org.apache.spark.sql.SparkSession.setActiveSession(other._jsparkSession)
found = look_up(other).status.value

def loaded(_):
    import pyspark
    return os.path.realpath(pyspark.__file__)

places = spark.sparkContext.parallelize([0], 1).map(loaded).collect()
print(json.dumps([before, os.path.basename(named), found, places, has_workers(spark)]))
"""


@pytest.mark.way(ways.DF_WRITE)
@pytest.mark.behaviour("Package", "register starts no search of Spark, and workers load the installed PySpark")
def test_register_spares_what_a_first_write_waits_for(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(QUICK)
    done = subprocess.run(
        [sys.executable, job],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    installed = str(Path(pyspark.__file__).resolve())
    assert json.loads(done.stdout) == [False, "kafkalite-python", "ok", [installed], True]
    # Spark has neither searched nor registered a second time.
    assert "lookup_data_sources" not in done.stderr and "DataSourceManager" not in done.stderr


RESTARTED: Final = """
import sys
from pyspark.sql import SparkSession
import kafka_sink

def write(named=None):
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    if named is not None:
        spark.sparkContext.pythonExec = named
        spark.sparkContext.parallelize([0], 1).map(str).collect()
    kafka_sink.register(spark)
    rows = spark.range(10).selectExpr("cast(id as string) as value")
    options = {"kafka.bootstrap.servers": sys.argv[1], "topic": sys.argv[2]}
    rows.write.format("kafkalite").mode("append").options(**options).save()
    print(spark.sparkContext.pythonExec)
    spark.stop()

write()
write()
# As if nobody had named an interpreter, and with workers that run already.
write("python3")
"""


@pytest.mark.way(ways.DF_WRITE)
@pytest.mark.behaviour("Package", "After register, df.write works in the next session of a process, too")
def test_sessions_of_a_process_write_one_after_the_other(
    cluster: Any, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    job, topic = tmp_path / "job.py", new_topic(1)
    job.write_text(RESTARTED)
    own = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, job, cluster.bootstrap_servers, topic],
        env={**os.environ, **own, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, last = done.stdout.split()
    assert Path(first).name == Path(second).name == "kafkalite-python" and last == sys.executable
    assert len(read_topic(cluster.bootstrap_servers, topic)) == 30
