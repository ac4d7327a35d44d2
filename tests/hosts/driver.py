"""The driver program: streams that write exactly once in three ways at the same time, until it is told to stop.

    python -m tests.hosts.driver SETTINGS

SETTINGS is a file of :class:`tests.hosts.queries.Settings`. The keys of a stream's rows count up from 0, and each batch
has the same number of rows, so a repeated batch has the same rows. A stream that fails is restarted, and its error is
recorded. SIGTERM ends the program after the current micro-batches.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lpad
from pyspark.sql.streaming import StreamingQuery

import kafka_sink
from tests.hosts.queries import ATOMIC, STREAM, Query, Settings

#: The JVM allocates its whole heap at start, since a heap that grows slowly would look like a leak.
_HEAP: Final = "1g"
_LOOK_S: Final = 1
_AGAIN_S: Final = 1.0
_STOP_LIMIT_S: Final = 60.0
_MOST_TEXT: Final = 8000


class Streams:
    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings = spark, settings
        self.ending = threading.Event()

    def keep(self, query: Query) -> None:
        """Run *query* until :attr:`ending` is set."""
        trigger = {"processingTime": f"{query.trigger_s(self._settings.trigger_s)} seconds"}
        while not self.ending.is_set():
            with _noted(query):
                running = self._start(query, trigger)
                while not self.ending.is_set():
                    running.awaitTermination(_LOOK_S)
                _stop(running)
            self.ending.wait(_AGAIN_S)

    def drain(self, query: Query) -> None:
        """Let *query* write its planned batch, if there is one, and one more."""
        while True:
            with _noted(query):
                self._start(query, {"availableNow": True}).awaitTermination()
                return
            time.sleep(_AGAIN_S)

    def _start(self, query: Query, trigger: dict[str, Any]) -> StreamingQuery:
        # This makes the session the active one of this thread, in which Spark looks up Python data sources.
        self._spark.createDataFrame([], "value string")
        settings = self._settings
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", settings.rows)
        rows = source.option("numPartitions", settings.tasks).load()
        key = col("value").cast("string")
        writer = rows.select(key.alias("key"), lpad(key, 100, "x").alias("value")).writeStream
        options = {
            "kafka.bootstrap.servers": settings.bootstrap_servers,
            "topic": query.topic,
            "reportPath": str(query.folder / "report.jsonl"),
        }
        if query.way == STREAM:
            writer = writer.format("kafkalite").options(**options)
            writer = writer.options(deliveryGuarantee="exactly-once", transactionalIdPrefix=query.topic)
        elif query.way == ATOMIC:
            write_batch = kafka_sink.foreach_batch(options=options, app_id=query.topic, atomic=True)
            writer = writer.foreachBatch(write_batch)
        else:
            writer = writer.foreachBatch(_numbered(options, query.topic))
        return (
            writer.queryName(query.topic).option("checkpointLocation", str(query.checkpoint)).trigger(**trigger).start()
        )


@contextlib.contextmanager
def _noted(query: Query) -> Iterator[None]:
    """Within, an error is recorded as a failure of *query* and does not end its thread."""
    try:
        yield
    except Exception as error:
        with query.failures.open("a") as failures:
            failures.write(f"{json.dumps(str(error)[:_MOST_TEXT])}\n")


def _numbered(options: dict[str, str], name: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("kafkalite").mode("append")
        writer.options(**options, txnAppId=name, txnVersion=batch).save()

    return write


def _stop(running: StreamingQuery) -> None:
    """Stop the query, between two micro-batches if the current one ends in time."""
    deadline = time.monotonic() + _STOP_LIMIT_S
    while running.isActive and running.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.05)
    running.stop()


def _in_parallel(run: Callable[[Query], None], queries: Iterable[Query], until: Callable[[], bool]) -> None:
    """Run each of *queries* on a thread of its own and poll *until* while they run; return when all have ended."""
    threads = [threading.Thread(target=run, args=(query,)) for query in queries]
    for thread in threads:
        thread.start()
    while not until() and any(thread.is_alive() for thread in threads):
        time.sleep(_LOOK_S)
    for thread in threads:
        thread.join()


def _session(master: str) -> SparkSession:
    confs = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": _HEAP,
        "spark.driver.extraJavaOptions": f"-Xms{_HEAP} -XX:+AlwaysPreTouch",
        "spark.executor.memory": "512m",
        # One executor per host, as hosts have two cores. With spark.cores.max a host would get none: a recovered master
        # counts the cores of executors that it no longer knows.
        "spark.executor.cores": "2",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.scheduler.mode": "FAIR",
    }
    builder = SparkSession.builder.master(master).appName("kafkalite-hosts")
    for name, value in confs.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    settings = Settings.read(Path(sys.argv[1]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = _session(settings.master)
    spark.sparkContext.setLogLevel("ERROR")
    kafka_sink.register(spark)
    streams, queries = Streams(spark, settings), list(settings.all_queries())

    def end(number: int, frame: FrameType | None) -> None:
        streams.ending.set()

    def is_to_end() -> bool:
        if settings.drain.exists():
            streams.ending.set()
        return streams.ending.is_set()

    signal.signal(signal.SIGTERM, end)
    if not is_to_end():
        _in_parallel(streams.keep, queries, is_to_end)
    if settings.drain.exists():
        _in_parallel(streams.drain, queries, lambda: False)
    spark.stop()


if __name__ == "__main__":
    main()
