"""Streams lines of text to a topic, each line once: from files that appear in a folder, a socket, or the rate source.

Run by spark-submit. Ends when everything is written (--until-written), or in good order on SIGTERM or Ctrl-C: the
micro-batch that is under way is then left to the next start, which writes it once all the same.
"""

from __future__ import annotations

import argparse
import signal
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import kafka_sink

#: How often a stop that was asked for is looked at, seconds.
_LOOK_S = 0.5


def read_lines(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """A stream with the column `value`."""
    reader = spark.readStream
    if options.source == "files":
        return reader.option("maxFilesPerTrigger", options.files_per_batch).text(options.input)
    if options.source == "socket":
        host, _, port = options.input.rpartition(":")
        return reader.format("socket").option("host", host).option("port", port).load()
    rate = reader.format("rate").option("rowsPerSecond", options.input).load()
    return rate.select(col("value").cast("string").alias("value"))


def start(lines: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """Begin to write *lines* under the chosen guarantee."""
    to_kafka = {"kafka.bootstrap.servers": options.bootstrap_servers, "topic": options.topic}
    if options.report:
        to_kafka["reportPath"] = options.report
    writer: DataStreamWriter
    if options.guarantee in ("atomic", "parallel"):
        write_batch = kafka_sink.foreach_batch(
            options=to_kafka, app_id=options.name, atomic=options.guarantee == "atomic"
        )
        writer = lines.writeStream.foreachBatch(write_batch)
    else:
        writer = lines.writeStream.format("kafkalite").options(**to_kafka)
        if options.guarantee == "exactly-once":
            writer = writer.options(deliveryGuarantee="exactly-once", transactionalIdPrefix=options.name)
    writer = writer.option("checkpointLocation", options.checkpoint)
    if options.until_written:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=options.trigger).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--source", choices=["files", "socket", "rate"], default="files")
    parser.add_argument("--input", required=True, help="folder, HOST:PORT, or rows per second")
    parser.add_argument("--files-per-batch", type=int, default=1)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument(
        "--guarantee",
        choices=["at-least-once", "exactly-once", "atomic", "parallel"],
        default="exactly-once",
        help="of writeStream: at-least-once, exactly-once; of foreachBatch: atomic, parallel",
    )
    parser.add_argument("--name", help="the sink's name, where each line is to be there once (default: the topic's)")
    parser.add_argument("--trigger", default="1 second")
    parser.add_argument("--until-written", action="store_true", help="end when everything that is there is written")
    parser.add_argument("--report", help="file to which each micro-batch appends what it wrote, as one JSON line")
    options = parser.parse_args()
    options.name = options.name or options.topic

    spark = SparkSession.builder.appName("stream-to-kafka").getOrCreate()
    kafka_sink.register(spark)
    query = start(read_lines(spark, options), options)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while query.isActive and not stop.is_set():
        query.awaitTermination(_LOOK_S)
    query.stop()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    spark.stop()


if __name__ == "__main__":
    main()
