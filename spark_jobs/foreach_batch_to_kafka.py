"""Streams rows to a topic with foreachBatch: one transaction per micro-batch, or one per task.

Run by spark-submit. Ends when all available rows are written (--until-written), or after SIGTERM or Ctrl-C as soon as
the current micro-batch is completed. After any other end, a run with the same --checkpoint continues where this one
ended.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import kafka_sink
from job_arguments import job_parser, read_records, run_job, sink_name, to_kafka


def main() -> None:
    parser = job_parser(__doc__, is_stream=True)
    stream = parser.add_argument_group("stream")
    stream.add_argument("--checkpoint", required=True, help="folder that is kept between runs")
    stream.add_argument(
        "--guarantee",
        choices=["atomic", "parallel"],
        default="atomic",
        help="atomic: one transaction per batch, which moves rows between tasks; "
        "parallel: one per task, which does not",
    )
    stream.add_argument("--name", help="unique name of the application (default: the topic)")
    stream.add_argument("--trigger", default="1 second", help="time between micro-batches (default 1 second)")
    stream.add_argument("--until-written", action="store_true", help="stop when all available rows are written")
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
