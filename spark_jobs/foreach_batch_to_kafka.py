"""Streams rows to a topic with foreachBatch: every micro-batch is one transaction, or one for each of its tasks.

Run by spark-submit. Ends when everything that is there is written (--until-written), or on SIGTERM or Ctrl-C as soon as
the micro-batch under way is done. Killed in any other way, it goes on exactly where it was with the same --checkpoint.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.spark.job_arguments import job_parser, read_records, run_job, sink_name, to_kafka


def main() -> None:
    parser = job_parser(__doc__, is_stream=True)
    stream = parser.add_argument_group("stream")
    stream.add_argument("--checkpoint", required=True, help="folder, kept from start to start")
    stream.add_argument(
        "--guarantee",
        choices=["atomic", "parallel"],
        default="atomic",
        help="atomic: one transaction a batch, rows move between tasks; parallel: one a task, and none moves",
    )
    stream.add_argument("--name", help="the application's own name (default: the topic's)")
    stream.add_argument("--trigger", default="1 second", help="time between micro-batches (default 1 second)")
    stream.add_argument("--until-written", action="store_true", help="end when everything that is there is written")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("foreach-batch-to-kafka").getOrCreate()
    write_batch = kafka_sink.foreach_batch(
        options=to_kafka(arguments), app_id=sink_name(arguments), atomic=arguments.guarantee == "atomic"
    )
    writer = read_records(spark, arguments, is_stream=True).writeStream.foreachBatch(write_batch)
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    trigger = {"availableNow": True} if arguments.until_written else {"processingTime": arguments.trigger}
    kafka_sink.run_until_stopped(writer.trigger(**trigger).start())
    spark.stop()


if __name__ == "__main__":
    run_job(main)
