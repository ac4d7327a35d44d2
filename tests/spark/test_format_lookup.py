"""``format("kafkalite")`` is found after ``register``: in any thread, after any interrupt, with any interpreter."""

from __future__ import annotations

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

THREADS: Final = 4
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
