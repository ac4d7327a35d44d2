"""A Spark program that writes the files of a folder exactly once in four ways at the same time, a file a batch.

python -m tests.support.four_ways BOOTSTRAP NAME FOLDER WAYS [--until-written | --supervised]
    [--option [WAY:]NAME=VALUE …]

WAYS are some of those in :data:`WAYS`. The files are in FOLDER/source; topics are NAME-way, those of dead letters
NAME-way-rejected, checkpoints and reports are in FOLDER/way. Lines that end with :data:`BAD` cannot be written. Without
--until-written it waits for more files until it is killed. With --supervised a way that fails is begun again, and the
error is added to FOLDER/way/failures.jsonl.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import kafka_sink
from tests.support.numbered_batches import next_version
from tests.support.spark_version import HAS_DATA_SOURCES

STREAM, PARALLEL, ATOMIC, BATCH = "writeStream", "foreachBatch-parallel", "foreachBatch-atomic", "batch"
WAYS = (STREAM, PARALLEL, ATOMIC, BATCH)
TASKS = 2
BAD = "-7"
_AGAIN_S = 1.0
_MOST_TEXT = 8000


class FourWays:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._asked = arguments
        self._source = arguments.folder / "source"
        self._spark = SparkSession.builder.appName("four-ways").getOrCreate()
        if HAS_DATA_SOURCES:
            kafka_sink.register(self._spark)

    def run(self) -> None:
        if self._asked.supervised:
            keepers = [threading.Thread(target=self._keep, args=(way,)) for way in self._asked.ways]
            for keeper in keepers:
                keeper.start()
            return
        queries = [self._start(way) for way in self._asked.ways if way != BATCH]
        if BATCH in self._asked.ways:
            self._write_batches(queries)
        for query in queries:
            query.awaitTermination()
        self._spark.stop()

    def _keep(self, way: str) -> None:
        # This makes the session the active one of this thread, in which Spark looks up Python data sources.
        self._spark.createDataFrame([], "value string")
        while True:
            try:
                if way == BATCH:
                    self._write_batches([])
                else:
                    self._start(way).awaitTermination()
            except Exception as error:  # whatever Spark and the sink raise
                with (self._asked.folder / way / "failures.jsonl").open("a") as failures:
                    failures.write(f"{json.dumps(str(error)[:_MOST_TEXT])}\n")
            time.sleep(_AGAIN_S)

    def _options(self, way: str) -> dict[str, str]:
        of_way = [option.removeprefix(f"{way}:") for option in self._asked.option if _is_of(way, option)]
        return {
            "kafka.bootstrap.servers": self._asked.bootstrap,
            # Separate connections, so that a stalled way does not block another one.
            "kafka.client.id": way,
            "topic": f"{self._asked.name}-{way}",
            "deadLetterTopic": f"{self._asked.name}-{way}-rejected",
            "reportPath": str(self._asked.folder / way / "report.jsonl"),
            **dict(option.split("=", 1) for option in of_way),
        }

    def _start(self, way: str) -> StreamingQuery:
        name, options = f"{self._asked.name}-{way}", self._options(way)
        rows = _rows(self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._source)))
        if way == STREAM:
            writer = rows.writeStream.format("kafkalite").options(**options)
            writer = writer.options(deliveryGuarantee="exactly-once", transactionalIdPrefix=name)
        else:
            write_batch = kafka_sink.foreach_batch(options=options, app_id=name, atomic=way == ATOMIC)
            writer = rows.writeStream.foreachBatch(write_batch)
        writer = writer.option("checkpointLocation", str(self._asked.folder / way / "checkpoint"))
        trigger = {"availableNow": True} if self._asked.until_written else {"processingTime": "200 milliseconds"}
        return writer.trigger(**trigger).start()

    def _write_batches(self, queries: list[StreamingQuery]) -> None:
        options = self._options(BATCH)
        version = next_version(Path(options["reportPath"]))
        while self._asked.until_written or all(query.isActive for query in queries):
            files = sorted(self._source.glob("*.txt"))
            if version < len(files):
                _write_batch(_rows(self._spark.read.text(str(files[version]))), options, version)
                version += 1
            elif self._asked.until_written:
                return
            time.sleep(0.05)


def _is_of(way: str, option: str) -> bool:
    of, colon, _ = option.partition(":")
    return not colon or of not in WAYS or of == way


def _rows(lines: DataFrame) -> DataFrame:
    # Other rows have no timestamp: retention would depend on it.
    before_1970 = f.timestamp_seconds(f.when(f.col("value").endswith(BAD), -1))
    return lines.select("value", before_1970.alias("timestamp")).repartition(TASKS)


def _write_batch(rows: DataFrame, options: dict[str, str], version: int) -> None:
    if HAS_DATA_SOURCES:
        writer = rows.write.format("kafkalite").mode("append").options(**options)
        writer.options(txnAppId=options["topic"], txnVersion=version).save()
    else:
        kafka_sink.write(rows, options=options, app_id=options["topic"], version=version, atomic=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.four_ways")
    parser.add_argument("bootstrap")
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("ways", type=lambda text: text.split(","))
    parser.add_argument("--until-written", action="store_true")
    parser.add_argument("--supervised", action="store_true")
    parser.add_argument("--option", action="append", default=[])
    FourWays(parser.parse_args()).run()


if __name__ == "__main__":
    main()
