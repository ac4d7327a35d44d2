"""Writes the flights that left New York in 2013 to a topic: key = tail number, value = the whole row as JSON, or as
Avro with a schema registry.

Run by spark-submit (see scripts/demo.sh). Everything that concerns Kafka is in the sink; this job only creates a
DataFrame.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, monotonically_increasing_id, struct, to_json

import kafka_sink

FLIGHTS_SCHEMA = Path(__file__).with_name("flights.ddl").read_text(encoding="utf-8")


def read_flights(spark: SparkSession, path: str, rows: int | None) -> DataFrame:
    """Return the CSV file as one partition, so that `line` increases in the file's order; at most *rows* rows."""
    flights = (
        spark.read.schema(FLIGHTS_SCHEMA)
        .option("header", True)
        .option("nullValue", "NA")
        .option("mode", "FAILFAST")
        .csv(path)
    )
    return (flights if rows is None else flights.limit(rows)).withColumn("line", monotonically_increasing_id())


def to_records(flights: DataFrame, tasks: int, *, is_json: bool = True) -> DataFrame:
    """Return key and value columns in *tasks* partitions, the value as JSON or as a struct; the flights of one
    aeroplane stay in the file's order.

    Kafka keeps the order in which one producer sends the records of a key. So all rows of a key go to one task
    (repartition), which restores the file's order after the shuffle (sortWithinPartitions).
    """
    row = struct(*(name for name in flights.columns if name != "line"))
    return (
        flights.repartition(tasks, "tailnum")
        .sortWithinPartitions("line")
        .select(col("tailnum").alias("key"), (to_json(row) if is_json else row).alias("value"))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--input", required=True, help="flights.csv")
    parser.add_argument("--rows", type=int, help="write only this number of rows")
    parser.add_argument("--tasks", type=int, default=4, help="number of Spark partitions that write concurrently")
    parser.add_argument("--compression", default="lz4", help="none, gzip, snappy, lz4 or zstd")
    parser.add_argument("--registry", help="address of a schema registry: values are Avro, with the id of their schema")
    parser.add_argument("--report", help="file to which the sink appends its report as one JSON line")
    options = parser.parse_args()

    # Spark reads the splits of a file concurrently; with a single split it can number the lines.
    spark = (
        SparkSession.builder.appName("flights-to-kafka")
        .config("spark.sql.files.minPartitionNum", 1)
        .config("spark.sql.files.maxPartitionBytes", "1g")
        .getOrCreate()
    )
    to_kafka = {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "kafka.compression.type": options.compression,
        "topic": options.topic,
    }
    if options.report:
        to_kafka["reportPath"] = options.report
    if options.registry:
        to_kafka |= {"value.format": "avro", "schema.registry.url": options.registry}
    flights = read_flights(spark, options.input, options.rows)
    records = to_records(flights, options.tasks, is_json=not options.registry)
    if spark.version.startswith("3."):
        # Spark 3.5 has no data sources in Python; this call works on every version.
        kafka_sink.write(records, options=to_kafka)
    else:
        records.write.format("kafkalite").options(**to_kafka).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
