"""The driver program that a soak monitors: micro-batches written exactly once until SIGTERM.

    python -m tests.spark.soak_driver OPTIONS ROWS TASKS CHECKPOINT

OPTIONS is a JSON file with the sink's options. Each batch has ROWS rows, whose keys are consecutive from 0.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lpad

import kafka_sink

#: The JVM allocates its entire heap at the start, because a slowly growing heap would look like a leak. Objects that
#: are never released end the stream instead.
_HEAP = "768m"


def main() -> None:
    options, rows, tasks, checkpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kafkalite-soak")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", _HEAP)
        .config("spark.driver.extraJavaOptions", f"-Xms{_HEAP} -XX:+AlwaysPreTouch")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    kafka_sink.register(spark)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", tasks)
    key = col("value").cast("string")
    stream = source.load().select(key.alias("key"), lpad(key, 100, "x").alias("value")).writeStream
    stream = stream.format("kafkalite").options(**json.loads(Path(options).read_text()))
    kafka_sink.run_until_stopped(stream.option("checkpointLocation", checkpoint).start())
    spark.stop()


if __name__ == "__main__":
    main()
