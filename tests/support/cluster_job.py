"""A job of Spark that writes the numbers below ROWS in each way, to one topic each: NAME-way. It is one file, for
clusters that have nothing of the tests. cluster_job.py BOOTSTRAP NAME FOLDER ROWS; FOLDER is for input and checkpoints.
A job whose driver was killed is submitted again with the same arguments, and writes the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import kafka_sink

#: The way "parallel" writes slowly, so that a container can be killed while it writes.
WAYS = ("once", "atomic", "parallel", "stream")
PARTS = 4
_FILES = 3
SLOW_S = 10


def main(bootstrap: str, name: str, folder: str, rows: int) -> None:
    spark = SparkSession.builder.appName(name).getOrCreate()
    to_kafka = {"kafka.bootstrap.servers": bootstrap, "topicPartitions": str(PARTS)}
    numbers = spark.range(0, rows, 1, PARTS).selectExpr("cast(id as string) as value")

    def save(way: str, **options: object) -> None:
        writer = numbers.write.format("kafkalite").mode("append").options(**to_kafka, topic=f"{name}-{way}")
        writer.options(**{key: str(value) for key, value in options.items()}).save()

    save("once")
    for _ in range(2):  # the second time it is skipped
        kafka_sink.write(numbers, options={**to_kafka, "topic": f"{name}-atomic"}, app_id=f"{name}-atomic", version=1)
    limit = rows // PARTS // SLOW_S
    save("parallel", txnAppId=f"{name}-parallel", txnVersion=1, maxRecordsPerSecond=limit)
    _stream(spark, {**to_kafka, "topic": f"{name}-stream"}, Path(folder), rows)
    spark.stop()


def _stream(spark: SparkSession, options: dict[str, str], folder: Path, rows: int) -> None:
    source = folder / "source"
    if not source.exists():
        source.mkdir(parents=True)
        for number in range(_FILES):
            lines = "".join(f"{value}\n" for value in range(number, rows, _FILES))
            (source / f"{number}.txt").write_text(lines)
    lines_read: DataFrame = spark.readStream.option("maxFilesPerTrigger", 1).text(source.as_uri())
    writer = lines_read.writeStream.format("kafkalite").options(**options, deliveryGuarantee="exactly-once")
    writer = writer.option("transactionalIdPrefix", options["topic"])
    writer = writer.option("checkpointLocation", (folder / "checkpoint").as_uri())
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
