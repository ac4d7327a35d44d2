"""A Spark job that writes every file of a folder as a numbered batch.

numbered_batches.py BOOTSTRAP TOPIC FOLDER REPORT [SLOW_S]. Started again it begins one before the last that it
reported, as one that does not know how far it came. The first attempt at the first task of every batch takes SLOW_S.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

import kafka_sink

if TYPE_CHECKING:
    import pyarrow as pa


def main(bootstrap: str, topic: str, folder: str, report: str, slow_s: str = "0") -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        is_slow = context is not None and context.partitionId() == 0 and context.attemptNumber() == 0
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            time.sleep(float(slow_s) if is_slow else 0)
            yield batch.slice(half)

    file = Path(report)
    versions = [json.loads(line)["version"] for line in file.read_text().splitlines()] if file.exists() else []
    spark = SparkSession.builder.appName("numbered-batches").getOrCreate()
    kafka_sink.register(spark)
    files = sorted(Path(folder).iterdir())
    for version in range(max([0, *(number - 1 for number in versions[-1:])]), len(files)):
        rows = spark.read.text(str(files[version])).repartition(3).mapInArrow(slowly, "value string")
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "txnAppId": f"app-{topic}"}
        writer = rows.write.format("kafkalite").mode("append").options(**options)
        writer.options(txnVersion=version, reportPath=report).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
