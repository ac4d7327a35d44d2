"""A Spark job that writes every file of a folder as a numbered batch: python numbered_batches.py BOOTSTRAP TOPIC FOLDER
REPORT. Started again it begins one before the last that it reported, as one that does not know how far it came.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import kafka_sink


def main(bootstrap: str, topic: str, folder: str, report: str) -> None:
    file = Path(report)
    versions = [json.loads(line)["version"] for line in file.read_text().splitlines()] if file.exists() else []
    spark = SparkSession.builder.appName("numbered-batches").getOrCreate()
    kafka_sink.register(spark)
    files = sorted(Path(folder).iterdir())
    for version in range(max([0, *(number - 1 for number in versions[-1:])]), len(files)):
        rows = spark.read.text(str(files[version])).repartition(3)
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "txnAppId": f"app-{topic}"}
        writer = rows.write.format("kafkalite").mode("append").options(**options)
        writer.options(txnVersion=version, reportPath=report).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
