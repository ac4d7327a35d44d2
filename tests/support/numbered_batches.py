"""A Spark job that writes every file of a folder as a numbered batch.

numbered_batches.py BOOTSTRAP TOPIC FOLDER REPORT GUARANTEE SLOW_S, where GUARANTEE is "atomic", "parallel", or "hot":
atomic, with most rows in one partition, whose task is slow because it writes 100 rows a second. The first attempt at
the first task of every batch takes SLOW_S. Started again it begins one before the last that it reported, as one that
does not know how far it came.
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


def next_version(report: Path) -> int:
    """One before the last that *report* tells of."""
    versions = [json.loads(line)["version"] for line in report.read_text().splitlines()] if report.exists() else []
    return max(0, versions[-1] - 1) if versions else 0


def main(bootstrap: str, topic: str, folder: str, report: str, guarantee: str, slow_s: str) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        is_slow = context is not None and context.partitionId() == 0 and context.attemptNumber() == 0
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            time.sleep(float(slow_s) if is_slow else 0)
            yield batch.slice(half)

    spark = SparkSession.builder.appName("numbered-batches").getOrCreate()
    kafka_sink.register(spark)
    files = sorted(Path(folder).iterdir())
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "reportPath": report}
    for version in range(next_version(Path(report)), len(files)):
        rows = spark.read.text(str(files[version])).repartition(3).mapInArrow(slowly, "value string")
        if guarantee == "hot":
            rows = rows.selectExpr("value", "if(abs(hash(value)) % 10 < 8, 'hot', value) as key")
            options["maxRecordsPerSecond"] = "100"
        if guarantee != "parallel":
            kafka_sink.write(rows, options=options, app_id=f"app-{topic}", version=version)
            continue
        writer = rows.write.format("kafkalite").mode("append").options(**options)
        writer.options(txnAppId=f"app-{topic}", txnVersion=version).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
